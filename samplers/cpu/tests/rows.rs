//! Rows of a task: any graph and times against a slow enumeration of what a row may see, on any number of threads.

use std::collections::BTreeSet;
use std::sync::Arc;

use morphgl_batching_cpu::CpuTyped;
use morphgl_conformance::batching::{Case, graphs, reference};
use morphgl_graph_store::{Dataset, TaskRows, Topology};
use morphgl_registry::{
    BatchId, Batching, CustomSettings, Expansion, Fanouts, HostBatch, NeighborSettings, Pick, Place, Sampling, SeedSet,
};
use morphgl_sampler_core::TYPED;
use proptest::prelude::*;
use serde_json::Value;

/// Rows of these nodes at times, as the only seeds of a mini-batch each epoch.
fn case(graph: &Dataset, rows: &[(u32, i64)], fanouts: &str, temporal: &str) -> Case {
    let (nodes, times): (Vec<u32>, Vec<i64>) = rows.iter().copied().unzip();
    let task = TaskRows::new(nodes, times, graph.num_nodes()).expect("nodes of the graph");
    let all: Vec<u32> = (0..rows.len() as u32).collect();
    let seeds = SeedSet::of_rows("rows", &all, &task, graph.num_nodes()).expect("rows of the task");
    let labels: Vec<i32> = (0..rows.len()).map(|row| (row % 4) as i32).collect();
    let dataset = Dataset { task_rows: Some(task), labels: Some(labels.into()), targets: None, ..graph.clone() };
    Case { dataset: Arc::new(dataset), seeds, ..Case::new(graph.clone()) }.with(|s| {
        s.sampling = sampling(fanouts, temporal);
        s.batch_size = 1 << 20;
    })
}

fn sampling(fanouts: &str, temporal: &str) -> Sampling {
    let fanouts: Fanouts = fanouts.parse().expect("fanouts");
    let layers = fanouts.0.len();
    let hops = NeighborSettings { fanouts, expansion: Expansion::All, pick: Pick::Uniform };
    let settings = [("temporal".to_string(), Value::from(temporal))].into_iter().collect();
    Sampling::Custom(CustomSettings { kind: TYPED.name.into(), layers, hops: Some(hops), settings })
}

fn batch(case: &Case, threads: usize) -> HostBatch {
    let operator = CpuTyped::new(&case.context(Place::Host, Value::Null)).expect("the case is valid");
    let mut worker = operator.worker(threads).expect("a worker");
    let (batch, _) =
        worker.prepare(BatchId { epoch: 1, index: 0 }, None).and_then(|handle| handle.wait()).expect("sampled");
    batch.to_host().expect("on the host").into_owned()
}

/// The nodes that a row sees within two hops: over edges that are no later than its time, from nodes that are not.
fn seen(topology: &Topology, (node, time): (u32, i64)) -> BTreeSet<u32> {
    let mut seen = BTreeSet::from([node]);
    for _ in 0..2 {
        let targets: Vec<u32> = seen.iter().copied().collect();
        for target in targets {
            for edge in topology.edge_range(target) {
                let source = topology.indices()[edge];
                let known = [topology.node_times().map(|t| t[source as usize]), topology.edge_times().map(|t| t[edge])];
                if known.into_iter().flatten().all(|of| of <= time) {
                    seen.insert(source);
                }
            }
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..Default::default() })]

    #[test]
    fn a_row_sees_what_is_no_later_than_it(
        (num_nodes, degree) in (4usize..120, 0usize..12),
        rows in prop::collection::vec((any::<u32>(), -20i64..120), 1..40),
        (ascends, of_edges, last, threads) in (any::<bool>(), any::<bool>(), any::<bool>(), 2usize..4),
    ) {
        let graph = graphs::timed(&graphs::typed(num_nodes, degree, false), ascends, of_edges);
        let rows: Vec<(u32, i64)> = rows.iter().map(|&(node, time)| (node % num_nodes as u32, time)).collect();
        let temporal = if last { "last" } else { "uniform" };
        // Rows in the order of the epoch.
        let whole = case(&graph, &rows, "-1,-1", temporal).with(|s| s.shuffle = false);
        let sampled = batch(&whole, 1);
        prop_assert_eq!(&sampled, &batch(&whole, threads), "threads");
        let trees = sampled.trees.as_ref().expect("trees");
        for (tree, &row) in (0..).zip(&rows) {
            let found: BTreeSet<u32> =
                trees.iter().zip(&sampled.input_nodes).filter(|(of, _)| **of == tree).map(|(_, &node)| node).collect();
            prop_assert_eq!(found, seen(&graph.topology, row), "{:?}", row);
        }
        let some = case(&graph, &rows, "3,2", temporal);
        let sampled = batch(&some, threads);
        prop_assert_eq!(&sampled, &reference::sample(&some, BatchId { epoch: 1, index: 0 }));
    }

    #[test]
    fn rows_at_the_times_of_their_nodes_are_these_nodes(
        (num_nodes, degree) in (4usize..120, 0usize..12),
        nodes in prop::collection::vec(any::<u32>(), 1..60),
        (ascends, of_edges, last, threads) in (any::<bool>(), any::<bool>(), any::<bool>(), 1usize..4),
    ) {
        let graph = graphs::timed(&graphs::typed(num_nodes, degree, false), ascends, of_edges);
        let times = graph.topology.node_times().expect("times").clone();
        let nodes: Vec<u32> = nodes.iter().map(|node| node % num_nodes as u32).collect();
        let rows: Vec<(u32, i64)> = nodes.iter().map(|&node| (node, times[node as usize])).collect();
        let temporal = if last { "last" } else { "uniform" };
        let of_rows = case(&graph, &rows, "3,2", temporal);
        let of_nodes = Case { dataset: Arc::new(graph.clone()), ..of_rows.clone() }.of(&nodes);
        let (rows, nodes) = (batch(&of_rows, threads), batch(&of_nodes, threads));
        let expected = HostBatch { labels: rows.labels.clone(), targets: rows.targets.clone(), ..nodes };
        prop_assert_eq!(rows, expected);
    }
}
