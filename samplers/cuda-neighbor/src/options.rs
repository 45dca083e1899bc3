//! Options of the operators.

use morphgl_cuda::Order;
use morphgl_hotness::CachePolicy;
use morphgl_registry::{Error, OptionRole, OptionSpec, OptionType, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::TYPED;
use crate::kind::Kind;

/// Placement of the topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TopologyPlacement {
    /// All in device memory if it fits the budget, else cached hot rows, else all in host memory.
    #[default]
    Auto,
    /// All in device memory.
    Device,
    /// Hot rows and lookup tables in device memory, other rows in host memory.
    Cached,
    /// All in host memory, read over the bus.
    Host,
}

/// Options in `BatchingContext::options`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Options {
    /// Placement of the topology. Default auto.
    pub(crate) topology: TopologyPlacement,
    /// Bytes of device memory for the topology, look-up tables included. Default half of what is free; a run then plans it where lists are cached.
    pub(crate) topology_bytes: Option<u64>,
    /// What ranks the CSR rows that are cached; `none` caches none.
    pub(crate) cache: CachePolicy,
    /// Bytes of device memory for cached rows and their tables, within `topology_bytes`. Default all of these.
    pub(crate) cache_bytes: Option<u64>,
    /// Other devices that cached rows are spread over: `"none"`, `"all"`, or a list of places.
    pub(crate) peers: Value,
    /// Epochs pre-sampled to find the hot rows, with `cache` auto. Default 1.
    pub(crate) presample_epochs: u32,
    /// Maximum mini-batches sampled per such epoch. Default all.
    pub(crate) presample_batches: Option<u32>,
    /// Mini-batches in flight per worker, each on a stream of its own. Default 2.
    pub(crate) in_flight: usize,
    /// Lines of 128 bytes of host memory that are in flight over the bus at a time.
    pub(crate) lines: u32,
    /// In which order lists are read from host memory.
    pub(crate) order: Order,
    /// Bytes that a hop may take by its upper bound; beyond, the host queries its size first. Default 1/256 of the
    /// device's memory, at least 64 MiB.
    pub(crate) hop_bytes: Option<u64>,
}

const PLACEMENTS: OptionType = OptionType::Choice(&["auto", "device", "cached", "host"]);

/// The options as the registry lists them.
pub(crate) const SPECS: [OptionSpec; 11] = [
    OptionSpec::new("topology", PLACEMENTS, "auto", "placement of the topology"),
    OptionSpec::new(
        "topology_bytes",
        OptionType::Count,
        "half of the free device memory, then planned",
        "device memory of the topology",
    )
    .such_as(&["1048576"])
    .of_budget(OptionRole::DeviceBudget),
    OptionSpec::new(
        "cache",
        OptionType::Text,
        "auto",
        "what ranks the CSR rows that are cached: auto pre-samples, none caches none, or a hotness policy",
    )
    .such_as(&["none", "in-degree"])
    .of_cache_policy(),
    OptionSpec::new(
        "cache_bytes",
        OptionType::Count,
        "topology_bytes",
        "device memory of cached CSR rows and their tables",
    )
    .such_as(&["65536"])
    .of_budget(OptionRole::CacheBytes),
    OptionSpec::new("peers", OptionType::Places, "none", "other devices that cache CSR rows: none, all, or places"),
    OptionSpec::new("presample_epochs", OptionType::Count, "1", "epochs pre-sampled to rank CSR rows, with cache auto")
        .in_unit("epochs"),
    OptionSpec::new("presample_batches", OptionType::Count, "all", "maximum mini-batches of each such epoch")
        .such_as(&["1"])
        .in_unit("mini-batches"),
    OptionSpec::new("in_flight", OptionType::Count, "2", "mini-batches of a worker in flight, 1 to 16")
        .such_as(&["1", "16"])
        .in_unit("mini-batches"),
    OptionSpec::new("lines", OptionType::Count, "1536", "128-byte lines of host memory that are in flight at a time")
        .such_as(&["1", "3072"])
        .in_unit("lines"),
    OptionSpec::new(
        "hop_bytes",
        OptionType::Count,
        "1/256 of the device memory",
        "memory of a hop above which the host queries its size first",
    )
    .such_as(&["1", "1048576"])
    .in_unit("bytes"),
    OptionSpec::new(
        "order",
        OptionType::Choice(&["auto", "nodes", "pages"]),
        "auto",
        "lists in host memory as the mini-batch lists its nodes, or by their addresses; auto measures both",
    ),
];

/// Those of walks and of sampling by edge type: all but the order of lists, which hops of neighbours alone are read in.
pub(crate) const SPECS_WITHOUT_ORDER: &[OptionSpec] = SPECS.split_at(SPECS.len() - 1).0;

impl Default for Options {
    fn default() -> Self {
        Self {
            topology: TopologyPlacement::Auto,
            topology_bytes: None,
            cache: CachePolicy::Auto,
            cache_bytes: None,
            peers: Value::Null,
            presample_epochs: 1,
            presample_batches: None,
            in_flight: 2,
            lines: 1536,
            order: Order::Auto,
            hop_bytes: None,
        }
    }
}

impl Options {
    /// Parses options of a kind's operator; `null` gives the defaults.
    pub(crate) fn read(kind: &Kind, value: &Value) -> Result<Self> {
        let key = &kind.key;
        let options = Option::<Self>::deserialize(value);
        let options = options.map_err(|e| Error::setting(key, format!("options: {e}; correct them")))?;
        let options = options.unwrap_or_default();
        if options.in_flight == 0 || options.in_flight > 16 {
            let message = format!("options: in_flight is {}; give 1 to 16", options.in_flight);
            return Err(Error::setting(key, message));
        }
        if options.lines == 0 {
            return Err(Error::setting(key, "options: lines: with none in flight no list is read; give at least 1"));
        }
        if options.presample_epochs == 0 || options.presample_batches == Some(0) {
            let message = "options: pre-sampling needs a mini-batch; give at least 1";
            return Err(Error::setting(key, message));
        }
        if (kind.walks().is_some() || kind.key == TYPED.key) && options.order != Order::Auto {
            let message =
                "options: order: steps of walks and sub-rows of edge types are read in no other order; leave it out";
            return Err(Error::setting(key, message));
        }
        if matches!(options.cache, CachePolicy::Lru | CachePolicy::Sieve) {
            let message = format!(
                "options: cache {}: CSR rows on a device stay as they were filled; name a hotness policy",
                options.cache
            );
            return Err(Error::setting(key, message));
        }
        if options.cache == CachePolicy::None && options.topology == TopologyPlacement::Cached {
            let message = "options: topology cached with cache none caches nothing; give topology host, or a policy";
            return Err(Error::setting(key, message));
        }
        Ok(options)
    }
}

/// Options that choose a graph's memory: placement, bytes of device memory, and what ranks cached rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    pub(crate) placement: TopologyPlacement,
    pub(crate) bytes: Option<u64>,
    pub(crate) cache: CachePolicy,
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) peers: Value,
    /// Whether the ends of sub-rows come with the graph, and whether times do.
    pub(crate) by_type: bool,
    pub(crate) by_time: bool,
}

impl Request {
    pub(crate) fn of(options: &Options, kind: &Kind) -> Self {
        let typed = kind.typed.as_ref();
        let (by_type, by_time) =
            (typed.is_some_and(|typed| typed.ends.is_some()), typed.is_some_and(|typed| typed.is_timed()));
        let Options { topology: placement, topology_bytes: bytes, cache, cache_bytes, .. } = *options;
        Self { placement, bytes, cache, cache_bytes, peers: options.peers.clone(), by_type, by_time }
    }

    /// Whether the same rows are cached, on whichever devices: each names the others as its peers.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        let other = Self { peers: self.peers.clone(), ..other.clone() };
        *self == other
    }

    /// Whether a graph made by `other` serves. Without a policy and size of its own, as for evaluation, it takes what is there, also
    /// where the size was planned: mini-batches do not depend on what is cached.
    pub(crate) fn is_served_by(&self, other: &Self) -> bool {
        let asks_for_no_cache = self.cache == CachePolicy::Auto && self.cache_bytes.is_none();
        let same_cache = (self.cache, self.cache_bytes) == (other.cache, other.cache_bytes);
        let same_bytes = self.bytes == other.bytes || asks_for_no_cache && self.bytes.is_none();
        (self.placement, &self.peers, self.by_type, self.by_time)
            == (other.placement, &other.peers, other.by_type, other.by_time)
            && same_bytes
            && (same_cache || asks_for_no_cache)
    }
}
