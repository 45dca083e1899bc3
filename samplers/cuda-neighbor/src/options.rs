//! Options of the operator.

use morphgl_registry::{Error, OptionRole, OptionSpec, OptionType, Result};
use serde::{Deserialize, Serialize};

use crate::KEY;

/// Placement of the topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
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

/// Options in [`morphgl_registry::BatchingContext::options`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Placement of the topology. Default auto.
    pub topology: TopologyPlacement,
    /// Bytes of device memory for the topology, look-up tables included. Default half of what is free.
    pub topology_bytes: Option<u64>,
    /// Epochs pre-sampled to find the hot rows. Default 1.
    pub presample_epochs: u32,
    /// Maximum mini-batches sampled per such epoch. Default all.
    pub presample_batches: Option<u32>,
    /// Mini-batches in flight per worker, each on a stream of its own. Default 2.
    pub in_flight: usize,
    /// Bytes that a hop may take by its upper bound; beyond, the host queries its size first. Default 1/256 of the
    /// device's memory, at least 64 MiB.
    pub hop_bytes: Option<u64>,
}

/// The options as the registry lists them.
pub(crate) const SPECS: [OptionSpec; 6] = [
    OptionSpec::new(
        "topology",
        OptionType::Choice(&["auto", "device", "cached", "host"]),
        "auto",
        "where the topology lies",
    ),
    OptionSpec::new(
        "topology_bytes",
        OptionType::Count,
        "half of the free device memory",
        "device memory of the topology",
    )
    .of_budget(OptionRole::DeviceBudget),
    OptionSpec::new("presample_epochs", OptionType::Count, "1", "epochs sampled beforehand to rank CSR rows")
        .in_unit("epochs"),
    OptionSpec::new("presample_batches", OptionType::Count, "all", "mini-batches of these epochs sampled at most")
        .in_unit("mini-batches"),
    OptionSpec::new("in_flight", OptionType::Count, "2", "mini-batches of a worker on the device at a time, 1 to 16")
        .in_unit("mini-batches"),
    OptionSpec::new(
        "hop_bytes",
        OptionType::Count,
        "1/256 of the device memory",
        "memory a hop may take without asking for its size first",
    )
    .in_unit("bytes"),
];

impl Default for Options {
    fn default() -> Self {
        Self {
            topology: TopologyPlacement::Auto,
            topology_bytes: None,
            presample_epochs: 1,
            presample_batches: None,
            in_flight: 2,
            hop_bytes: None,
        }
    }
}

impl Options {
    /// Parses options; `null` gives the defaults.
    ///
    /// # Errors
    ///
    /// An unknown option or an invalid value.
    pub fn read(value: &serde_json::Value) -> Result<Self> {
        let options = Option::<Self>::deserialize(value);
        let options = options.map_err(|e| Error::setting(&KEY, format!("options: {e}; correct them")))?;
        let options = options.unwrap_or_default();
        if options.in_flight == 0 || options.in_flight > 16 {
            let what = format!("options: in_flight is {}; give 1 to 16", options.in_flight);
            return Err(Error::setting(&KEY, what));
        }
        if options.presample_epochs == 0 || options.presample_batches == Some(0) {
            let what = "options: pre-sampling needs a mini-batch; give at least 1";
            return Err(Error::setting(&KEY, what));
        }
        Ok(options)
    }
}
