//! What the workers did together.

use std::sync::atomic::{AtomicU64, Ordering};

use morphgl_feature_cache::Hits;
use morphgl_platform::direct::Stats;

/// What all workers of an operator did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Mini-batches made.
    pub batches: u64,
    /// Reads of offsets, where these are not in memory.
    pub offsets: Stats,
    /// Reads of neighbours.
    pub neighbors: Stats,
    /// Reads of feature rows.
    pub features: Stats,
    /// How often a row to expand was in memory.
    pub row_hits: Hits,
    /// How often a feature row was in memory.
    pub feature_hits: Hits,
}

impl Counts {
    /// Reads of all kinds.
    pub fn reads(&self) -> Stats {
        let mut all = self.offsets;
        all += self.neighbors;
        all += self.features;
        all
    }
}

/// The same, added to by any worker.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    batches: AtomicU64,
    reads: [[AtomicU64; 3]; 3],
    rows: [AtomicU64; 2],
}

/// What is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Offsets,
    Neighbors,
    Features,
}

impl Counters {
    pub(crate) fn batch(&self) {
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rows(&self, hits: u64, misses: u64) {
        self.rows[0].fetch_add(hits, Ordering::Relaxed);
        self.rows[1].fetch_add(misses, Ordering::Relaxed);
    }

    /// Adds what a reader did between two states of its own count.
    pub(crate) fn read(&self, what: What, before: Stats, after: Stats) {
        let counters = &self.reads[what as usize];
        counters[0].fetch_add(after.reads - before.reads, Ordering::Relaxed);
        counters[1].fetch_add(after.bytes - before.bytes, Ordering::Relaxed);
        counters[2].fetch_add(after.wanted - before.wanted, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self, feature_hits: Hits) -> Counts {
        let load = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let reads = |what: What| {
            let [reads, bytes, wanted] = &self.reads[what as usize];
            Stats { reads: load(reads), bytes: load(bytes), wanted: load(wanted) }
        };
        Counts {
            batches: load(&self.batches),
            offsets: reads(What::Offsets),
            neighbors: reads(What::Neighbors),
            features: reads(What::Features),
            row_hits: Hits { hits: load(&self.rows[0]), misses: load(&self.rows[1]) },
            feature_hits,
        }
    }
}
