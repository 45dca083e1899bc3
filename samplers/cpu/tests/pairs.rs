//! Mini-batches of pairs: distributions of picks and negatives, by chi-square tests over fixed seeds at p = 1e-3; and no target
//! edge in its own mini-batch.

use std::collections::HashSet;
use std::sync::Arc;

use morphgl_batching_cpu::{CpuNeighbor, CpuWalk};
use morphgl_conformance::batching::graphs;
use morphgl_graph_store::Dataset;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanouts, HostBatch, NegativeDistribution, NeighborSettings, PairSettings, Pick,
    SamplerSettings, Sampling, SeedSet, WalkSettings,
};

/// Mini-batches of all epochs: `each` gets each of them.
fn each_batch(operator: &dyn Batching, epochs: u32, mut each: impl FnMut(&HostBatch)) {
    let mut worker = operator.worker(1).expect("a worker");
    let mut recycled = None;
    for epoch in 0..epochs {
        for index in 0..operator.num_batches() as u32 {
            let handle = worker.prepare(BatchId { epoch, index }, recycled.take()).expect("a mini-batch");
            let batch = handle.wait().expect("a mini-batch").0;
            each(batch.host().expect("in host memory"));
            recycled = Some(batch);
        }
    }
}

fn context(dataset: Dataset, pairs: &[[u32; 2]], drawn: PairSettings, settings: SamplerSettings) -> BatchingContext {
    let seeds = SeedSet::of_pairs("pairs", pairs, dataset.num_nodes(), drawn).expect("nodes of the graph");
    BatchingContext { gather: false, ..BatchingContext::new(Arc::new(dataset), seeds, settings) }
}

fn hops(fanouts: &str, pick: Pick, batch_size: usize) -> SamplerSettings {
    let hops = NeighborSettings { pick, ..fanouts.parse::<Fanouts>().expect("fanouts").into() };
    SamplerSettings { batch_size, seed: 20_261, ..hops.into() }
}

/// The value that a chi-square variable exceeds with probability 1e-3 (Wilson, Hilferty, PNAS 1931).
fn critical(freedom: usize) -> f64 {
    let spread = 2.0 / (9.0 * freedom as f64);
    freedom as f64 * (1.0 - spread + 3.090_232 * spread.sqrt()).powi(3)
}

/// Refuses counts of disjoint outcomes that are not distributed as `expected`, in proportion.
#[track_caller]
fn check(what: &str, counts: &[f64], expected: &[f64]) {
    let scale = counts.iter().sum::<f64>() / expected.iter().sum::<f64>();
    let (mut statistic, mut outcomes) = (0.0, 0);
    for (&count, &weight) in counts.iter().zip(expected) {
        if weight == 0.0 {
            assert_eq!(count, 0.0, "{what}: an outcome of probability 0");
            continue;
        }
        let mean = weight * scale;
        assert!(mean > 5.0, "{what}: too few draws");
        statistic += (count - mean) * (count - mean) / mean;
        outcomes += 1;
    }
    let critical = critical(outcomes - 1);
    assert!(statistic < critical, "{what}: chi-square {statistic:.1}, critical {critical:.1}");
}

/// Node 0 with in-neighbours 1 to 9, of which 1 is one three times and 4 twice; others have none but node 2, which has 0.
fn star(weights: bool) -> Dataset {
    let mut rows = vec![Vec::new(); 40];
    rows[0] = vec![1, 2, 3, 1, 4, 5, 6, 7, 1, 8, 4, 9];
    rows[2] = vec![0, 5];
    let weights = weights.then(|| vec![3.0, 1.0, 2.0, 1.0, 0.5, 4.0, 1.0, 0.0, 2.0, 1.0, 0.25, 1.0, 1.0, 1.0]);
    graphs::dataset(&rows, weights)
}

const ALONE: PairSettings =
    PairSettings { negatives: 0, distribution: NegativeDistribution::Uniform, avoid_edges: false, exclude: true };

/// Of the twelve in-edges of node 0, six are left: from 3, 5, 6, 7, 8 and 9.
#[test]
fn every_subset_of_the_edges_that_are_left_is_equally_likely() {
    let left = [3, 5, 6, 7, 8, 9];
    let batch = [[1, 0], [4, 0], [0, 2]];
    let pairs: Vec<[u32; 2]> = batch.repeat(20_000);
    let settings = SamplerSettings { shuffle: false, ..hops("2", Pick::Uniform, 3) };
    let operator = CpuNeighbor::new(&context(star(false), &pairs, ALONE, settings)).expect("valid");
    let mut counts = [[0.0; 6]; 6];
    each_batch(&operator, 2, |batch| {
        let row = batch.input_nodes.iter().take(batch.num_seeds).position(|&v| v == 0).expect("node 0 is a seed");
        let sources = batch.blocks[0].row(row).iter().map(|&local| batch.input_nodes[local as usize]);
        let picked: Vec<usize> =
            sources.map(|u| left.iter().position(|&l| l == u).expect("an edge that is left")).collect();
        assert_eq!(batch.degrees[row], 6.0, "its in-degree without the pairs' edges");
        counts[picked[0]][picked[1]] += 1.0;
    });
    let expected: Vec<f64> = (0..36).map(|i| f64::from(u8::from(i / 6 < i % 6))).collect();
    check("pairs of neighbours", counts.as_flattened(), &expected);
}

/// Weights of 3, 5, 6, 7, 8 and 9 are 2, 4, 1, 0, 1 and 1.
#[test]
fn picks_by_weight_have_the_probabilities_of_the_edges_that_are_left() {
    let (left, weights) = ([3, 5, 6, 7, 8, 9], [2.0, 4.0, 1.0, 0.0, 1.0, 1.0]);
    let pairs: Vec<[u32; 2]> = [[1, 0], [4, 0], [0, 2]].repeat(20_000);
    let settings = SamplerSettings { shuffle: false, ..hops("2", Pick::Weighted, 3) };
    let operator = CpuNeighbor::new(&context(star(true), &pairs, ALONE, settings)).expect("valid");
    let mut counts = [[0.0; 6]; 6];
    each_batch(&operator, 2, |batch| {
        let row = batch.seeds().iter().position(|&v| v == 0).expect("node 0 is a seed");
        let sources = batch.blocks[0].row(row).iter().map(|&local| batch.input_nodes[local as usize]);
        let picked: Vec<usize> =
            sources.map(|u| left.iter().position(|&l| l == u).expect("an edge that is left")).collect();
        assert_eq!(batch.degrees[row], 9.0, "the weights that are left");
        counts[picked[0]][picked[1]] += 1.0;
    });
    // One after the other, each by its weight among those not picked yet.
    let total: f64 = weights.iter().sum();
    let probability = |a: usize, b: usize| {
        let (w, v): (f64, f64) = (weights[a], weights[b]);
        w / total * v / (total - w) + v / total * w / (total - v)
    };
    let expected: Vec<f64> = (0..36).map(|i| if i / 6 < i % 6 { probability(i / 6, i % 6) } else { 0.0 }).collect();
    check("pairs of neighbours by weight", counts.as_flattened(), &expected);
}

#[test]
fn first_steps_of_walks_are_uniform_over_the_edges_that_are_left() {
    let left = [3, 5, 6, 7, 8, 9];
    let pairs: Vec<[u32; 2]> = [[1, 0], [4, 0], [0, 2]].repeat(20_000);
    let walk = WalkSettings { walks: 1, length: 1, restart: 0.0, ..WalkSettings::of_layers(1) };
    let settings = SamplerSettings { batch_size: 3, shuffle: false, ..Sampling::Walk(walk).into() };
    let operator = CpuWalk::new(&context(star(false), &pairs, ALONE, settings)).expect("valid");
    let mut counts = [0.0; 6];
    each_batch(&operator, 1, |batch| {
        let row = batch.seeds().iter().position(|&v| v == 0).expect("node 0 is a seed");
        let visited = batch.input_nodes[batch.blocks[0].row(row)[0] as usize];
        counts[left.iter().position(|&l| l == visited).expect("an edge that is left")] += 1.0;
    });
    check("first steps", &counts, &[1.0; 6]);
}

/// Counts of the destinations of negatives, per node.
fn destinations(dataset: &Dataset, pairs: &[[u32; 2]], drawn: PairSettings, epochs: u32) -> Vec<f64> {
    let mut counts = vec![0.0; dataset.num_nodes()];
    let operator = CpuNeighbor::new(&context(dataset.clone(), pairs, drawn, hops("1", Pick::Uniform, 100)));
    each_batch(&operator.expect("valid"), epochs, |batch| {
        let pairs = batch.pairs.as_deref().expect("pairs");
        pairs.ends[pairs.num_positives..].iter().for_each(|end| counts[batch.seeds()[end[1] as usize] as usize] += 1.0);
    });
    counts
}

#[test]
fn negatives_have_the_distribution_of_their_kind() {
    let dataset = graphs::random(300, 6, false);
    let pairs: Vec<[u32; 2]> = (0..1000).map(|i| [i % 300, (i * 7 + 1) % 300]).collect();
    let of = |distribution| PairSettings { negatives: 7, distribution, ..ALONE };
    let uniform = destinations(&dataset, &pairs, of(NegativeDistribution::Uniform), 20);
    check("uniform", &uniform, &[1.0; 300]);
    let by_degree = destinations(&dataset, &pairs, of(NegativeDistribution::Degree), 20);
    let weights: Vec<f64> = (0..300).map(|v| (dataset.topology.degree(v) as f64).powf(0.75)).collect();
    check("by degree", &by_degree, &weights);
    // In a reordered graph each node has the count of its original, draw for draw.
    let (reordered, new_of_old) = graphs::reordered(&dataset);
    let renamed: Vec<[u32; 2]> = pairs.iter().map(|pair| pair.map(|v| new_of_old[v as usize])).collect();
    let counts = destinations(&reordered, &renamed, of(NegativeDistribution::Degree), 20);
    let back: Vec<f64> = new_of_old.iter().map(|&new| counts[new as usize]).collect();
    assert_eq!(back, by_degree);
}

#[test]
fn negatives_within_the_mini_batch_are_uniform_over_the_other_positives() {
    let dataset = graphs::random(300, 6, false);
    // Positive i of a mini-batch of ten has destination 100 + i.
    let pairs: Vec<[u32; 2]> = (0..10_000).map(|i| [i % 10, 100 + i % 10]).collect();
    let drawn = PairSettings { negatives: 3, distribution: NegativeDistribution::InBatch, ..ALONE };
    let settings = SamplerSettings { shuffle: false, ..hops("1", Pick::Uniform, 10) };
    let mut counts = [[0.0; 10]; 10];
    each_batch(&CpuNeighbor::new(&context(dataset, &pairs, drawn, settings)).expect("valid"), 2, |batch| {
        let pairs = batch.pairs.as_deref().expect("pairs");
        for (i, counts) in counts.iter_mut().enumerate() {
            let destinations = pairs.negatives_of(i).iter().map(|end| batch.seeds()[end[1] as usize] - 100);
            destinations.for_each(|other| counts[other as usize] += 1.0);
        }
    });
    let expected: Vec<f64> = (0..100).map(|i| f64::from(u8::from(i / 10 != i % 10))).collect();
    check("other positives", counts.as_flattened(), &expected);
}

#[test]
fn each_choice_of_given_negatives_is_as_likely() {
    let dataset = Arc::new(graphs::random(300, 6, false));
    // Pair i is given 5 negatives, from node 50 · (i % 4) on.
    let pairs: Vec<[u32; 2]> = (0..5000).map(|i| [i % 300, 299]).collect();
    let given: Vec<u32> = (0..5000).flat_map(|i| (0..5).map(move |at| 50 * (i % 4) + at)).collect();
    let drawn = PairSettings { negatives: 2, distribution: NegativeDistribution::Given, ..ALONE };
    let seeds = SeedSet::of_pairs_against("pairs", &pairs, &given, 300, drawn).expect("nodes of the graph");
    let settings = SamplerSettings { shuffle: false, ..hops("1", Pick::Uniform, 100) };
    let context = BatchingContext { gather: false, ..BatchingContext::new(dataset, seeds, settings) };
    let mut counts = [[0.0; 5]; 5];
    each_batch(&CpuNeighbor::new(&context).expect("valid"), 4, |batch| {
        let pairs = batch.pairs.as_deref().expect("pairs");
        for i in 0..pairs.num_positives {
            let chosen = pairs.negatives_of(i).iter().map(|end| batch.seeds()[end[1] as usize] - 50 * (i as u32 % 4));
            let chosen: Vec<u32> = chosen.collect();
            counts[chosen[0] as usize][chosen[1] as usize] += 1.0;
        }
    });
    let expected: Vec<f64> = (0..25).map(|i| f64::from(u8::from(i / 5 < i % 5))).collect();
    check("subsets of two", counts.as_flattened(), &expected);
}

#[test]
fn negatives_that_avoid_edges_are_uniform_over_the_nodes_that_are_no_out_neighbours() {
    // Node 5 is an in-neighbour of every third node, and of itself.
    let rows: Vec<Vec<u32>> = (0..60).map(|v| if v % 3 == 0 || v == 5 { vec![7, 5] } else { vec![7] }).collect();
    let dataset = graphs::dataset(&rows, None);
    let drawn = PairSettings { negatives: 8, avoid_edges: true, ..ALONE };
    let counts = destinations(&dataset, &[[5, 9]; 2000], drawn, 2);
    let expected: Vec<f64> = (0..60).map(|v| f64::from(u8::from(v % 3 != 0 && v != 5))).collect();
    check("no out-neighbours", &counts, &expected);
}

/// Trains once on each of 10^6 edges of a graph that has a few more; returns how many edges of the mini-batches have a target of
/// their own, and how many have two ends of positives.
fn edges_between_ends(exclude: bool) -> [usize; 2] {
    let dataset = graphs::random(100_000, 11, false);
    let topology = &dataset.topology;
    let pairs: Vec<[u32; 2]> =
        (0..100_000).flat_map(|v| topology.neighbors(v).iter().map(move |&u| [u, v])).take(1_000_000).collect();
    let drawn = PairSettings { negatives: 1, exclude, ..ALONE };
    let operator = CpuNeighbor::new(&context(dataset, &pairs, drawn, hops("10,5", Pick::Uniform, 2048)));
    let (mut checked, mut compared, mut own, mut targets) = (0, 0, 0, HashSet::new());
    each_batch(&operator.expect("valid"), 1, |batch| {
        let pairs = batch.pairs.as_deref().expect("pairs");
        targets.clear();
        targets.extend(pairs.positives().iter().flat_map(|&[a, b]| [[a, b], [b, a]]));
        // The first seeds are the ends of positives.
        let ends = pairs.positives().as_flattened().iter().max().map_or(0, |last| last + 1);
        for block in &batch.blocks {
            for row in 0..(ends as usize).min(block.num_dst) {
                for &source in block.row(row).iter().filter(|&&source| source < ends) {
                    compared += 1;
                    own += usize::from(targets.contains(&[source, row as u32]));
                }
            }
        }
        checked += pairs.num_positives;
    });
    assert_eq!(checked, 1_000_000);
    [own, compared]
}

#[test]
fn no_target_edge_is_in_its_own_mini_batch() {
    let [own, compared] = edges_between_ends(true);
    assert_eq!(own, 0, "target edges in their own mini-batches");
    assert!(compared > 500_000, "edges between ends of positives: {compared}");
    let [own, _] = edges_between_ends(false);
    assert!(own > 500_000, "target edges where they are not excluded: {own}");
}
