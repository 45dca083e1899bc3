//! Options of this operator.

use morphgl_hotness::CachePolicy;
use morphgl_platform::direct::Method;
use morphgl_registry::{Error, Key, OptionRole, OptionSpec, OptionType, Result};
use serde::{Deserialize, Serialize};

/// The operator's options, all optional.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Bytes of offsets, orders and caches together, without the workers' buffers. Default 256 MiB.
    pub memory_bytes: u64,
    /// What the caches are filled by. Default auto: by inclusion probability, else by in-degree, else by nothing, whichever
    /// `memory_bytes` have room for first. `lru` and `sieve` hold feature rows that were read, and no lists.
    pub cache: CachePolicy,
    /// Maximum bytes of the caches and their maps. Default: the part of `memory_bytes` that the offsets and the
    /// seeds' orders leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// Reads in flight of each worker. Default 128.
    pub depth: usize,
    /// Alignment of reads in bytes, from 512 to 4096. Default 512: a row is seldom longer.
    pub block: usize,
    /// Maximum of unwanted bytes that are read to merge two reads. Default 4096.
    pub gap: usize,
    /// Whether reads are issued by blocking threads even where io_uring is available. Default false.
    pub threads: bool,
}

impl Default for Options {
    fn default() -> Self {
        let cache = CachePolicy::Auto;
        Self { memory_bytes: 256 << 20, cache, cache_bytes: None, depth: 128, block: 512, gap: 4096, threads: false }
    }
}

/// The options as the registry lists them.
pub(crate) const SPECS: [OptionSpec; 7] = [
    OptionSpec::new("memory_bytes", OptionType::Count, "268435456", "memory of offsets, orders and caches together")
        .of_budget(OptionRole::HostBudget),
    OptionSpec::new(
        "cache",
        OptionType::Text,
        "auto",
        "what is cached: auto, none, lru, sieve, or by a hotness policy",
    )
    .such_as(&["none", "lru", "sieve", "in-degree"])
    .of_cache_policy()
    .for_single_pass("none"),
    OptionSpec::new("cache_bytes", OptionType::Count, "the rest of memory_bytes", "maximum memory of the caches")
        .such_as(&["65536"])
        .of_budget(OptionRole::CacheBytes),
    OptionSpec::new("depth", OptionType::Count, "128", "reads in flight of each worker, 1 to 4096")
        .such_as(&["1", "4096"])
        .in_unit("reads"),
    OptionSpec::new("block", OptionType::Count, "512", "alignment of reads, a power of two from 512 to 4096")
        .such_as(&["4096"])
        .in_unit("bytes"),
    OptionSpec::new("gap", OptionType::Count, "4096", "longest gap that is read to merge two reads, at most 1048576")
        .such_as(&["0", "1048576"])
        .in_unit("bytes"),
    OptionSpec::new("threads", OptionType::Bool, "false", "read by blocking threads where io_uring is available, too"),
];

impl Options {
    pub(crate) fn parse(key: &Key, options: &serde_json::Value) -> Result<Self> {
        if options.is_null() {
            return Ok(Self::default());
        }
        let known = SPECS.map(|spec| spec.name).join(", ");
        let wrong = |what: String| Error::setting("options", what);
        let options: Self =
            serde_json::from_value(options.clone()).map_err(|e| wrong(format!("{e}; {key} has {known}")))?;
        if !(1..=4096).contains(&options.depth) {
            return Err(wrong(format!("a depth of {} reads; give 1 to 4096", options.depth)));
        }
        if !(options.block.is_power_of_two() && (512..=4096).contains(&options.block)) {
            return Err(wrong(format!("a block of {} bytes; give 512, 1024, 2048 or 4096", options.block)));
        }
        if options.gap > 1 << 20 {
            return Err(wrong(format!("a gap of {} bytes; give 1048576 at most", options.gap)));
        }
        Ok(options)
    }

    /// The readers' method; `None` leaves the choice to what the kernel allows.
    pub(crate) fn method(&self) -> Option<Method> {
        self.threads.then_some(Method::Threads)
    }
}
