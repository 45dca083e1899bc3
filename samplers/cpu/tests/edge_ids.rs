//! Ids of edges: each edge of a block has the id that its edge of the graph has, as it has its weight.

use morphgl_batching_cpu::{CpuNeighbor, CpuShadow, CpuTyped};
use morphgl_conformance::batching::{Case, graphs};
use morphgl_graph_store::{Dataset, Topology};
use morphgl_registry::{
    BatchId, Batching, CustomSettings, Expansion, NeighborSettings, PairSettings, Pick, Place, Sampling, ShadowSettings,
};
use morphgl_sampler_core::TYPED;
use proptest::prelude::*;
use serde_json::Value;

/// The graph with the number of each edge as its weight, and an id that tells it.
fn numbered(dataset: &Dataset) -> Dataset {
    let topology = &dataset.topology;
    let count = topology.num_edges() as u32;
    let weights: Vec<f32> = (0..count).map(|edge| edge as f32).collect();
    let ids: Vec<u32> = (0..count).map(id).collect();
    let plain = Topology::new(topology.indptr().clone(), topology.indices().clone(), Some(weights.into()));
    let typed = match topology.types().zip(topology.edge_types()) {
        Some((types, of_edges)) => plain.and_then(|plain| plain.with_types((**types).clone(), of_edges.clone())),
        None => plain,
    };
    let timed =
        typed.and_then(|typed| typed.with_times(topology.node_times().cloned(), topology.edge_times().cloned()));
    let topology = timed.and_then(|timed| timed.with_edge_ids(Some(ids.into()))).expect("sound");
    Dataset { topology, ..dataset.clone() }
}

fn id(edge: u32) -> u32 {
    edge.wrapping_mul(0x9E37_79B9) >> 1
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..Default::default() })]

    #[test]
    fn edges_have_their_ids(
        (num_nodes, degree, kind) in (4usize..300, 0usize..40, 0usize..5),
        fanouts in prop_oneof![Just("4,3"), Just("-1,2"), Just("70,5")],
        (new, weighted, pairs) in (any::<bool>(), any::<bool>(), any::<bool>()),
        (seed, threads) in (any::<u64>(), 1usize..4),
    ) {
        let hops = NeighborSettings {
            fanouts: fanouts.parse().expect("fanouts"),
            expansion: if new { Expansion::New } else { Expansion::All },
            pick: if weighted { Pick::Weighted } else { Pick::Uniform },
        };
        let typed = |disjoint: bool, temporal: &str| {
            let settings = [("disjoint", disjoint.into()), ("temporal", temporal.into())];
            let settings = settings.map(|(name, value): (&str, Value)| (name.to_string(), value)).into_iter().collect();
            Sampling::Custom(CustomSettings { kind: TYPED.name.into(), layers: 2, hops: Some(hops.clone()), settings })
        };
        let graph = match kind {
            0 | 1 => graphs::random(num_nodes, degree, false),
            _ => graphs::timed(&graphs::typed(num_nodes, degree, false), true, true),
        };
        let sampling = match kind {
            0 => Sampling::Neighbor(hops.clone()),
            1 => Sampling::Shadow(ShadowSettings { hops: hops.clone(), layers: 2 }),
            2 => typed(false, "no"),
            3 => typed(true, "no"),
            _ => typed(true, "uniform"),
        };
        let case = Case::new(numbered(&graph)).with(|s| (s.seed, s.sampling) = (seed, sampling));
        let case = if pairs { case.of_edges(PairSettings { negatives: 1, ..PairSettings::default() }) } else { case };
        let context = case.context(Place::Host, Value::Null);
        let sampler: Box<dyn Batching> = match kind {
            0 => Box::new(CpuNeighbor::new(&context).expect("the case is valid")),
            1 => Box::new(CpuShadow::new(&context).expect("the case is valid")),
            _ => Box::new(CpuTyped::new(&context).expect("the case is valid")),
        };
        let mut worker = sampler.worker(threads).expect("a worker");
        let mut recycled = None;
        for index in 0..sampler.num_batches() as u32 {
            let (batch, _) = worker
                .prepare(BatchId { epoch: 1, index }, recycled.take())
                .and_then(|handle| handle.wait())
                .expect("a mini-batch");
            for block in &batch.host().expect("in host memory").blocks {
                let weights = block.weights.as_ref().expect("weights");
                let of_edges: Vec<u32> = weights.iter().map(|&weight| id(weight as u32)).collect();
                prop_assert_eq!(block.edge_ids.as_ref(), Some(&of_edges));
            }
            recycled = Some(batch);
        }
    }
}

#[test]
fn without_ids_blocks_have_none() {
    let case = Case::new(graphs::random(50, 6, true));
    let sampler = CpuNeighbor::new(&case.context(Place::Host, Value::Null)).expect("the case is valid");
    let mut worker = sampler.worker(1).expect("a worker");
    // The memory of a mini-batch of a graph with ids is reused.
    let with_ids = Case::new(numbered(&graphs::random(50, 6, true)));
    let other = CpuNeighbor::new(&with_ids.context(Place::Host, Value::Null)).expect("the case is valid");
    let id = BatchId::default();
    let (recycled, _) = other.worker(1).and_then(|mut w| w.prepare(id, None)).and_then(|h| h.wait()).expect("a batch");
    let (batch, _) = worker.prepare(id, Some(recycled)).and_then(|handle| handle.wait()).expect("a mini-batch");
    assert!(batch.host().expect("in host memory").blocks.iter().all(|block| block.edge_ids.is_none()));
}
