//! Caches of operators, and what other sizes of them would save.

use serde::{Deserialize, Serialize};

/// The cache of an operator, and the seconds that it would save with other sizes: of batching in the memory where it samples, of
/// transferring in the memory of the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheCurve {
    /// Bytes that the operator holds besides its workers: the cache with all that it needs. A batching operator built with another
    /// value of its option of [`OptionRole::HostBudget`](crate::OptionRole::HostBudget), on a device of
    /// [`OptionRole::DeviceBudget`](crate::OptionRole::DeviceBudget), holds at most so many, a transferring one
    /// after [`Transferring::resize_cache`](crate::Transferring::resize_cache).
    pub bytes: u64,
    /// Bytes that are free in the same memory, of which a larger cache, mini-batches and workers take; `None` where the planner
    /// knows them, as it does of host memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Seconds of building the operator again for another size.
    pub build_seconds: f64,
    /// Mean or median seconds of a mini-batch with this size, of the mini-batches that tell what sizes save; 0 before the first.
    pub batch_seconds: f64,
    /// What sizes save, by ascending bytes; between two points linearly. Empty where the size cannot be chosen.
    pub points: Vec<CachePoint>,
}

/// What a cache of one size saves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CachePoint {
    /// Bytes that the operator holds, as in [`CacheCurve::bytes`].
    pub bytes: u64,
    /// Expected seconds that the operator saves per mini-batch; a larger cache saves no less. Only differences between
    /// points count.
    pub saved_seconds: f64,
}
