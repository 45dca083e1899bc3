use proptest::prelude::*;

use super::*;
use crate::{Array, Topology};

fn node(name: &str, count: u64) -> NodeType {
    NodeType { name: name.into(), count }
}

fn edge(source: &str, name: &str, target: &str) -> EdgeType {
    EdgeType { source: source.into(), name: name.into(), target: target.into() }
}

/// Two papers and an author: paper 0 cites 1, and author 2 writes both.
fn papers() -> (Types, Topology, Vec<u16>) {
    let edges = vec![edge("paper", "cites", "paper"), edge("author", "writes", "paper")];
    let types = Types::new(vec![node("paper", 2), node("author", 1)], edges).expect("sound");
    let topology = Topology::new(vec![0u64, 1, 3, 3], vec![2u32, 0, 2], None).expect("a graph");
    (types, topology, vec![1, 0, 1])
}

#[test]
fn ids_and_rows_are_of_their_types() {
    let (types, topology, edge_types) = papers();
    assert_eq!((types.num_nodes(), types.range(0), types.range(1)), (3, 0..2, 2..3));
    assert_eq!([0, 1, 2].map(|node| types.node_type(node)), [0, 0, 1]);
    assert_eq!((types.ends(0), types.ends(1)), ([0, 0], [1, 0]));
    assert_eq!((types.node_type_of_name("author"), types.node_type_of_name("field")), (Some(1), None));
    assert_eq!(types.edge_types()[1].to_string(), "author-writes-paper");
    assert_eq!(topology.sub_rows(1).collect::<Vec<_>>(), [(0, 1..3)], "no types yet");
    let topology = topology.with_types(types, edge_types).expect("sound");
    let rows = [0, 1, 2].map(|node| topology.sub_rows(node).collect::<Vec<_>>());
    assert_eq!(rows, [vec![(1, 0..1)], vec![(0, 1..2), (1, 2..3)], vec![]]);
}

#[test]
fn unsound_types_are_refused() {
    let refused = |nodes, edges| Types::new(nodes, edges).expect_err("unsound");
    let papers = || vec![node("paper", 2)];
    assert_eq!(refused(vec![], vec![]), "a typed graph without a node type");
    assert_eq!(refused([papers(), papers()].concat(), vec![]), "the node type \"paper\" is listed twice");
    let unknown = refused(papers(), vec![edge("author", "writes", "paper")]);
    let what = "the edge type author-writes-paper is of unknown nodes: there is no node type \"author\"";
    assert_eq!(unknown, what);
    let twice = refused(papers(), vec![edge("paper", "cites", "paper"); 2]);
    assert_eq!(twice, "the edge type paper-cites-paper is listed twice");
    let long = refused(papers(), vec![edge("paper", &"n".repeat(256), "paper")]);
    assert!(long.len() < 200 && long.contains("has 256 bytes, at most 255 are read"), "{long}");
    let many = refused(vec![node("paper", 2), node("author", MAX_NODES - 1)], vec![]);
    assert!(many.contains("\"author\"") && many.contains("32 bits"), "{many}");
}

#[test]
fn edges_of_other_types_are_refused() {
    let fault = |edge_types: Vec<u16>| {
        let (types, topology, _) = papers();
        topology.with_types(types, edge_types).expect_err("unsound")
    };
    assert_eq!(fault(vec![1, 0]), "edge_types, element 0: 2 types of edges for 3 edges");
    assert_eq!(fault(vec![1, 0, 7]), "edge_types, element 2: the edge type 7 does not exist, there are 2");
    let what = "edge_types, element 0: an edge from node 2 (author) to node 0 (paper) has the type paper-cites-paper";
    assert_eq!(fault(vec![0, 0, 1]), what);
    let (types, topology, _) = papers();
    let swapped = Topology::new(topology.indptr().to_vec(), vec![2u32, 2, 0], None).expect("a graph");
    let unsorted = swapped.with_types(types.clone(), vec![1, 1, 0]).expect_err("unsorted");
    assert_eq!(unsorted, "edge_types, element 2: the edges of node 1 are not sorted by type");
    let other = Topology::new(vec![0u64], Vec::<u32>::new(), None).expect("no nodes");
    let what = "edge_types, element 0: the types have 3 nodes, the graph 0";
    assert_eq!(other.with_types(types, Vec::<u16>::new()).expect_err("another graph"), what);
}

#[test]
fn times_are_of_every_node_and_edge() {
    let topology = || papers().1;
    let times = |count: i64| Some(Array::from((0..count).collect::<Vec<i64>>()));
    let timed = topology().with_times(times(3), times(3)).expect("three of both");
    assert_eq!(timed.node_times().map(|times| times[2]), Some(2));
    assert_eq!(timed.edge_times().map(|times| times.len()), Some(3));
    assert_eq!(topology().with_times(times(2), None).expect_err("too few"), "2 times for 3 nodes");
    assert_eq!(topology().with_times(None, times(4)).expect_err("too many"), "4 times for 3 edges");
}

proptest! {
    #[test]
    fn nodes_are_of_the_type_whose_range_has_them(counts in prop::collection::vec(0u64..5, 1..6)) {
        let nodes = counts.iter().enumerate().map(|(i, &count)| node(&i.to_string(), count)).collect();
        let types = Types::new(nodes, vec![]).expect("sound");
        for v in 0..types.num_nodes() as u32 {
            prop_assert!(types.range(types.node_type(v)).contains(&v));
        }
        let text = serde_json::to_string(&types).expect("plain data");
        prop_assert_eq!(serde_json::from_str::<Types>(&text).expect("as written"), types);
    }

    #[test]
    fn sub_rows_divide_a_row_by_type(row in prop::collection::vec(0u16..4, 0..20)) {
        let mut row = row;
        row.sort_unstable();
        let edges = (0..4).map(|i| edge("a", &i.to_string(), "a")).collect();
        let types = Types::new(vec![node("a", 1)], edges).expect("sound");
        let topology = Topology::new(vec![0, row.len() as u64], vec![0u32; row.len()], None).expect("self-loops");
        let topology = topology.with_types(types, row.clone()).expect("sorted");
        let mut end = 0;
        for (edge_type, range) in topology.sub_rows(0) {
            prop_assert_eq!(range.start, end);
            prop_assert!(!range.is_empty() && row[range.clone()].iter().all(|&of| usize::from(of) == edge_type));
            end = range.end;
        }
        prop_assert_eq!(end, row.len());
    }
}

#[test]
fn reverses_are_found_by_name_and_ends() {
    let edges = vec![
        edge("a", "writes", "b"),
        edge("a", "rev_writes", "b"),
        edge("b", "rev_writes", "a"),
        edge("a", "cites", "a"),
        edge("a", "rev_cites", "a"),
        edge("b", "rev_", "a"),
    ];
    let types = Types::new(vec![node("a", 1), node("b", 1)], edges).expect("sound");
    let reverses: Vec<_> = (0..6).map(|edge_type| types.reverse_of(edge_type)).collect();
    assert_eq!(reverses, [Some(2), None, Some(0), Some(4), Some(3), None]);
}
