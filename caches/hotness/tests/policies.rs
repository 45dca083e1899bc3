//! Policies against values computed by hand, and against counts.

mod common;

use common::{Scanned, any_graph, check, graph, sampler, settings};
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::Topology;
use morphgl_hotness::{Hindsight, Hotness, InDegree, Inclusion, OutDegree, Policy, PreSample, Random};
use morphgl_hotness::{PolicyKind, coverage, hottest};
use morphgl_platform::splitmix64;
use morphgl_registry::{Expansion, SamplerSettings};
use proptest::prelude::*;
use rayon::ThreadPoolBuilder;

fn expanding(expansion: Expansion, mut settings: SamplerSettings) -> SamplerSettings {
    settings.sampling.hops_mut().expect("sampling by fanouts").expansion = expansion;
    settings
}

#[test]
fn a_star_by_hand() {
    // Node 0 has the in-neighbours 1 to 4, node 1 has 0.
    let star = Topology::new(vec![0u64, 4, 5, 5, 5, 5], vec![1u32, 2, 3, 4, 0], None).expect("a graph");
    // Two mini-batches of one seed each: nodes 0 and 2.
    let Hotness { features, rows } = Inclusion.score(&star, &[0, 2], &settings("2", 1)).expect("scores");
    check(&features, &[1.0, 0.5, 1.25, 0.5, 0.5]);
    check(&rows, &[1.0, 0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn two_hops_by_hand() {
    // A path: 1 leads to 0, 2 leads to 1, 3 leads to 2.
    let path = Topology::new(vec![0u64, 1, 2, 3, 3], vec![1u32, 2, 3], None).expect("a graph");
    let all = Inclusion.score(&path, &[0], &settings("1,1", 1)).expect("scores");
    check(&all.features, &[1.0, 1.0, 1.0, 0.0]);
    check(&all.rows, &[2.0, 1.0, 0.0, 0.0]);
    let new = expanding(Expansion::New, settings("1,1", 1));
    let new = Inclusion.score(&path, &[0], &new).expect("scores");
    check(&new.features, &[1.0, 1.0, 1.0, 0.0]);
    check(&new.rows, &[1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn degrees_are_degrees() {
    let star = Topology::new(vec![0u64, 4, 5, 5, 5, 5], vec![1u32, 2, 3, 4, 0], None).expect("a graph");
    let Hotness { features, rows } = InDegree.score(&star, &[0], &settings("2", 1)).expect("scores");
    assert_eq!((&*features, &*rows), (&[4.0f32, 1.0, 0.0, 0.0, 0.0][..], &[4.0f32, 1.0, 0.0, 0.0, 0.0][..]));
}

proptest! {
    #[test]
    fn out_degrees_are_those_of_the_edges((num_nodes, edges) in any_graph()) {
        let mut expected = vec![0f32; num_nodes];
        edges.iter().for_each(|&(u, _)| expected[u as usize] += 1.0);
        let graph = graph(num_nodes, &edges);
        let Hotness { features, rows } = OutDegree.score(&graph, &[0], &settings("2", 1)).expect("scores");
        prop_assert_eq!((&*features, &*rows), (&*expected, &*expected));
    }
}

#[test]
fn random_scores_are_a_function_of_seed_and_node() {
    let graph = graph(50_000, &[]);
    let score = |seed| Random { seed }.score(&graph, &[0], &settings("2", 1)).expect("scores").features;
    let (a, b) = (score(3), score(4));
    assert_eq!(a, score(3));
    assert!(a.iter().all(|x| (0.0..1.0).contains(x)));
    let mean = |x: &mut dyn Iterator<Item = f32>| x.map(f64::from).sum::<f64>() / 50_000.0;
    // Five standard deviations of a mean of 50,000.
    assert!((mean(&mut a.iter().copied()) - 0.5).abs() < 5.0 * (1.0 / 12.0f64).sqrt() / 50_000f64.sqrt());
    // Seeds that differ by one give independent scores: products of two have a mean of 1/4 and a variance of 7/144.
    let product = mean(&mut a.iter().zip(b.iter()).map(|(x, y)| x * y));
    assert!((product - 0.25).abs() < 5.0 * (7.0 / 144.0f64).sqrt() / 50_000f64.sqrt());
}

#[test]
fn scores_are_the_same_bits_on_any_number_of_threads_and_from_a_scan() {
    // Larger than what is scanned sequentially, and with more edges than one round of three threads reads.
    let num_nodes = 1_100_000u64;
    let indices: Vec<u32> = (0..2 * num_nodes).map(|i| (splitmix64(i) % num_nodes) as u32).collect();
    let graph = Topology::new((0..=num_nodes).map(|v| 2 * v).collect::<Vec<_>>(), indices, None).expect("a graph");
    let seeds: Vec<u32> = (0..600).collect();
    let check = |policy: &dyn Policy, settings: &SamplerSettings| {
        let expected = policy.score(&Scanned(&graph), &seeds, settings).expect("scores");
        for threads in [1, 2, 3, 8] {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            let scores = pool.install(|| policy.score(&graph, &seeds, settings)).expect("scores");
            assert!(scores == expected, "{threads} threads");
        }
    };
    for kind in PolicyKind::ALL {
        if let Some(policy) = kind.policy(1) {
            check(&*policy, &settings("5,4", 100));
        }
    }
    check(&Inclusion, &expanding(Expansion::New, settings("5,4", 100)));
}

#[test]
fn seeds_that_do_not_exist_are_refused() {
    let graph = graph(3, &[(1, 0)]);
    let refused = |seeds: &[u32], expected: &str| {
        let error = Inclusion.score(&graph, seeds, &settings("2", 1)).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(&[], "there are no seeds to score the graph for; give at least 1");
    refused(&[0, 3], "seed 3 does not exist, the graph has 3 nodes; give seeds of this graph");
}

/// Share of the counted accesses that the hottest nodes have, a `share` of all nodes.
fn accesses_of_hottest(counted: &[f32], by: &[f32], share: f64) -> f64 {
    let rows = (share * by.len() as f64) as usize;
    coverage(counted, &hottest(by, rows), &[rows])[0]
}

#[test]
fn inclusion_predicts_the_accesses_of_an_epoch() {
    let config = SbmConfig { nodes: 20_000, degree: 12.0, dim: 1, ..SbmConfig::default() };
    let graph = sbm(&config).expect("a graph").topology;
    for expansion in [Expansion::All, Expansion::New] {
        let settings = expanding(expansion, settings("5,4", 100));
        let seeds: Vec<u32> = (0..1000).collect();
        let sampler = sampler(&graph, &seeds, &settings);
        let score = |policy: &dyn Policy| policy.score(&graph, &seeds, &settings).expect("scores");
        let counted = score(&Hindsight { batching: &sampler, epochs: 0..1, threads: 2 });
        let other = score(&PreSample { batching: &sampler, epochs: 1, batches: None, threads: 2 });
        let (inclusion, degree) = (score(&Inclusion), score(&InDegree));
        for (counted, inclusion) in [(&counted.features, &inclusion.features), (&counted.rows, &inclusion.rows)] {
            let sum = |h: &[f32]| h.iter().map(|&x| f64::from(x)).sum::<f64>();
            let ratio = sum(inclusion) / sum(counted);
            // More than counted: picks of adjacent nodes are correlated, at the next hop, too.
            assert!((0.95..1.2).contains(&ratio), "{expansion:?}: predicted accesses are {ratio} of those counted");
        }
        let best = accesses_of_hottest(&counted.features, &counted.features, 0.1);
        let [by_inclusion, by_degree, by_counting] =
            [&inclusion, &degree, &other].map(|h| accesses_of_hottest(&counted.features, &h.features, 0.1));
        // The hottest tenth: better by inclusion than by degree, and almost as good as by another epoch's counts.
        assert!(by_inclusion > by_degree, "{by_inclusion} by inclusion, {by_degree} by degree");
        assert!(by_inclusion > 0.95 * by_counting, "{by_inclusion} by inclusion, {by_counting} by counting");
        assert!(by_inclusion < best, "{by_inclusion} by inclusion, {best} at best");
    }
}
