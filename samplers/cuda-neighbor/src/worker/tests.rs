use morphgl_conformance::batching::{Case, graphs, reference};
use morphgl_registry::{Batching, PairSettings, Sampling, ShadowSettings, WalkSettings};

use super::*;
use crate::CudaSampler;
use crate::without::Without;

/// A table is cleared before its stamps wrap around.
#[test]
fn stamps_run_out() {
    let case = Case { gather: false, ..Case::new(graphs::random(200, 6, false)) };
    let context = case.context("cuda:0".parse().expect("a place"), serde_json::Value::Null);
    let sampler = CudaSampler::new(&context);
    let mut worker = Worker::new(sampler.expect("built").shared(), 1).expect("a worker");
    let mut stamps = Vec::new();
    for epoch in 0..8 {
        let id = BatchId { epoch, index: 0 };
        let (batch, _) = worker.prepare(id, None).and_then(|h| h.wait()).expect("a mini-batch");
        let MiniBatch::Device(batch) = batch else { panic!("the mini-batch is on the device") };
        assert_eq!(batch.to_host().expect("a copy"), reference::sample(&case, id));
        let table = &mut worker.scratch[0].table;
        if epoch == 0 {
            table.stamp = (1 << (32 - table.value_bits)) - 3;
        }
        stamps.push(table.stamp);
    }
    assert_eq!(stamps[3..], [1, 2, 3, 4, 5], "{stamps:?}");
}

/// The memory of pairs, and of the rows that lose edges, keeps to the bound that the operator is admitted by, which hardly exceeds
/// what the largest mini-batch may take.
#[test]
fn pairs_keep_to_their_bound() {
    let settings = PairSettings { negatives: 3, ..PairSettings::default() };
    // All nodes are neighbours, and each is the end of one pair: as many rows as may be lose one edge each.
    let rows: Vec<Vec<u32>> = (0..60).map(|v| (0..60).filter(|&u| u != v).collect()).collect();
    let pairs: Vec<[u32; 2]> = (0..30).map(|i| [2 * i, 2 * i + 1]).collect();
    for weights in [false, true] {
        let weighted = weights.then(|| vec![1.0; 60 * 59]);
        let case = Case { gather: false, ..Case::new(graphs::dataset(&rows, weighted)) };
        let case = case.with(|s| s.batch_size = 8).of_pairs(&pairs, settings);
        let hops = case.settings.sampling.hops().expect("fanouts").clone();
        let shadow = case.with(|s| s.sampling = Sampling::Shadow(ShadowSettings { hops, layers: 2 }));
        let walk = case.with(|s| s.sampling = Sampling::Walk(WalkSettings::of_layers(2)));
        let kept = case.of_pairs(&pairs, PairSettings { exclude: false, ..settings });
        for (case, exclude) in [(case, true), (shadow, true), (walk, true), (kept, false)] {
            let options = serde_json::json!({"hop_bytes": 0, "in_flight": 1});
            let sampler = CudaSampler::new(&case.context("cuda:0".parse().expect("a place"), options)).expect("built");
            let source = sampler.shared().pairs.as_ref().expect("pairs");
            let bound = source.max_bytes(case.settings.batch_size, &sampler.shared().kind);
            assert_eq!(sampler.shared().max_batch_bytes(), bound, "no hop is allocated by its bound");
            let mut worker = Worker::new(sampler.shared(), 1).expect("a worker");
            let mut largest = 0;
            for index in 0..sampler.num_batches() as u32 {
                let id = BatchId { epoch: 0, index };
                let (batch, _) = worker.prepare(id, None).and_then(|h| h.wait()).expect("a mini-batch");
                let MiniBatch::Device(batch) = batch else { panic!("the mini-batch is on the device") };
                let batch = batch.to_host().expect("a copy");
                let own = worker.scratch[0].pairs.as_ref().expect("pairs");
                let Without { nodes, lists, .. } = &own.without;
                assert_eq!(own.without.any().is_some(), exclude);
                let edge = if weights { 8 } else { 4 };
                let rows = 20 * nodes.len() + edge * lists.len();
                let ends = batch.pairs.expect("pairs").ends.len();
                largest = largest.max((rows + 8 * ends + 4 * own.seeds.len()) as u64);
            }
            assert!((largest..=largest * 11 / 10).contains(&bound), "{largest} bytes of at most {bound}");
        }
    }
}
