//! Edges among given nodes, against a search through all edges of the graph.

use morphgl_batching_cpu::InducedEdges;
use morphgl_graph_store::{EdgeType, NodeType, Topology, Types};
use morphgl_registry::Block;
use proptest::prelude::*;

/// A graph of so many nodes from pairs of numbers, with numbers of its edges, and types of them if it has any.
fn graph(num_nodes: u32, pairs: &[(u32, u32)], typed: bool) -> Topology {
    let mut edges: Vec<(u32, u32)> = pairs.iter().map(|&(u, v)| (u % num_nodes, v % num_nodes)).collect();
    // Rows by the edges' types, which here are whether the source's id is odd.
    edges.sort_by_key(|&(u, v)| (v, typed && u % 2 == 1, u));
    let mut indptr = vec![0u64; num_nodes as usize + 1];
    edges.iter().for_each(|&(_, v)| indptr[v as usize + 1] += 1);
    (0..num_nodes as usize).for_each(|v| indptr[v + 1] += indptr[v]);
    let indices: Vec<u32> = edges.iter().map(|&(u, _)| u).collect();
    let weights: Vec<f32> = (0..edges.len()).map(|edge| edge as f32).collect();
    let mut topology = Topology::new(indptr, indices, Some(weights.into())).expect("sound");
    if typed {
        let of = |name: &str| EdgeType { source: "a".into(), name: name.into(), target: "a".into() };
        let nodes = vec![NodeType { name: "a".into(), count: num_nodes.into() }];
        let types = Types::new(nodes, vec![of("even"), of("odd")]).expect("sound");
        let of_edges: Vec<u16> = edges.iter().map(|&(u, _)| (u % 2) as u16).collect();
        topology = topology.with_types(types, of_edges).expect("sound");
    }
    let ids: Vec<u32> = (0..edges.len() as u32).map(|edge| 3 * edge + 1).collect();
    topology.with_edge_ids(Some(ids.into())).expect("sound")
}

proptest! {
    #[test]
    fn all_edges_among_the_nodes_are_found(
        num_nodes in 1u32..40,
        pairs in prop::collection::vec((any::<u32>(), any::<u32>()), 0..300),
        calls in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..30), 1..4),
        typed in any::<bool>(),
    ) {
        let topology = graph(num_nodes, &pairs, typed);
        let mut edges = InducedEdges::new(&topology);
        let mut block = Block::default();
        for nodes in calls {
            let nodes: Vec<u32> = nodes.iter().map(|node| node % num_nodes).collect();
            edges.among(&topology, &nodes, &mut block).expect("few edges");
            let (mut indptr, mut rest) = (vec![0u32], Vec::new());
            for &node in &nodes {
                for edge in topology.edge_range(node) {
                    let source = topology.indices()[edge];
                    if let Some(first) = nodes.iter().position(|&other| other == source) {
                        rest.push((first as u32, edge as u32));
                    }
                }
                indptr.push(rest.len() as u32);
            }
            prop_assert_eq!(&block.indptr, &indptr);
            prop_assert_eq!((block.num_dst, block.num_src), (nodes.len(), nodes.len()));
            let sources: Vec<u32> = rest.iter().map(|&(source, _)| source).collect();
            prop_assert_eq!(&block.indices, &sources);
            let ids: Vec<u32> = rest.iter().map(|&(_, edge)| 3 * edge + 1).collect();
            prop_assert_eq!(block.edge_ids.as_ref(), Some(&ids));
            let weights: Vec<f32> = rest.iter().map(|&(_, edge)| edge as f32).collect();
            prop_assert_eq!(block.weights.as_ref(), Some(&weights));
            let types: Vec<u16> = rest.iter().map(|&(_, edge)| (topology.indices()[edge as usize] % 2) as u16).collect();
            prop_assert_eq!(block.edge_types.as_ref(), typed.then_some(&types));
        }
    }
}
