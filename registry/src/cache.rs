//! Caches of operators, and what other sizes of them would save.

use serde::{Deserialize, Serialize};

/// The cache of a batching operator in host memory, and the seconds that it would save with other sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheCurve {
    /// Bytes that the operator holds besides its workers: the cache with all that it needs. Built with another value of its
    /// option of [`OptionRole::HostBudget`](crate::OptionRole::HostBudget), it holds at most so many.
    pub bytes: u64,
    /// Seconds that building the operator took.
    pub build_seconds: f64,
    /// Mean seconds in which a worker made a mini-batch with this size, of the mini-batches that tell what sizes save; 0 before
    /// the first.
    pub batch_seconds: f64,
    /// What sizes save, by ascending bytes; between two points linearly. Empty where the size cannot be chosen.
    pub points: Vec<CachePoint>,
}

/// What a cache of one size saves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CachePoint {
    /// Bytes that the operator holds, as in [`CacheCurve::bytes`].
    pub bytes: u64,
    /// Expected seconds that one worker saves a mini-batch; a larger cache saves no less. Only differences between points count.
    pub saved_seconds: f64,
}
