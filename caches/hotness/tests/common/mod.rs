//! Graphs, settings and samplers of the tests.
#![allow(dead_code, reason = "each test uses some")]

use std::sync::Arc;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_graph_store::{Dataset, Topology};
use morphgl_hotness::Graph;
use morphgl_registry::{BatchingContext, Fanouts, Place, Result, SamplerSettings, SeedSet};
use proptest::prelude::*;

/// A graph that can only be scanned.
pub(crate) struct Scanned<'a>(pub(crate) &'a Topology);

impl Graph for Scanned<'_> {
    fn num_nodes(&self) -> usize {
        self.0.num_nodes()
    }

    fn degree(&self, node: u32) -> Result<u64> {
        Graph::degree(self.0, node)
    }

    fn scan(&self, row: &mut dyn FnMut(u32, &[u32])) -> Result<()> {
        self.0.scan(row)
    }
}

pub(crate) fn settings(fanouts: &str, batch_size: usize) -> SamplerSettings {
    SamplerSettings { batch_size, ..fanouts.parse::<Fanouts>().expect("fanouts").into() }
}

/// A sampler on one graph.
pub(crate) fn sampler(topology: &Topology, seeds: &[u32], settings: &SamplerSettings) -> CpuNeighbor {
    let dataset = Dataset::new("test", topology.clone());
    CpuNeighbor::new(&BatchingContext {
        seeds: SeedSet::new("seeds", seeds, topology.num_nodes()).expect("nodes"),
        dataset: Arc::new(dataset),
        settings: settings.clone(),
        gather: false,
        place: Place::Host,
        options: Default::default(),
    })
    .expect("a sampler")
}

/// The graph of the edges from `.0` to `.1`.
pub(crate) fn graph(num_nodes: usize, edges: &[(u32, u32)]) -> Topology {
    let mut rows = vec![Vec::new(); num_nodes];
    edges.iter().for_each(|&(u, v)| rows[v as usize].push(u));
    let ends = rows.iter().scan(0, |end, row| {
        *end += row.len() as u64;
        Some(*end)
    });
    Topology::new([0].into_iter().chain(ends).collect::<Vec<u64>>(), rows.concat(), None).expect("a graph")
}

/// Random graphs, with nodes of in-degree 0 or out-degree 0, self-loops and parallel edges.
pub(crate) fn any_graph() -> impl Strategy<Value = (usize, Vec<(u32, u32)>)> {
    (1u32..30).prop_flat_map(|n| {
        // Sources and destinations among few nodes make parallel edges; the others dangle.
        let edges = prop::collection::vec((0..n, 0..n.div_ceil(2)), 0..60);
        (Just(n as usize), edges)
    })
}

#[track_caller]
pub(crate) fn check(actual: &[f32], expected: &[f32]) {
    let close = |(a, e): (&f32, &f32)| (a - e).abs() <= 1e-5 * e.abs().max(1.0);
    assert!(actual.len() == expected.len() && actual.iter().zip(expected).all(close), "{actual:?}, not {expected:?}");
}
