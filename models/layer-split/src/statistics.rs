//! What layer-split training has computed and given.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// What the first layer's thread has done for one super-batch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SuperBatchStatistics {
    /// Its number.
    pub super_batch: u64,
    /// The hot ratio by which its nodes were chosen.
    pub ratio: f64,
    /// Nodes of the first layer that occur in it and may be given.
    pub nodes: u64,
    /// Those of them that are given.
    pub hot: u64,
    /// How often mini-batches have one of these nodes.
    pub occurrences: u64,
    /// How often they have one that is given.
    pub given: u64,
    /// Seconds of choosing the nodes.
    pub choosing: f64,
    /// Seconds of computing the rows.
    pub computing: f64,
}

/// One bin of the histogram of staleness: mini-batches whose given rows were equally stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct StaleRows {
    /// Their staleness: steps between the parameters that rows were computed with and those that they were used with.
    pub steps: u64,
    /// Number of these mini-batches.
    pub batches: u64,
    /// Number of their given rows.
    pub rows: u64,
}

#[derive(Debug, Default)]
struct Collected {
    super_batches: Vec<SuperBatchStatistics>,
    /// Seconds for which transfers waited for rows.
    waited: f64,
    /// By steps.
    staleness: BTreeMap<u64, StaleRows>,
}

/// What was computed and given so far.
#[derive(Debug, Clone, Default)]
pub struct SplitStatistics(Arc<Mutex<Collected>>);

impl SplitStatistics {
    /// The super-batches whose rows were computed.
    pub fn all(&self) -> Vec<SuperBatchStatistics> {
        self.lock().super_batches.clone()
    }

    /// The histogram of staleness, ascending.
    pub fn staleness(&self) -> Vec<StaleRows> {
        self.lock().staleness.values().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, statistics: SuperBatchStatistics) {
        self.lock().super_batches.push(statistics);
    }

    /// Seconds for which transfers have waited for rows.
    pub(crate) fn waited(&self) -> f64 {
        self.lock().waited
    }

    /// Adds a mini-batch that was given so many rows, after a wait of so many seconds.
    pub(crate) fn read(&self, steps: u64, rows: u64, waited: f64) {
        let mut collected = self.lock();
        collected.waited += waited;
        let stale = collected.staleness.entry(steps).or_insert(StaleRows { steps, ..StaleRows::default() });
        stale.batches += 1;
        stale.rows += rows;
    }
}
