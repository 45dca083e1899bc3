//! Pre-sampling and hindsight against counts made by hand, with a real sampler.

mod common;

use std::sync::Arc;

use common::{any_graph, graph, sampler, settings};
use morphgl_conformance::fake::{Fake, Fault};
use morphgl_graph_store::Topology;
use morphgl_hotness::{Hindsight, Hotness, Inclusion, Policy, PreSample, Smoothed, WeightedReversePageRank};
use morphgl_registry::{BatchId, Batching, SamplerSettings, Sampling, WalkSettings};
use proptest::prelude::*;

#[test]
fn a_star_by_hand() {
    // Node 0 has the in-neighbours 1 to 4, node 1 has 0.
    let star = graph(5, &[(1, 0), (2, 0), (3, 0), (4, 0), (0, 1)]);
    // All neighbours of two hops, so every epoch is the same: a mini-batch of node 0, and one of node 2.
    let settings = settings("-1,-1", 1);
    let sampler = sampler(&star, &[0, 2], &settings);
    let expected = |scale: f32| Hotness {
        features: [1.0, 1.0, 2.0, 1.0, 1.0].map(|count| scale * count).into(),
        // Node 0 is expanded by both hops, node 1 by the second one.
        rows: [2.0, 1.0, 0.0, 0.0, 0.0].map(|count| scale * count).into(),
    };
    for threads in [1, 2, 3, 8] {
        for epochs in [1, 2, 5] {
            let counted = PreSample { batching: &sampler, epochs, batches: None, threads };
            assert_eq!(counted.score(&star, &[0, 2], &settings).expect("counts"), expected(1.0));
            let trained = Hindsight { batching: &sampler, epochs: 7..7 + epochs, threads };
            assert_eq!(trained.score(&star, &[0, 2], &settings).expect("counts"), expected(1.0));
        }
    }
    // The first mini-batch of two alone, scaled to both: which one it is depends on the shuffled order.
    let first = PreSample { batching: &sampler, epochs: 1, batches: Some(1), threads: 3 };
    let first = first.score(&star, &[0, 2], &settings).expect("counts");
    let of_node_0 = Hotness { features: [2.0; 5].into(), rows: [4.0, 2.0, 0.0, 0.0, 0.0].into() };
    let of_node_2 = Hotness { features: [0.0, 0.0, 2.0, 0.0, 0.0].into(), rows: [0.0; 5].into() };
    assert!(first == of_node_0 || first == of_node_2, "{first:?}");
}

#[test]
fn counts_of_walks_are_smoothed_by_page_rank() {
    let ring: Vec<(u32, u32)> = (0..40).flat_map(|v| [(v, (v + 1) % 40), (v, v * 7 % 40)]).collect();
    let ring = graph(40, &ring);
    let walks = SamplerSettings { sampling: Sampling::Walk(WalkSettings::of_layers(2)), ..settings("3,3", 2) };
    let seeds = [1, 2, 3];
    // Any counts serve: those of neighbour sampling.
    let counting = settings("3,3", 2);
    let sampler = sampler(&ring, &seeds, &counting);
    let counted = PreSample { batching: &sampler, epochs: 1, batches: None, threads: 1 };
    let num_counted = counted.num_counted() as f32;
    let counted = counted.score(&ring, &seeds, &counting).expect("counts");
    let prior = WeightedReversePageRank::default().score(&ring, &seeds, &walks).expect("scores");
    let smoothed = Smoothed::mix(counted.clone(), num_counted.into(), &ring, &seeds, &walks).expect("scores");
    let scale = counted.features.iter().sum::<f32>() / prior.features.iter().sum::<f32>();
    for ((smoothed, counted), prior) in smoothed.features.iter().zip(&*counted.features).zip(&*prior.features) {
        let mean = (num_counted * counted + 4.0 * scale * prior) / (num_counted + 4.0);
        assert!((smoothed - mean).abs() < 1e-5, "{smoothed} for {mean}");
    }
}

#[test]
fn smoothed_counts_are_a_weighted_mean_with_the_inclusion_probability() {
    let star = graph(6, &[(1, 0), (2, 0), (3, 0), (4, 0), (0, 1), (5, 2), (3, 2)]);
    let (seeds, settings) = ([0, 2], settings("2,1", 1));
    let sampler = sampler(&star, &seeds, &settings);
    let inclusion = Inclusion.score(&star, &seeds, &settings).expect("scores");
    for (epochs, batches, num_counted) in [(1, None, 2.0), (4, None, 8.0), (3, Some(1), 3.0)] {
        let counting = PreSample { batching: &sampler, epochs, batches, threads: 2 };
        let counted = counting.score(&star, &seeds, &settings).expect("counts");
        let smoothed = Smoothed(counting).score(&star, &seeds, &settings).expect("scores");
        let check = |smoothed: &[f32], counted: &[f32], prior: &[f32]| {
            for ((smoothed, counted), prior) in smoothed.iter().zip(counted).zip(prior) {
                let mean = (num_counted * counted + 4.0 * prior) / (num_counted + 4.0);
                assert!((smoothed - mean).abs() < 1e-6, "{smoothed} for {mean}, {epochs} epochs");
            }
        };
        check(&smoothed.features, &counted.features, &inclusion.features);
        check(&smoothed.rows, &counted.rows, &inclusion.rows);
    }
}

/// Counts the mini-batches one by one.
fn count(batching: &dyn Batching, num_nodes: usize, ids: &[BatchId], scale: f64) -> Hotness {
    let (mut features, mut rows) = (vec![0u64; num_nodes], vec![0u64; num_nodes]);
    for &id in ids {
        let mut worker = batching.worker(1).expect("a worker");
        let (batch, _) = worker.prepare(id, None).expect("prepared").wait().expect("a mini-batch");
        let batch = batch.host().expect("in memory");
        batch.input_nodes.iter().for_each(|&v| features[v as usize] += 1);
        for block in &batch.blocks {
            for row in 0..block.num_dst {
                rows[batch.input_nodes[row] as usize] += u64::from(block.indptr[row + 1] > block.indptr[row]);
            }
        }
    }
    let scaled = |counts: Vec<u64>| counts.into_iter().map(|c| (c as f64 * scale) as f32).collect();
    Hotness { features: scaled(features), rows: scaled(rows) }
}

fn ids(epochs: impl IntoIterator<Item = u32>, batches: usize) -> Vec<BatchId> {
    epochs.into_iter().flat_map(|epoch| (0..batches as u32).map(move |index| BatchId { epoch, index })).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn counts_are_those_of_the_mini_batches_on_any_number_of_threads(
        (num_nodes, edges) in any_graph(),
        epochs in 1u32..4,
        batches in 1usize..6,
        batch_size in 1usize..5,
    ) {
        let graph = graph(num_nodes, &edges);
        let seeds: Vec<u32> = (0..num_nodes as u32).step_by(2).collect();
        let settings = settings("2,3", batch_size);
        let sampler = sampler(&graph, &seeds, &settings);
        let all = sampler.num_batches();
        let counted = batches.min(all);
        let scale = all as f64 / (counted as f64 * f64::from(epochs));
        // The last epochs of the counter, which are not trained.
        let expected = count(&sampler, num_nodes, &ids((0..epochs).map(|e| u32::MAX - e), counted), scale);
        let trained = count(&sampler, num_nodes, &ids(3..3 + epochs, all), 1.0 / f64::from(epochs));
        for threads in [1, 2, 3, 8] {
            let policy = PreSample { batching: &sampler, epochs, batches: Some(batches), threads };
            prop_assert_eq!(&policy.score(&graph, &seeds, &settings).expect("counts"), &expected);
            let policy = Hindsight { batching: &sampler, epochs: 3..3 + epochs, threads };
            prop_assert_eq!(&policy.score(&graph, &seeds, &settings).expect("counts"), &trained);
        }
    }
}

fn ring(num_nodes: u32) -> (Topology, Vec<u32>, SamplerSettings) {
    let edges: Vec<(u32, u32)> = (0..num_nodes).map(|v| ((v + 1) % num_nodes, v)).collect();
    (graph(num_nodes as usize, &edges), (0..num_nodes).collect(), settings("1", 1))
}

#[test]
fn a_failing_sampler_ends_the_count() {
    let (graph, seeds, settings) = ring(2000);
    let log = Arc::default();
    let mut failing = Fake { num_batches: 2000, content: Arc::new(|_| ()), ..Fake::new("Batching_CPU_Fake", &log) };
    failing.fails(|call| (call.batch.id.index == 3).then_some(Fault::Error("the disk fails at mini-batch 3")));
    let policy = PreSample { batching: &failing, epochs: 5, batches: None, threads: 1 };
    let error = policy.score(&graph, &seeds, &settings).expect_err("fails").to_string();
    assert!(error.contains("the disk fails at mini-batch 3"), "{error}");
    assert_eq!(log.record().prepared.len(), 4, "none after it");
    let policy = PreSample { threads: 4, ..policy };
    let error = policy.score(&graph, &seeds, &settings).expect_err("fails").to_string();
    assert!(error.contains("the disk fails at mini-batch 3"), "{error}");
}

#[test]
fn counts_of_nothing_and_of_another_graph_are_refused() {
    let (graph, seeds, settings) = ring(6);
    let sampler = sampler(&graph, &seeds, &settings);
    let (smaller, ..) = ring(5);
    let refused = |graph: &Topology, policy: &dyn Policy, expected: &str| {
        let error = policy.score(graph, &seeds, &settings).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    };
    let policy = PreSample { batching: &sampler, epochs: 1, batches: None, threads: 2 };
    refused(&graph, &PreSample { epochs: 0, ..policy }, "0 epochs have no accesses; give at least 1");
    refused(&graph, &PreSample { batches: Some(0), ..policy }, "0 mini-batches of 1 epochs");
    refused(&graph, &PreSample { threads: 0, ..policy }, "0 threads count nothing");
    refused(&graph, &PreSample { epochs: 1 << 23, ..policy }, "fewer than 16777216 can be counted");
    refused(&smaller, &policy, "has node 5, the graph 5 nodes; give a sampler of this graph");
    refused(&graph, &Hindsight { batching: &sampler, epochs: 4..4, threads: 1 }, "0 epochs have no accesses");
}

/// Four seeds in mini-batches of one; node 1 is three of them.
#[test]
fn a_seed_that_repeats_is_hotter() {
    let (topology, _, settings) = ring(4);
    let settings = SamplerSettings { batch_size: 1, ..settings };
    let rows = |seeds: &[u32]| {
        let score = |policy: &dyn Policy| policy.score(&topology, seeds, &settings).expect("a score");
        (score(&Inclusion), score(&WeightedReversePageRank::default()))
    };
    let ((inclusion, rank), (_, once)) = (rows(&[1, 0, 1, 1]), rows(&[0, 1]));
    // The probability that three draws of a fourth meet node 1, times four mini-batches.
    let expected = 4.0 * (1.0 - 0.75f32.powi(3));
    assert!((inclusion.rows[1] - expected).abs() < 1e-5 && inclusion.rows[0] == 1.0, "{:?}", inclusion.rows);
    // PageRank starts from scores of the same sum, more of it at node 1.
    let sum = |hotness: &Hotness| hotness.features.iter().sum::<f32>();
    assert!((sum(&rank) - sum(&once)).abs() < 1e-5 && rank != once, "{:?}", rank.features);
}
