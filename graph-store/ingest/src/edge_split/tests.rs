use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use morphgl_graph_store::{Dataset, EdgeType, NodeType, OpenOptions, Types};
use proptest::prelude::*;

use super::*;
use crate::{CscBuilder, EdgeOptions};

const SPLIT: EdgeSplit = EdgeSplit { train: 0.7, valid: 0.1, test: 0.15, seed: 5 };

fn options(symmetrise: bool, memory: u64) -> EdgeOptions {
    EdgeOptions {
        num_nodes: None,
        weighted: true,
        numbered: false,
        drop_weights: false,
        symmetrise,
        reverse: false,
        drop_self_loops: false,
        drop_duplicates: false,
        duplicate_weights: Default::default(),
        add_self_loops: false,
        memory,
    }
}

/// Writes a graph of `num_nodes` nodes, splits it if asked, and opens it.
fn graph(dir: &Path, name: &str, edges: &[(u32, u32)], options: EdgeOptions, split: Option<EdgeSplit>) -> Dataset {
    let num_nodes = 60;
    let mut writer = DatasetWriter::create(dir.join(name), false).expect("a fresh path");
    let mut builder = CscBuilder::new(Path::new("edges"), dir.join("spill"), options).expect("few nodes");
    let [sources, targets]: [Vec<u32>; 2] = [edges.iter().map(|e| e.0).collect(), edges.iter().map(|e| e.1).collect()];
    let weights: Vec<f32> = (0..edges.len()).map(|i| i as f32).collect();
    builder.push(&sources, &targets, Some(&weights)).expect("sound edges");
    builder.finish(num_nodes, &mut writer, |_| {}).expect("room");
    if let Some(split) = split {
        split_edges(&mut writer, &split, |_| {}).expect("room");
    }
    let path = writer.finish(name, 0, Default::default()).expect("sound");
    let names: Vec<_> =
        std::fs::read_dir(&path).expect("there").map(|entry| entry.expect("there").file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("replaced")), "{names:?}");
    Dataset::open(path, OpenOptions::default()).expect("sound")
}

/// The edges of a dataset, with their weights, in order.
fn edges(dataset: &Dataset) -> Vec<(u32, u32, u32)> {
    let topology = &dataset.topology;
    let weights = topology.weights().expect("weighted");
    (0..topology.num_nodes() as u32)
        .flat_map(|v| topology.edge_range(v).map(move |at| (topology.indices()[at], v, weights[at].to_bits())))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn shares_are_exact_and_nothing_of_a_drawn_pair_remains(
        list in prop::collection::vec((0u32..40, 0u32..40), 1..400), symmetrise: bool, seed: u64
    ) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let options = options(symmetrise, 1 << 20);
        let whole = graph(dir.path(), "whole", &list, options, None);
        let split = graph(dir.path(), "split", &list, options, Some(EdgeSplit { seed, ..SPLIT }));
        let symmetric = whole.topology.is_symmetric();
        prop_assert!(symmetric || !symmetrise);
        let pair = |&(u, v, _): &(u32, u32, u32)| if symmetric { (u.min(v), u.max(v)) } else { (u, v) };
        let pairs = |dataset: &Dataset| -> BTreeSet<(u32, u32)> {
            edges(dataset).iter().filter(|edge| edge.0 != edge.1).map(pair).collect()
        };
        let of = |list: &[[u32; 2]]| -> BTreeSet<(u32, u32)> { list.iter().map(|&[u, v]| (u, v)).collect() };
        let (all, train) = (pairs(&whole), pairs(&split));
        let (valid, test) = (of(split.edges.valid_pairs()), of(split.edges.test_pairs()));
        let n = all.len() as f64;
        let end = |share: f64| (share * n).round() as usize;
        prop_assert_eq!(train.len(), end(SPLIT.train));
        prop_assert_eq!(train.len() + valid.len(), end(SPLIT.train + SPLIT.valid));
        prop_assert_eq!(train.len() + valid.len() + test.len(), end(SPLIT.train + SPLIT.valid + SPLIT.test));
        prop_assert_eq!((split.edges.valid_pairs().len(), split.edges.test_pairs().len()), (valid.len(), test.len()));
        for set in [&train, &valid, &test] {
            prop_assert!(set.is_subset(&all));
        }
        prop_assert!(train.is_disjoint(&valid) && train.is_disjoint(&test) && valid.is_disjoint(&test));
        // What remains are the edges of training pairs and the self-loops, in their order, with their weights.
        let remain = edges(&whole).into_iter().filter(|edge| edge.0 == edge.1 || train.contains(&pair(edge)));
        prop_assert_eq!(edges(&split), remain.collect::<Vec<_>>());
        let trained = of(&split.train_pairs());
        prop_assert_eq!(trained, train);
    }
}

#[test]
fn draws_are_those_of_the_seed_on_any_number_of_threads() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // More than one block.
    let list: Vec<(u32, u32)> = (0..100_000u32).map(|i| (i % 59, i / 59 % 60)).collect();
    let draw = |name: &str, threads: usize, memory: u64, seed: u64| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        let split = Some(EdgeSplit { seed, ..SPLIT });
        pool.install(|| graph(dir.path(), name, &list, options(false, memory), split)).path.checksums()
    };
    let first = draw("one", 1, 64 << 20, 1);
    assert_eq!(first, draw("four", 4, 64 << 20, 1));
    assert_eq!(first, draw("little", 3, 1 << 20, 1));
    assert_ne!(first, draw("other", 4, 64 << 20, 2));
    assert!(first.contains_key("valid_edges"));
}

#[test]
fn pairs_are_drawn_with_equal_probability() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // A ring both ways: 60 pairs.
    let list: Vec<(u32, u32)> = (0..60u32).map(|v| (v, (v + 1) % 60)).collect();
    let mut counts = BTreeMap::<[u32; 2], u64>::new();
    let draws = 100;
    for seed in 0..draws {
        let split = Some(EdgeSplit { train: 0.5, valid: 0.5, test: 0.0, seed });
        let dataset = graph(dir.path(), &format!("seed-{seed}"), &list, options(true, 1 << 20), split);
        dataset.edges.valid_pairs().iter().for_each(|&pair| *counts.entry(pair).or_default() += 1);
    }
    // Chi-square of 60 counts of mean 50 and variance 25: its mean is 60, 119 has a probability below 1e-5.
    let chi: f64 = counts.values().map(|&count| (count as f64 - 50.0).powi(2) / 25.0).sum();
    assert!(counts.len() == 60 && chi < 119.0, "{} pairs, {chi}", counts.len());
}

#[test]
fn all_or_none_may_be_drawn() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let list = [(0, 1), (1, 2), (3, 3)];
    let all = EdgeSplit { train: 1.0, valid: 0.0, test: 0.0, seed: 0 };
    let dataset = graph(dir.path(), "all", &list, options(true, 1 << 20), Some(all));
    assert_eq!((dataset.topology.num_edges(), dataset.edges.valid_pairs().len()), (5, 0));
    let none = EdgeSplit { train: 0.0, valid: 0.0, test: 1.0, seed: 0 };
    let dataset = graph(dir.path(), "none", &list, options(true, 1 << 20), Some(none));
    assert_eq!(dataset.edges.test_pairs(), [[0, 1], [1, 2]]);
    assert_eq!(edges(&dataset).iter().map(|e| (e.0, e.1)).collect::<Vec<_>>(), [(3, 3)]);
}

/// A typed graph of 20 nodes `a` and 15 nodes `b`: `x` and its reverse, `y` between the same nodes, and `s` among `a`, symmetric where
/// asked. The weight and the time of an edge are its number.
fn typed(
    dir: &Path,
    name: &str,
    pairs: &[(u32, u32)],
    symmetric: bool,
    split: Option<(EdgeSplit, &[usize])>,
) -> Dataset {
    let node = |name: &str, count| NodeType { name: name.into(), count };
    let edge = |source: &str, name: &str, target: &str| EdgeType {
        source: source.into(),
        name: name.into(),
        target: target.into(),
    };
    let edge_types = vec![edge("a", "x", "b"), edge("b", "rev_x", "a"), edge("a", "y", "b"), edge("a", "s", "a")];
    let types = Types::new(vec![node("a", 20), node("b", 15)], edge_types).expect("sound");
    // Target, type, source.
    let mut edges = Vec::new();
    for &(u, v) in pairs {
        edges.extend([(20 + v, 0, u), (u, 1, 20 + v)]);
        if (u + v) % 3 == 0 {
            edges.push((20 + v, 2, u));
        }
        edges.push((u, 3, v));
        edges.extend(symmetric.then_some((v, 3, u)));
    }
    edges.sort_unstable();
    let mut writer = DatasetWriter::create(dir.join(name), false).expect("a fresh path");
    writer.set_types(types);
    let indptr: Vec<u64> = (0..=35).map(|row| edges.partition_point(|edge| edge.0 < row) as u64).collect();
    writer.array("indptr", &indptr, None).expect("room");
    writer.array("indices", &edges.iter().map(|edge| edge.2).collect::<Vec<u32>>(), None).expect("room");
    writer.array("edge_types", &edges.iter().map(|edge| edge.1).collect::<Vec<u16>>(), None).expect("room");
    writer.array("weights", &(0..edges.len()).map(|at| at as f32).collect::<Vec<f32>>(), None).expect("room");
    writer.array("edge_times", &(0..edges.len() as i64).collect::<Vec<i64>>(), None).expect("room");
    if let Some((split, edge_types)) = split {
        let of = |edge_type| SplitType { edge_type, reverse: writer.types().expect("typed").reverse_of(edge_type) };
        let types: Vec<SplitType> = edge_types.iter().map(|&edge_type| of(edge_type)).collect();
        split_edges_of_types(&mut writer, &split, &types, |_| {}).expect("room");
    }
    Dataset::open(writer.finish(name, 0, Default::default()).expect("sound"), OpenOptions::default()).expect("sound")
}

/// Source, target, type, weight and time of each edge, in order.
fn typed_edges(dataset: &Dataset) -> Vec<(u32, u32, u16, u32, i64)> {
    let topology = &dataset.topology;
    let (types, times) = (topology.edge_types().expect("types"), topology.edge_times().expect("times"));
    let ends = edges(dataset).into_iter();
    ends.zip(types.iter().zip(times.iter())).map(|((u, v, weight), (&of, &time))| (u, v, of, weight, time)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn pairs_of_an_edge_type_leave_with_their_reverses_alone(
        list in prop::collection::vec((0u32..15, 0u32..15), 1..150), symmetric: bool, seed: u64,
        edge_type in prop::sample::select(vec![0usize, 1, 3])
    ) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let whole = typed(dir.path(), "whole", &list, symmetric, None);
        let split = typed(dir.path(), "split", &list, symmetric, Some((EdgeSplit { seed, ..SPLIT }, &[edge_type])));
        let all = typed_edges(&whole);
        let of_type: BTreeSet<(u32, u32)> =
            all.iter().filter(|edge| usize::from(edge.2) == edge_type && edge.0 != edge.1).map(|e| (e.0, e.1)).collect();
        let undirected = edge_type == 3 && of_type.iter().all(|&(u, v)| of_type.contains(&(v, u)));
        let reverse = [Some(1), Some(0), None, None][edge_type];
        let pair = |u: u32, v: u32| if undirected { (u.min(v), u.max(v)) } else { (u, v) };
        let pairs: BTreeSet<(u32, u32)> = of_type.iter().map(|&(u, v)| pair(u, v)).collect();
        let listed = |list: &[[u32; 2]]| -> Vec<(u32, u32)> { list.iter().map(|&[u, v]| (u, v)).collect() };
        let train = split.edges.train.as_deref().expect("training pairs are written").as_chunks().0;
        let shares = [train, split.edges.valid_pairs(), split.edges.test_pairs()].map(listed);
        let mut ends = 0;
        for (list, share) in shares.iter().zip([SPLIT.train, SPLIT.train + SPLIT.valid, SPLIT.train + SPLIT.valid + SPLIT.test]) {
            ends += list.len();
            prop_assert_eq!(ends, (share * pairs.len() as f64).round() as usize);
        }
        let distinct: BTreeSet<(u32, u32)> = shares.concat().into_iter().collect();
        prop_assert!(distinct.len() == ends && distinct.is_subset(&pairs));
        let train: BTreeSet<(u32, u32)> = shares[0].iter().copied().collect();
        let remains = |&&(u, v, of, ..): &&(u32, u32, u16, u32, i64)| match usize::from(of) {
            of if of == edge_type => u == v || train.contains(&pair(u, v)),
            of if Some(of) == reverse => train.contains(&pair(v, u)),
            _ => true,
        };
        let remain: Vec<_> = all.iter().filter(remains).copied().collect();
        prop_assert_eq!(typed_edges(&split), remain);
        let of_pairs = split.edges.types.iter().map(|types| types.as_deref().expect("types of pairs"));
        prop_assert!(of_pairs.flatten().all(|&of| usize::from(of) == edge_type));
    }

    #[test]
    fn pairs_of_all_edge_types_are_the_edges_of_each(
        list in prop::collection::vec((0u32..15, 0u32..15), 1..150), symmetric: bool, seed: u64
    ) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let whole = typed(dir.path(), "whole", &list, symmetric, None);
        let split = typed(dir.path(), "split", &list, symmetric, Some((EdgeSplit { seed, ..SPLIT }, &[0, 2, 3])));
        let all = typed_edges(&whole);
        let listed: Vec<Vec<(u32, u32, u16)>> = [
            split.edges.train.as_deref().expect("training pairs are written").as_chunks().0,
            split.edges.valid_pairs(),
            split.edges.test_pairs(),
        ]
        .into_iter()
        .zip(&split.edges.types)
        .map(|(pairs, types)| pairs.iter().zip(&**types.as_ref().expect("types")).map(|(&[u, v], &of)| (u, v, of)).collect())
        .collect();
        // Each edge is in one list, but those of no share, and what remains are those of the first.
        let sets: Vec<BTreeSet<(u32, u32, u16)>> = listed.iter().map(|list| list.iter().copied().collect()).collect();
        let edges: BTreeSet<(u32, u32, u16)> = all.iter().map(|edge| (edge.0, edge.1, edge.2)).collect();
        let num_listed: usize = listed.iter().map(Vec::len).sum();
        let union: BTreeSet<_> = sets.iter().flatten().copied().collect();
        prop_assert!(union.len() == num_listed && union.is_subset(&edges));
        let remain: Vec<_> = all.iter().filter(|edge| sets[0].contains(&(edge.0, edge.1, edge.2))).copied().collect();
        prop_assert_eq!(typed_edges(&split), remain);
        let s: BTreeSet<(u32, u32)> = edges.iter().filter(|edge| edge.2 == 3).map(|edge| (edge.0, edge.1)).collect();
        let undirected = s.iter().all(|&(u, v)| s.contains(&(v, u)));
        // Reverses are in the same list.
        for set in &sets {
            for &(u, v, of) in set {
                let reverse = [Some(1), Some(0), None, undirected.then_some(3)][usize::from(of)];
                prop_assert!(reverse.is_none_or(|reverse| set.contains(&(v, u, reverse))), "{u} {v} {of}");
            }
        }
        // Shares are those of each type.
        for of in [0, 2, 3] {
            let is_drawn = |&&(u, v, own): &&(u32, u32, u16)| own == of && u != v && (of != 3 || !undirected || u < v);
            let count = |set: &BTreeSet<(u32, u32, u16)>| set.iter().filter(is_drawn).count();
            let (n, mut end) = (count(&edges) as f64, 0);
            for (set, share) in sets.iter().zip([SPLIT.train, SPLIT.train + SPLIT.valid, SPLIT.train + SPLIT.valid + SPLIT.test]) {
                end += count(set);
                prop_assert_eq!(end, (share * n).round() as usize, "type {}", of);
            }
        }
    }
}

#[test]
fn edges_of_several_types_are_split_by_name_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut writer = DatasetWriter::create(dir.path().join("typed"), false).expect("a fresh path");
    writer.array("indptr", &[0u64, 1, 1], None).expect("room");
    writer.array("indices", &[1u32], None).expect("room");
    writer.array("edge_types", &[0u16], None).expect("room");
    let error = split_edges(&mut writer, &SPLIT, |_| {}).expect_err("refused").to_string();
    assert!(error.contains("several types") && error.contains("name the edge type"), "{error}");
}
