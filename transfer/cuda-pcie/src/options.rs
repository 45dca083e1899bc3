//! Options of the operator.

use morphgl_cuda::{Device, Order, Staging, peers};
use morphgl_hotness::CachePolicy;
use morphgl_registry::{Error, Key, OptionRole, OptionSpec, OptionType, Result};
use serde::Deserialize;
use serde_json::Value;

/// Which bytes of a row a warp loads at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Access {
    /// Whole lines, from the row's first line on.
    #[default]
    Aligned,
    /// From the row's first byte on, four bytes per lane: PyTorch-Direct's gather without its circular shift.
    Naive,
}

/// Options of the gather; see the README.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Options {
    /// What ranks the rows that are cached.
    pub(crate) cache: CachePolicy,
    /// Bytes of each device's memory for hot rows, on the gathering one including the lookup tables. Default half of its
    /// unallocated memory when the cache is filled, until a plan chooses.
    pub(crate) cache_bytes: Option<u64>,
    /// With `cache` auto, mini-batches whose accesses are counted before the cache is filled.
    pub(crate) presample: u32,
    /// Features stay on disk: bytes of host memory for the hottest of the rows that no device caches. `None` maps all features in
    /// host memory.
    pub(crate) host_bytes: Option<u64>,
    /// Lines of 128 bytes that are in flight over the bus at a time.
    pub(crate) lines: u32,
    /// In which order rows are read from host memory.
    pub(crate) order: Order,
    /// Which bytes of a row a warp loads at a time.
    pub(crate) access: Access,
    /// Other devices that hot rows are spread over: `"none"`, `"all"`, or a list of places.
    peers: Value,
    /// With peers, hottest rows of which every device holds a copy.
    pub(crate) replicated: Replicated,
}

/// Number of hottest rows of which every device of a pool holds a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) enum Replicated {
    /// As many as make the expected gather shortest.
    #[default]
    Auto,
    Rows(u32),
}

impl TryFrom<Value> for Replicated {
    type Error = String;

    fn try_from(value: Value) -> std::result::Result<Self, String> {
        match value.as_u64().map(u32::try_from) {
            Some(Ok(rows)) => Ok(Self::Rows(rows)),
            None if value == "auto" => Ok(Self::Auto),
            _ => Err(format!("replicated: {value}; give auto, or a number of rows below 2^32")),
        }
    }
}

pub(crate) const SPECS: [OptionSpec; 8] = [
    OptionSpec::new("cache", OptionType::Text, "auto", "what ranks the rows: auto, none or a hotness policy")
        .such_as(&["none", "in-degree"])
        .of_cache_policy(),
    OptionSpec::new(
        "cache_bytes",
        OptionType::Count,
        "half of the free device memory, then planned",
        "device memory of the row cache",
    )
    .such_as(&["65536"])
    .of_budget(OptionRole::CacheBytes),
    OptionSpec::new(
        "presample",
        OptionType::Count,
        "64",
        "mini-batches whose accesses rank the rows with cache auto; 0 caches nothing",
    )
    .such_as(&["0", "1"])
    .in_unit("mini-batches"),
    OptionSpec::new("lines", OptionType::Count, "768", "128-byte lines of host memory that are in flight at a time")
        .such_as(&["1", "3072"])
        .in_unit("lines"),
    OptionSpec::new(
        "order",
        OptionType::Choice(&["auto", "nodes", "pages"]),
        "auto",
        "rows as the mini-batch lists its nodes, or by their addresses in host memory; auto measures both",
    ),
    OptionSpec::new(
        "access",
        OptionType::Choice(&["aligned", "naive"]),
        "aligned",
        "whole 128-byte lines, or from a row's first byte on, the baseline",
    ),
    OptionSpec::new("peers", OptionType::Places, "none", "other devices that cache rows: none, all, or places"),
    OptionSpec::new(
        "replicated",
        OptionType::AutoOrCount,
        "auto",
        "hottest rows of which each of several devices holds a copy; auto chooses by measured seconds",
    )
    .such_as(&["0", "100"])
    .in_unit("rows"),
];

/// Host memory for rows of a dataset that is left on disk.
const HOST_BYTES: OptionSpec = OptionSpec::new(
    "host_bytes",
    OptionType::Count,
    "features in memory",
    "leaves features on disk, with so much host memory for the hottest rows that no device holds",
)
.such_as(&["1048576"])
.of_budget(OptionRole::HostBudget);

/// [`SPECS`], and the options for mini-batches of the host: the staging in pinned memory, and features on disk.
pub(crate) const STAGED_SPECS: [OptionSpec; SPECS.len() + 2] = {
    let mut specs = [Staging::DEPTH; SPECS.len() + 2];
    specs[SPECS.len() + 1] = HOST_BYTES;
    let mut i = 0;
    while i < SPECS.len() {
        specs[i] = SPECS[i];
        i += 1;
    }
    specs
};

/// Whether devices that reach each other's memory copy through the host's.
const THROUGH_HOST: OptionSpec = OptionSpec::new(
    "through_host",
    OptionType::Bool,
    "false",
    "copies through pinned host memory even where the devices reach each other's memory",
);

/// [`SPECS`], and the way of mini-batches from another device.
pub(crate) const PEER_SPECS: [OptionSpec; SPECS.len() + 1] = {
    let mut specs = [THROUGH_HOST; SPECS.len() + 1];
    let mut i = 0;
    while i < SPECS.len() {
        specs[i] = SPECS[i];
        i += 1;
    }
    specs
};

impl Default for Options {
    fn default() -> Self {
        Self {
            cache: CachePolicy::Auto,
            cache_bytes: None,
            presample: 64,
            host_bytes: None,
            lines: 768,
            order: Order::Auto,
            access: Access::Aligned,
            peers: Value::Null,
            replicated: Replicated::Auto,
        }
    }
}

impl Options {
    pub(crate) fn of(operator: &Key, value: &Value) -> Result<Self> {
        let options = Option::<Self>::deserialize(value);
        let options = options.map_err(|e| Error::setting(operator, format!("options: {e}")))?.unwrap_or_default();
        if options.lines == 0 {
            return Err(Error::setting(
                operator,
                "options: lines: with none in flight no row is read; give at least 1",
            ));
        }
        Ok(options)
    }

    /// Opens the peers, all of which `device` must have access to.
    pub(crate) fn peers(&self, operator: &Key, device: &Device) -> Result<Vec<Device>> {
        peers(operator, device, &self.peers)
    }
}
