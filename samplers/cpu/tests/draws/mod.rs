//! Draws compared with their exact probabilities.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use morphgl_conformance::batching::graphs;
use morphgl_registry::{BatchId, Batching, BatchingContext, HostBatch, Result, SamplerSettings, SeedSet};

/// Mini-batches drawn.
const TRIALS: u32 = 200_000;

/// Draws mini-batches of node 0 of the graph `rows`, each of another epoch, and compares how often each outcome is drawn with its
/// probability.
#[track_caller]
pub(crate) fn check<S: Batching, K: Debug + Eq + Hash>(
    rows: &[&[u32]],
    settings: SamplerSettings,
    sampler: impl Fn(&BatchingContext) -> Result<S>,
    outcome: impl Fn(&HostBatch) -> K,
    expected: &HashMap<K, f64>,
) {
    let seeds = SeedSet::new("seeds", &[0], rows.len()).expect("node 0");
    let rows: Vec<Vec<u32>> = rows.iter().map(|row| row.to_vec()).collect();
    let context = BatchingContext::new(Arc::new(graphs::dataset(&rows, None)), seeds, settings);
    let sampler = sampler(&BatchingContext { gather: false, ..context });
    let mut worker = sampler.and_then(|sampler| sampler.worker(1)).expect("a worker");
    let mut counts: HashMap<K, u32> = HashMap::new();
    for epoch in 0..TRIALS {
        let handle = worker.prepare(BatchId { epoch, index: 0 }, None).expect("a mini-batch");
        let (batch, _) = handle.wait().expect("a mini-batch");
        *counts.entry(outcome(batch.host().expect("in host memory"))).or_default() += 1;
    }
    assert!(counts.keys().all(|found| expected.contains_key(found)), "impossible outcomes: {counts:?}");
    let statistic: f64 = expected
        .iter()
        .map(|(found, p)| {
            let (count, mean) = (f64::from(counts.get(found).copied().unwrap_or(0)), p * f64::from(TRIALS));
            (count - mean).powi(2) / mean
        })
        .sum();
    // Chi-square beyond mean + 4 deviations has a probability below 1e-3 at these degrees of freedom.
    let freedom = (expected.len() - 1) as f64;
    assert!(statistic < freedom + 4.0 * (2.0 * freedom).sqrt(), "{statistic} with {freedom} degrees of freedom");
}
