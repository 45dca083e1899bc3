//! Mini-batches of any graph and settings equal the reference's, also in recycled memory.

use std::sync::Arc;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_conformance::batching::{Case, graphs, hops, reference};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Expansion, Fanout, Fanouts, HostBatch, MiniBatch, NeighborSettings, Pick,
    Place, SamplerSettings, SeedSet,
};
use proptest::prelude::*;

fn sampler(case: &Case) -> CpuNeighbor {
    let Case { dataset, seeds, settings, gather } = case.clone();
    let context = BatchingContext { dataset, seeds, settings, gather, place: Place::Host, options: Default::default() };
    CpuNeighbor::new(&context).expect("the case is valid")
}

fn settings() -> impl Strategy<Value = SamplerSettings> {
    let fanout = (0u32..7).prop_map(|k| std::num::NonZeroU32::new(k).map_or(Fanout::All, Fanout::AtMost));
    let fanouts = prop::collection::vec(fanout, 1..5);
    let choices = (any::<bool>(), any::<bool>(), any::<bool>());
    (fanouts, 1usize..12, any::<u64>(), choices).prop_map(|(fanouts, batch_size, seed, (new, weighted, shuffle))| {
        let hops = NeighborSettings {
            fanouts: Fanouts(fanouts),
            expansion: if new { Expansion::New } else { Expansion::All },
            pick: if weighted { Pick::Weighted } else { Pick::Uniform },
        };
        SamplerSettings { batch_size, seed, shuffle, ..hops.into() }
    })
}

fn case() -> impl Strategy<Value = Case> {
    let rows = (1u32..40).prop_flat_map(|n| {
        let row = prop::collection::vec(0..n, 0..15);
        (prop::collection::vec(row, n as usize), prop::sample::subsequence((0..n).collect::<Vec<_>>(), 1..=n as usize))
    });
    (rows, any::<bool>(), settings()).prop_map(|((rows, seeds), weights, mut settings)| {
        let num_edges = rows.iter().map(Vec::len).sum::<usize>();
        let weights = weights.then(|| (0..num_edges).map(|e| (e * 7 % 5) as f32 * 0.5).collect::<Vec<f32>>());
        if weights.is_none() {
            hops(&mut settings).pick = Pick::Uniform;
        }
        let dataset = Arc::new(graphs::dataset(&rows, weights));
        let seeds = SeedSet::new("seeds", &seeds, rows.len()).expect("a subsequence of the nodes");
        Case { dataset, seeds, settings, gather: true }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..Default::default() })]

    #[test]
    fn batches_are_the_reference_s(case in case(), epoch: u32, threads in 1usize..4) {
        let sampler = sampler(&case);
        let mut worker = sampler.worker(threads).expect("a worker");
        let mut recycled = None;
        for index in 0..sampler.num_batches() as u32 {
            let id = BatchId { epoch, index };
            let (batch, _) = worker.prepare(id, recycled.take()).and_then(|h| h.wait()).expect("a mini-batch");
            prop_assert_eq!(batch.host().expect("in host memory"), &reference::sample(&case, id));
            recycled = Some(batch);
        }
    }
}

/// Addresses of a mini-batch's lists.
fn addresses(batch: &HostBatch) -> Vec<*const u8> {
    let mut all: Vec<*const u8> = vec![
        batch.input_nodes.as_ptr().cast(),
        batch.degrees.as_ptr().cast(),
        batch.labels.as_ptr().cast(),
        batch.blocks.as_ptr().cast(),
        batch.features.as_ref().map_or(std::ptr::null(), |f| f.as_bytes().as_ptr()),
    ];
    for block in &batch.blocks {
        let weights = block.weights.as_ref().map_or(std::ptr::null(), |w| w.as_ptr().cast());
        all.extend([block.indptr.as_ptr().cast(), block.indices.as_ptr().cast(), weights]);
    }
    all
}

#[test]
fn a_recycled_mini_batch_keeps_its_memory() {
    let sampler = sampler(&Case::new(graphs::random(2000, 10, true)).with(|s| s.batch_size = 100));
    let mut worker = sampler.worker(1).expect("a worker");
    let mut prepare = |index, recycled| -> HostBatch {
        let id = BatchId { epoch: 0, index };
        let handle = worker.prepare(id, recycled).expect("a mini-batch");
        handle.wait().and_then(|(batch, _)| batch.into_host()).expect("a mini-batch in host memory")
    };
    let first = prepare(0, None);
    let (copy, at) = (first.clone(), addresses(&first));
    let again = prepare(0, Some(MiniBatch::Host(first)));
    assert_eq!((&again, addresses(&again)), (&copy, at));
}
