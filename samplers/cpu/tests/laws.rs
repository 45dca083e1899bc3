//! Mini-batches of any graph and settings equal the reference's, also in recycled memory.

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_conformance::batching::{Case, graphs, reference, strategy};
use morphgl_registry::{BatchId, Batching, HostBatch, MiniBatch, Place};
use proptest::prelude::*;
use serde_json::Value;

fn sampler(case: &Case) -> CpuNeighbor {
    CpuNeighbor::new(&case.context(Place::Host, Value::Null)).expect("the case is valid")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..Default::default() })]

    #[test]
    fn batches_are_the_reference_s(case in strategy::case(), epoch: u32, threads in 1usize..4) {
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..Default::default() })]

    #[test]
    fn batches_of_pairs_are_the_reference_s(
        case in strategy::case_of_pairs(), epoch: u32, threads in 1usize..4, share in 0usize..4,
    ) {
        let sampler = sampler(&case);
        let mut worker = sampler.worker(threads).expect("a worker");
        let mut recycled = None;
        for index in 0..sampler.num_batches() as u32 {
            let id = BatchId { epoch, index };
            let (batch, _) = worker.prepare(id, recycled.take()).and_then(|h| h.wait()).expect("a mini-batch");
            let whole = reference::sample(&case, id);
            prop_assert_eq!(batch.host().expect("in host memory"), &whole);
            let n = whole.pairs.map_or(0, |pairs| pairs.num_positives);
            let share = share % n..n;
            let part = worker.prepare_share(id, share.clone(), Some(batch)).and_then(|h| h.wait()).expect("a share").0;
            prop_assert_eq!(part.host().expect("in host memory"), &reference::sample_share(&case, id, share));
            recycled = Some(part);
        }
    }
}
