//! Mini-batches of random walks equal the reference's on any graph, with any settings and placement of the topology.

mod common;

use common::{available, check, check_everywhere, host, placements, reordered, sampler};
use morphgl_batching_cuda_neighbor::CudaSampler;
use morphgl_conformance::batching::{Case, graphs, strategy};
use morphgl_registry::{BatchId, Batching, Sampling, WalkSettings};
use proptest::prelude::*;
use serde_json::json;

fn walks(case: &Case, walk: WalkSettings) -> Case {
    case.with(|s| s.sampling = Sampling::Walk(walk))
}

fn walk(layers: usize, walks: u32, length: u32, restart: f64, neighbors: u32) -> WalkSettings {
    WalkSettings { layers, walks, length, restart, neighbors }
}

/// Few and many steps; all and few of the nodes visited are kept.
fn settings() -> impl Strategy<Value = WalkSettings> {
    let steps = prop_oneof![3 => (1u32..12, 1u32..6), 1 => (8u32..20, 8u32..20)];
    let restart = prop_oneof![Just(0.0), Just(1.0), 0.0..1.0];
    let neighbors = prop_oneof![1u32..6, Just(1000)];
    (1usize..4, steps, restart, neighbors)
        .prop_map(|(layers, (walks, length), restart, neighbors)| walk(layers, walks, length, restart, neighbors))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..Default::default() })]

    #[test]
    fn batches_are_the_reference_s(case in strategy::case(), settings in settings()) {
        if !available() {
            return Ok(());
        }
        check_everywhere(&walks(&case, settings));
    }
}

/// The most steps whose visits are compared with each other, and one more; as many as fit shared memory, and more; one walk, one
/// step, and more walks than a block has threads.
#[test]
fn numbers_of_steps() {
    if !available() {
        return;
    }
    let case = Case::new(graphs::random(900, 5, true)).of(&[3, 0, 9, 0]);
    let numbers = [(1, 1), (128, 1), (1, 128), (129, 1), (43, 3), (1, 129), (300, 2), (3072, 1), (3, 1025), (1, 5000)];
    for (i, (of, length)) in numbers.into_iter().enumerate() {
        let case = walks(&case, walk(1, of, length, 0.01, 40));
        for (j, case) in [reordered(&case), case].into_iter().enumerate() {
            check(&case, placements(&case)[(i + j) % 5].take());
        }
    }
}

/// Mini-batches of thousands of rows: several blocks, and several rounds of rows per block.
#[test]
fn large_mini_batches_use_several_blocks() {
    if !available() {
        return;
    }
    let case = Case::new(graphs::random(3000, 12, false)).with(|s| s.batch_size = 1000);
    for settings in [WalkSettings::of_layers(2), walk(1, 50, 3, 0.2, 7)] {
        let case = walks(&case, settings);
        let [device, host, ..] = placements(&case);
        [device, host].into_iter().for_each(|options| check(&case, options));
    }
}

/// A step reads a row; on a ring, walks without a restart take all of them.
#[test]
fn accesses_are_counted() {
    if !available() {
        return;
    }
    for settings in [walk(2, 4, 3, 0.0, 5), walk(1, 50, 3, 0.0, 5)] {
        let (hops, steps) = (settings.layers, (settings.walks * settings.length) as f32);
        let case = walks(&Case::new(graphs::cycle(90)), settings);
        let sampler = sampler(&case, json!({}));
        let counted = sampler.presample(1).expect("counted");
        let (mut features, mut walked) = (vec![0f32; 90], 0);
        for index in 0..sampler.num_batches() as u32 {
            let batch = common::expected(&case, BatchId { epoch: u32::MAX, index });
            batch.input_nodes.iter().for_each(|&v| features[v as usize] += 1.0);
            walked += batch.blocks.iter().map(|block| block.num_dst).sum::<usize>();
        }
        assert_eq!(&*counted.features, &features[..]);
        assert_eq!(counted.rows.iter().sum::<f32>(), walked as f32 * steps, "{hops} hops");
    }
}

/// Hot rows are cached by the accesses of walks; policies that read fanouts are refused, with the cure, and an order of lists.
#[test]
fn rows_are_cached_by_accesses() {
    if !available() {
        return;
    }
    let case = walks(&Case::new(graphs::random(500, 8, false)), WalkSettings::of_layers(2));
    let budget = 12 * 500 + case.dataset.topology.num_edges();
    for cache in ["auto", "in-degree", "presample:2"] {
        let options = json!({"topology": "cached", "topology_bytes": budget, "cache": cache});
        let cached = sampler(&case, options.clone());
        assert!((12 * 500 + 1..=budget).contains(&cached.topology_bytes()), "{cache}: {}", cached.topology_bytes());
        check(&case, options);
    }
    let planned = sampler(&case, json!({"topology": "cached"}));
    assert!(planned.cache().is_some_and(|curve| curve.points.len() > 2), "other sizes are measured");
    for (options, reason) in [
        (
            json!({"topology": "cached", "topology_bytes": budget, "cache": "inclusion"}),
            "sampling by walk has no fanouts; estimate it by pre-sampling",
        ),
        (json!({"order": "pages"}), "Batching_CUDA+PCIe_Walk: options: order: steps of walks"),
    ] {
        let error = CudaSampler::new(&common::context(&case, options)).expect_err("refused").to_string();
        assert!(error.contains(reason), "{error}");
    }
}

/// Edge weights are not read, but for degrees; edges have importance.
#[test]
fn importance_is_marked() {
    if !available() {
        return;
    }
    let case = walks(&Case::new(graphs::random(300, 9, true)), WalkSettings::of_layers(2));
    let mut worker = sampler(&case, json!({})).worker(1).expect("a worker");
    let batch = worker.prepare(BatchId { epoch: 0, index: 0 }, None).and_then(|h| h.wait()).expect("a mini-batch").0;
    let batch = host(&batch);
    let visits =
        |block: &morphgl_registry::Block| block.weights.iter().flatten().all(|v| *v >= 1.0 && v.fract() == 0.0);
    assert!(batch.blocks.iter().all(|block| block.importance && visits(block)), "{batch:?}");
}
