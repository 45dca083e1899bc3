//! The work of seeds beside the edges of mini-batches that the samplers make of single seeds.
#![allow(clippy::print_stdout, reason = "the factors are worth seeing")]

use std::sync::Arc;

use morphgl_batching_cpu::{CpuNeighbor, CpuShadow, CpuWalk};
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::{Dataset, Topology};
use morphgl_group::work;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Expansion, Fanouts, NeighborSettings, Pick, Place, SamplerSettings, Sampling,
    SeedSet, ShadowSettings, WalkSettings,
};

/// A tree of three levels below its root, with rows of different length.
fn tree(weighted: bool) -> Dataset {
    let (mut indptr, mut indices) = (vec![0u64], Vec::new());
    let (mut next, mut level) = (1u32, vec![0u32]);
    for depth in 0..3u32 {
        let mut below = Vec::new();
        for &node in &level {
            let degree = [7, 1 + node % 5, node % 4][depth as usize];
            below.extend(next..next + degree);
            indices.extend(next..next + degree);
            next += degree;
            indptr.push(indices.len() as u64);
        }
        level = below;
    }
    indptr.resize(next as usize + 1, indices.len() as u64);
    let weights: Vec<f32> = (0..indices.len()).map(|i| [1.0, 0.0, 3.0][i % 3]).collect();
    Dataset::new("tree", Topology::new(indptr, indices, weighted.then(|| weights.into())).expect("a tree"))
}

fn batching(dataset: &Arc<Dataset>, sampling: &Sampling, seeds: &[u32], batch_size: usize) -> Box<dyn Batching> {
    let context = BatchingContext {
        dataset: Arc::clone(dataset),
        seeds: SeedSet::new("seeds", seeds, dataset.num_nodes()).expect("distinct"),
        settings: SamplerSettings { batch_size, ..sampling.clone().into() },
        gather: false,
        place: Place::Host,
        options: Default::default(),
    };
    match sampling {
        Sampling::Neighbor(_) => Box::new(CpuNeighbor::new(&context).expect("valid")),
        Sampling::Shadow(_) => Box::new(CpuShadow::new(&context).expect("valid")),
        Sampling::Walk(_) => Box::new(CpuWalk::new(&context).expect("valid")),
        Sampling::Custom(custom) => panic!("no operator here samples by {}", custom.kind),
    }
}

/// Mean edges of the first mini-batch in so many epochs, and the standard error.
fn sampled(batching: &dyn Batching, epochs: u32) -> (f64, f64) {
    let mut worker = batching.worker(1).expect("a worker");
    let edges = (0..epochs).map(|epoch| {
        let (batch, _) = worker.prepare(BatchId { epoch, index: 0 }, None).expect("sampled").wait().expect("done");
        batch.host().expect("at host").num_edges() as f64
    });
    let edges: Vec<f64> = edges.collect();
    let mean = edges.iter().sum::<f64>() / edges.len() as f64;
    let variance = edges.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / (edges.len() - 1) as f64;
    (mean, (variance / edges.len() as f64).sqrt())
}

fn neighbor(fanouts: &str, expansion: Expansion, pick: Pick) -> NeighborSettings {
    NeighborSettings { fanouts: fanouts.parse::<Fanouts>().expect("fanouts"), expansion, pick }
}

#[test]
fn neighbour_sampling_has_the_expected_edges_where_no_node_is_reached_twice() {
    let tree = Arc::new(tree(false));
    for expansion in [Expansion::All, Expansion::New] {
        for fanouts in ["3", "3,2", "2,2,1", "4,-1,2", "-1,-1,-1", "2,1,1,3"] {
            let sampling = Sampling::Neighbor(neighbor(fanouts, expansion, Pick::Uniform));
            let work = work(&tree.topology, &sampling);
            for seed in [0, 1, 3, 9] {
                let (mean, error) = sampled(&*batching(&tree, &sampling, &[seed], 1), 4000);
                let expected = f64::from(work[seed as usize]);
                let off = (mean - expected).abs();
                assert!(
                    off <= 4.5 * error + 1e-4 * expected,
                    "{sampling}, seed {seed}: {mean} ± {error}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn picks_by_weight_are_within_a_quarter() {
    let tree = Arc::new(tree(true));
    let sampling = Sampling::Neighbor(neighbor("3,2,2", Expansion::All, Pick::Weighted));
    let (mean, _) = sampled(&*batching(&tree, &sampling, &[0], 1), 2000);
    let expected = f64::from(work(&tree.topology, &sampling)[0]);
    assert!((mean / expected - 1.0).abs() < 0.25, "{mean} sampled, {expected} expected");
}

/// Work of all seeds together over the edges of their single mini-batches, and by how much a seed's differs from that factor, on
/// average.
fn compare(dataset: &Arc<Dataset>, sampling: &Sampling) -> (f64, f64) {
    let work = work(&dataset.topology, sampling);
    let seeds: Vec<u32> = (0..dataset.num_nodes() as u32).step_by(17).collect();
    let pairs = seeds.iter().map(|&seed| {
        let (mean, _) = sampled(&*batching(dataset, sampling, &[seed], 1), 30);
        (f64::from(work[seed as usize]), mean)
    });
    let pairs: Vec<(f64, f64)> = pairs.collect();
    let n = pairs.len() as f64;
    let (x, y) = (pairs.iter().map(|p| p.0).sum::<f64>() / n, pairs.iter().map(|p| p.1).sum::<f64>() / n);
    let deviation = pairs.iter().map(|p| (p.0 / p.1 * y / x - 1.0).abs()).sum::<f64>() / n;
    (x / y, deviation)
}

#[test]
fn every_kind_of_sampling_is_estimated_within_a_factor_and_in_proportion() {
    let config = SbmConfig { nodes: 2000, classes: 4, degree: 12.0, ..SbmConfig::default() };
    let dataset = Arc::new(sbm(&config).expect("a graph"));
    let hops = |fanouts| neighbor(fanouts, Expansion::All, Pick::Uniform);
    // By how much deduplication, triangles and returning walks change it at most.
    let cases = [
        (Sampling::Neighbor(hops("5,5")), 0.99..1.05),
        (Sampling::Neighbor(hops("10,5,3")), 1.0..1.2),
        (Sampling::Shadow(ShadowSettings { hops: hops("5,3"), layers: 3 }), 0.7..1.1),
        (Sampling::Shadow(ShadowSettings { hops: hops("-1"), layers: 2 }), 0.7..1.1),
        (Sampling::Walk(WalkSettings::of_layers(1)), 0.9..1.15),
        (Sampling::Walk(WalkSettings::of_layers(2)), 0.8..1.25),
    ];
    for (sampling, factors) in cases {
        let (factor, deviation) = compare(&dataset, &sampling);
        println!("{sampling}: {factor:.3} of the sampled edges, {deviation:.3} off that");
        assert!(factors.contains(&factor), "{sampling}: {factor} is outside {factors:?}");
        assert!(deviation < 0.2, "{sampling}: {deviation}");
    }
}

#[test]
fn nodes_without_neighbours_have_no_work() {
    let empty = Topology::new(vec![0u64, 0, 0], Vec::<u32>::new(), None).expect("a graph");
    for sampling in [
        Sampling::Neighbor(NeighborSettings::default()),
        Sampling::Shadow(ShadowSettings { hops: NeighborSettings::default(), layers: 2 }),
        Sampling::Walk(WalkSettings::of_layers(2)),
    ] {
        assert_eq!(work(&empty, &sampling), [0.0; 2]);
    }
}

/// Seeds of a mini-batch share neighbours, the more the larger it is: the work of all of them exceeds its edges.
#[test]
fn deduplication_within_a_mini_batch_makes_edges_fewer_than_the_work() {
    let config = SbmConfig { nodes: 2000, classes: 4, degree: 12.0, ..SbmConfig::default() };
    let dataset = Arc::new(sbm(&config).expect("a graph"));
    let sampling = Sampling::Neighbor(neighbor("10,5", Expansion::All, Pick::Uniform));
    let work = work(&dataset.topology, &sampling);
    let mut before = 0.0;
    for batch_size in [1, 16, 256] {
        let seeds: Vec<u32> = (0..batch_size as u32).map(|i| i * 7).collect();
        let (edges, _) = sampled(&*batching(&dataset, &sampling, &seeds, batch_size), 20);
        let factor = seeds.iter().map(|&v| f64::from(work[v as usize])).sum::<f64>() / edges;
        println!("{batch_size} seeds: work is {factor:.2} of the edges");
        assert!(factor > before, "{batch_size} seeds: {factor}, fewer seeds: {before}");
        before = factor;
    }
}
