//! Policies against values computed by hand, and against counts.

use std::sync::Arc;

use morphgl_batching_cpu_neighbor::CpuNeighbor;
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::Topology;
use morphgl_hotness::{Degree, Hotness, Inclusion, Policy, PreSample};
use morphgl_registry::{Batching, BatchingContext, Expansion, Fanouts, Place, SamplerSettings, SeedSet};

fn settings(fanouts: &str, batch_size: usize) -> SamplerSettings {
    SamplerSettings { batch_size, ..fanouts.parse::<Fanouts>().expect("fanouts").into() }
}

fn expanding(expansion: Expansion, mut settings: SamplerSettings) -> SamplerSettings {
    settings.sampling.hops_mut().expect("sampling by fanouts").expansion = expansion;
    settings
}

#[track_caller]
fn check(actual: &[f32], expected: &[f32]) {
    let close = |(a, e): (&f32, &f32)| (a - e).abs() <= 1e-5 * e.abs().max(1.0);
    assert!(actual.len() == expected.len() && actual.iter().zip(expected).all(close), "{actual:?}, not {expected:?}");
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
    let Hotness { features, rows } = Degree.score(&star, &[0], &settings("2", 1)).expect("scores");
    assert_eq!((&*features, &*rows), (&[4.0f32, 1.0, 0.0, 0.0, 0.0][..], &[4.0f32, 1.0, 0.0, 0.0, 0.0][..]));
}

/// Share of the counted accesses that the hottest nodes have, a `share` of all nodes.
fn accesses_of_hottest(counted: &[f32], by: &[f32], share: f64) -> f64 {
    let mut order: Vec<usize> = (0..by.len()).collect();
    order.sort_by(|&a, &b| by[b].total_cmp(&by[a]));
    let hottest = &order[..(share * by.len() as f64) as usize];
    hottest.iter().map(|&v| f64::from(counted[v])).sum::<f64>() / counted.iter().map(|&c| f64::from(c)).sum::<f64>()
}

#[test]
fn inclusion_predicts_the_accesses_of_an_epoch() {
    let config = SbmConfig { nodes: 20_000, degree: 12.0, dim: 1, ..SbmConfig::default() };
    let dataset = Arc::new(sbm(&config).expect("a graph"));
    for expansion in [Expansion::All, Expansion::New] {
        let settings = expanding(expansion, settings("5,4", 100));
        let seeds: Vec<u32> = (0..1000).collect();
        let context = BatchingContext {
            dataset: Arc::clone(&dataset),
            seeds: SeedSet::new("seeds", &seeds, 20_000).expect("nodes"),
            settings: settings.clone(),
            gather: false,
            place: Place::Host,
            options: Default::default(),
        };
        let sampler = CpuNeighbor::new(&context).expect("a sampler");
        let count = |epoch| {
            let policy = PreSample { batching: &sampler, epoch, batches: sampler.num_batches() };
            policy.score(&dataset.topology, &seeds, &settings).expect("counts")
        };
        let (counted, other) = (count(0), count(1));
        let inclusion = Inclusion.score(&dataset.topology, &seeds, &settings).expect("scores");
        let degree = Degree.score(&dataset.topology, &seeds, &settings).expect("scores");
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
