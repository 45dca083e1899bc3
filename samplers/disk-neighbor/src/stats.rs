//! Statistics of all workers of an operator.

use std::time::Duration;

use morphgl_platform::direct::Stats;

/// Statistics of all workers of an operator so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Mini-batches sampled.
    pub batches: u64,
    /// Reads of offsets, if these are not in memory.
    pub offsets: Stats,
    /// Reads of types and times of edges, if these are not in memory, and of the rows of their features.
    pub edge_types: Stats,
    /// Reads of neighbours.
    pub neighbors: Stats,
    /// Reads of feature rows.
    pub features: Stats,
    /// Cache hits of the expanded rows.
    pub row_hits: Hits,
    /// Cache hits of the feature rows.
    pub feature_hits: Hits,
    /// Time in which the mini-batches were made, of all workers together.
    pub preparing: Duration,
    /// The part of it in which they read, waiting for the disk included.
    pub reading: Duration,
}

/// Cache hits and misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hits {
    /// Requested rows in the cache.
    pub hits: u64,
    /// Requested rows not in the cache.
    pub misses: u64,
}

impl Counts {
    /// Reads of all kinds.
    pub fn reads(&self) -> Stats {
        self.offsets + self.edge_types + self.neighbors + self.features
    }
}
