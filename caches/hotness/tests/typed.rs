//! Inclusion probabilities of sampling by edge type.

mod common;

use std::sync::Arc;

use common::{any_graph, graph};
use morphgl_batching_cpu::CpuTyped;
use morphgl_generate::{TypedConfig, typed};
use morphgl_graph_store::{Dataset, EdgeType, NodeType, Topology, Types};
use morphgl_hotness::{Graph, Hindsight, InDegree, Inclusion, Policy, PreSample, coverage, hottest};
use morphgl_registry::{
    BatchingContext, CustomSettings, Expansion, Fanouts, NeighborSettings, Place, SamplerSettings, Sampling, SeedSet,
};
use morphgl_sampler_core::TYPED;
use proptest::prelude::*;

fn settings(fanouts: &str, expansion: Expansion, by_type: &str, disjoint: bool) -> SamplerSettings {
    let hops = NeighborSettings { expansion, ..fanouts.parse::<Fanouts>().expect("fanouts").into() };
    let settings = [("fanouts_by_type".to_string(), by_type.into()), ("disjoint".to_string(), disjoint.into())];
    let (layers, settings) = (hops.fanouts.0.len(), settings.into_iter().collect());
    let sampling = Sampling::Custom(CustomSettings { kind: TYPED.name.into(), layers, hops: Some(hops), settings });
    SamplerSettings { batch_size: 100, ..sampling.into() }
}

proptest! {
    /// Of a graph with one edge type, and of one without types, scores are those of neighbour sampling.
    #[test]
    fn one_edge_type_has_the_scores_of_none((num_nodes, edges) in any_graph(), new: bool) {
        let topology = graph(num_nodes, &edges);
        let types = Types::new(
            vec![NodeType { name: "node".into(), count: num_nodes as u64 }],
            vec![EdgeType { source: "node".into(), name: "to".into(), target: "node".into() }],
        );
        let one = topology.clone().with_types(types.expect("sound"), vec![0u16; edges.len()]).expect("one type");
        let expansion = if new { Expansion::New } else { Expansion::All };
        let neighbor = NeighborSettings { expansion, ..NeighborSettings::default() };
        let neighbor = SamplerSettings { batch_size: 2, ..neighbor.into() };
        let by_type = SamplerSettings { batch_size: 2, ..settings("15,10,5", expansion, "", false) };
        let seeds: Vec<u32> = (0..num_nodes as u32).step_by(2).collect();
        let expected = Inclusion.score(&topology, &seeds, &neighbor).expect("scores");
        for graph in [&one, &topology] {
            prop_assert_eq!(&Inclusion.score(graph, &seeds, &by_type).expect("scores"), &expected);
        }
    }
}

/// Share of the counted accesses that the hottest tenth of the nodes has.
fn of_hottest(counted: &[f32], by: &[f32]) -> f64 {
    let rows = by.len() / 10;
    coverage(counted, &hottest(by, rows), &[rows])[0]
}

/// In total within a fifth of what is counted, and the hottest nodes better than by degree: with fanouts per type, and of trees.
#[test]
fn accesses_are_predicted_by_type() {
    let config = TypedConfig { nodes: 20_000, dim: 1, classes: 4, ..TypedConfig::default() };
    let dataset = typed(&config).expect("valid");
    let graph = dataset.topology.clone();
    let seeds: Vec<u32> = (0..1000).collect();
    for (expansion, disjoint) in [(Expansion::All, false), (Expansion::New, false), (Expansion::All, true)] {
        let settings = settings("6,5", expansion, "cites=8,0;rev_writes=0,3", disjoint);
        let sampler = CpuTyped::new(&BatchingContext {
            seeds: SeedSet::new("seeds", &seeds, graph.num_nodes()).expect("nodes"),
            dataset: Arc::new(Dataset::new("test", graph.clone())),
            settings: settings.clone(),
            gather: false,
            place: Place::Host,
            options: Default::default(),
        })
        .expect("a sampler");
        let score = |policy: &dyn Policy| policy.score(&graph, &seeds, &settings).expect("scores");
        let counted = score(&Hindsight { batching: &sampler, epochs: 0..1, threads: 2 });
        let other = score(&PreSample { batching: &sampler, epochs: 1, batches: None, threads: 2 });
        let (inclusion, degree) = (score(&Inclusion), score(&InDegree));
        let sum = |h: &[f32]| h.iter().map(|&x| f64::from(x)).sum::<f64>();
        let ratio = sum(&inclusion.features) / sum(&counted.features);
        assert!(
            (0.9..1.2).contains(&ratio),
            "{expansion:?}, {disjoint}: predicted are {ratio} of the accesses counted"
        );
        let [by_inclusion, by_degree, by_counting] =
            [&inclusion, &degree, &other].map(|h| of_hottest(&counted.features, &h.features));
        assert!(by_inclusion > by_degree, "{by_inclusion} by inclusion, {by_degree} by degree");
        assert!(by_inclusion > 0.95 * by_counting, "{by_inclusion} by inclusion, {by_counting} by counting");
    }
}

/// A graph that can only be scanned, and not by type.
struct Untyped(Topology);

impl Graph for Untyped {
    fn num_nodes(&self) -> usize {
        self.0.num_nodes()
    }

    fn degree(&self, node: u32) -> morphgl_registry::Result<u64> {
        Graph::degree(&self.0, node)
    }

    fn scan(&self, row: &mut dyn FnMut(u32, &[u32])) -> morphgl_registry::Result<()> {
        self.0.scan(row)
    }
}

#[test]
fn fanouts_of_types_that_the_graph_does_not_have_are_refused() {
    let topology = graph(3, &[(0, 1), (1, 2)]);
    let by_type = settings("2", Expansion::All, "cites=1", false);
    let error = Inclusion.score(&Untyped(topology), &[0], &by_type).expect_err("refused").to_string();
    assert!(error.contains("the graph has no edge types"), "{error}");
}
