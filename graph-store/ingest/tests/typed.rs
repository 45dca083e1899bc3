//! The built typed graph against a sort of its edges.

use morphgl_graph_store::{Dataset, DatasetWriter, EdgeType, NodeType, Types};
use morphgl_ingest::{TypedCscBuilder, TypedEdge, TypedOptions};
use proptest::prelude::*;

/// Types with these numbers of nodes, and edge types between these.
fn types(counts: &[u64], ends: &[[usize; 2]]) -> Types {
    let nodes: Vec<NodeType> =
        counts.iter().enumerate().map(|(i, &count)| NodeType { name: format!("n{i}"), count }).collect();
    let edge = |(i, &[source, target]): (usize, &[usize; 2])| EdgeType {
        source: nodes[source].name.clone(),
        name: format!("e{i}"),
        target: nodes[target].name.clone(),
    };
    let edges = ends.iter().enumerate().map(edge).collect();
    Types::new(nodes, edges).expect("valid types")
}

/// The edges of the graph that is built, in the order of its rows, and the number of duplicates dropped.
fn built(types: &Types, edges: &[TypedEdge], options: TypedOptions, piece: usize) -> (Vec<TypedEdge>, u64) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut writer = DatasetWriter::create(dir.path().join("graph"), true).expect("it can be made");
    let spill = writer.dir().join("edges.spill");
    let mut builder = TypedCscBuilder::new("edges".as_ref(), spill, types.clone(), options).expect("keys fit");
    edges.chunks(piece).for_each(|edges| builder.push(edges).expect("the disk takes them"));
    let dropped = builder.finish(&mut writer, |_| ()).expect("the disk takes the arrays");
    let dataset = Dataset::open(writer.finish("graph", 0, Default::default()).expect("sound"), Default::default());
    let topology = dataset.expect("a dataset").topology;
    assert_eq!(topology.types().map(|of| &**of), Some(types));
    let edge = |target: u32, e: usize| TypedEdge {
        edge_type: topology.edge_types().expect("types")[e],
        source: topology.indices()[e],
        target,
        weight: topology.weights().map_or(1.0, |w| w[e]),
        time: topology.edge_times().map_or(0, |t| t[e]),
        id: topology.edge_ids().map_or(0, |ids| ids[e]),
    };
    let row = |v: u32| topology.edge_range(v).map(move |e| edge(v, e)).collect::<Vec<_>>();
    ((0..types.num_nodes() as u32).flat_map(row).collect(), dropped)
}

#[test]
fn keys_that_do_not_fit_are_refused() {
    // 2^31 nodes take 31 bits, and 2^34 sources of eight edge types 34.
    let types = types(&[1 << 31], &[[0, 0]; 8]);
    let options =
        TypedOptions { weighted: false, timed: false, numbered: false, drop_duplicates: false, memory: 1 << 20 };
    let refused = TypedCscBuilder::new("graph.toml".as_ref(), "spill".into(), types, options).expect_err("too many");
    assert_eq!(
        refused.to_string(),
        "graph.toml: 2147483648 nodes and 8 edge types are more than 64-bit keys can tell apart; \
         merge edge types, or cut the graph into smaller ones"
    );
}

/// Types and edges between their nodes.
fn graphs() -> impl Strategy<Value = (Types, Vec<TypedEdge>)> {
    let ends = |n: usize| (0..n, 0..n).prop_map(|(source, target)| [source, target]);
    let all = prop::collection::vec(0u64..40, 1..4)
        .prop_flat_map(move |counts| {
            let n = counts.len();
            (Just(counts), prop::collection::vec(ends(n), 1..6))
        })
        .prop_map(|(counts, ends)| types(&counts, &ends));
    let edge = (any::<prop::sample::Index>(), any::<u32>(), any::<u32>(), 0u8..4, -3i64..3);
    (all, prop::collection::vec(edge, 0..400)).prop_map(|(types, draws)| {
        let edges = draws.into_iter().filter_map(|(of, source, target, weight, time)| {
            let edge_type = of.index(types.edge_types().len());
            let [from, to] = types.ends(edge_type).map(|of| types.range(of));
            (!from.is_empty() && !to.is_empty()).then(|| TypedEdge {
                edge_type: edge_type as u16,
                source: from.start + source % from.len() as u32,
                target: to.start + target % to.len() as u32,
                weight: weight.into(),
                time,
                id: target,
            })
        });
        let edges = edges.collect();
        (types, edges)
    })
}

proptest! {
    #[test]
    fn rows_are_sorted_by_type_and_source(
        (types, edges) in graphs(),
        weighted: bool,
        timed: bool,
        numbered: bool,
        drop_duplicates: bool,
        // So little that edges spill.
        memory in prop::sample::select(vec![1u64 << 8, 1 << 12, 1 << 20]),
        piece in 1usize..50,
    ) {
        let mut expected: Vec<TypedEdge> = edges
            .iter()
            .map(|edge| TypedEdge {
                weight: if weighted { edge.weight } else { 1.0 },
                time: if timed { edge.time } else { 0 },
                id: if numbered { edge.id } else { 0 },
                ..*edge
            })
            .collect();
        expected.sort_by_key(|edge| (edge.target, edge.edge_type, edge.source));
        if drop_duplicates {
            expected.dedup_by_key(|edge| (edge.target, edge.edge_type, edge.source));
        }
        let dropped = (edges.len() - expected.len()) as u64;
        let options = TypedOptions { weighted, timed, numbered, drop_duplicates, memory };
        prop_assert_eq!(built(&types, &edges, options, piece), (expected, dropped));
    }
}
