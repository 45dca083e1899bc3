//! The built graph against a reference.

use morphgl_graph_store::{Dataset, DatasetWriter};
use morphgl_ingest::{CscBuilder, Dropped, DuplicateWeights, EdgeOptions};
use proptest::prelude::*;

type Edge = (u32, u32, f32);

/// The graph's edges in CSC order, and the dropped ones.
fn expected(edges: &[Edge], num_nodes: u32, options: &EdgeOptions) -> (Vec<Edge>, Dropped) {
    let mut all = Vec::new();
    let mut dropped = Dropped { self_loops: 0, duplicates: 0 };
    for &(u, v, w) in edges {
        let (u, v) = if options.reverse { (v, u) } else { (u, v) };
        if u == v && options.drop_self_loops {
            dropped.self_loops += 1;
            continue;
        }
        all.push((u, v, w));
        let adds = options.weighted && options.duplicate_weights == DuplicateWeights::Add;
        if options.symmetrise && (u != v || adds) {
            all.push((v, u, w));
        }
    }
    all.sort_by_key(|&(u, v, _)| (v, u));
    if options.symmetrise || options.drop_duplicates {
        let before = all.len();
        let adds = options.duplicate_weights == DuplicateWeights::Add;
        all.dedup_by(|next, first| {
            let equal = (next.0, next.1) == (first.0, first.1);
            first.2 += if equal && adds && options.weighted { next.2 } else { 0.0 };
            equal
        });
        dropped.duplicates = (before - all.len()) as u64;
    }
    if options.add_self_loops {
        for v in 0..num_nodes {
            if !all.iter().any(|e| (e.0, e.1) == (v, v)) {
                all.push((v, v, 1.0));
            }
        }
        all.sort_by_key(|&(u, v, _)| (v, u));
    }
    (all, dropped)
}

fn actual(edges_pushed: &[Edge], num_nodes: u32, options: &EdgeOptions, piece: usize) -> (Vec<Edge>, Dropped) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut writer = DatasetWriter::create(dir.path().join("graph"), true).expect("it can be made");
    let mut builder = CscBuilder::new("edges".as_ref(), writer.dir().join("edges.spill"), *options).expect("few nodes");
    for edges in edges_pushed.chunks(piece) {
        let (sources, targets): (Vec<u32>, Vec<u32>) = edges.iter().map(|e| (e.0, e.1)).unzip();
        let weights: Vec<f32> = edges.iter().map(|e| e.2).collect();
        builder.push(&sources, &targets, options.weighted.then_some(&weights)).expect("valid edges");
    }
    let dropped = builder.finish(num_nodes.into(), &mut writer, |_| ()).expect("the disk takes the arrays");
    let dataset = Dataset::open(writer.finish("graph", 0, Default::default()).expect("whole"), Default::default());
    let topology = dataset.expect("a dataset").topology;
    let row = |v: u32| topology.edge_range(v).map(move |e| (v, e)).collect::<Vec<_>>();
    let edges = (0..num_nodes).flat_map(row);
    let weight = |e: usize| topology.weights().map_or(1.0, |w| w[e]);
    assert_eq!(topology.edge_ids().is_some(), options.numbered);
    if let Some(ids) = topology.edge_ids() {
        let pushed = |number: u32| {
            let (u, v, weight) = edges_pushed[number as usize];
            if options.reverse { (v, u, weight) } else { (u, v, weight) }
        };
        let mut last = None;
        for (v, e) in (0..num_nodes).flat_map(row) {
            let (u, (from, to, of)) = (topology.indices()[e], pushed(ids[e]));
            assert!(
                (from, to) == (u, v) || options.symmetrise && (to, from) == (u, v),
                "edge {e} is number {}",
                ids[e]
            );
            assert!(
                !options.weighted || options.duplicate_weights == DuplicateWeights::Add || weight(e) == of,
                "edge {e} is number {}",
                ids[e]
            );
            // Equal edges stay in the order they were pushed in; the first of several is kept.
            assert!(last < Some((v, u, ids[e])), "edges of row {v}");
            last = Some((v, u, ids[e]));
        }
    }
    (edges.map(|(v, e)| (topology.indices()[e], v, weight(e))).collect(), dropped)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..Default::default() })]

    #[test]
    fn the_graph_is_that_of_the_reference(
        ids in prop::collection::vec((0u32..50, 0u32..50), 0..2000), flags in any::<[bool; 8]>(), piece in 1usize..3000,
        memory in prop::sample::select(vec![1u64 << 10, 1 << 20]),
    ) {
        let [weighted, symmetrise, reverse, drop_self_loops, drop_duplicates, add_self_loops, adds, numbered] = flags;
        let duplicate_weights = if adds { DuplicateWeights::Add } else { DuplicateWeights::First };
        let edges: Vec<Edge> = ids.iter().zip(0u16..).map(|(&(u, v), i)| (u, v, if weighted { i.into() } else { 1.0 })).collect();
        let options = EdgeOptions {
            num_nodes: Some(50), weighted, numbered: numbered && !add_self_loops, drop_weights: false, symmetrise, reverse,
            drop_self_loops, drop_duplicates, duplicate_weights, add_self_loops, memory,
        };
        prop_assert_eq!(actual(&edges, 50, &options, piece), expected(&edges, 50, &options));
    }
}

#[test]
fn a_faulty_edge_is_named() {
    let options = EdgeOptions {
        num_nodes: Some(3),
        weighted: true,
        numbered: false,
        drop_weights: false,
        symmetrise: false,
        reverse: false,
        drop_self_loops: false,
        drop_duplicates: false,
        duplicate_weights: DuplicateWeights::First,
        add_self_loops: false,
        memory: 1 << 20,
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let check = |targets: &[u32], weights: &[f32], expected: &str| {
        let mut builder = CscBuilder::new("edges".as_ref(), dir.path().join("spill"), options).expect("few nodes");
        builder.push(&[0], &[1], Some(&[1.0])).expect("a valid edge");
        let error = builder.push(&[1, 2], targets, Some(weights)).expect_err("a fault").to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    check(&[0, 3], &[1.0, 1.0], "edges, element 2: the edge 2 -> 3 names a node that does not exist");
    check(&[0, 1], &[f32::NAN, 1.0], "edges, element 1: the weight NaN is not a finite number");
}
