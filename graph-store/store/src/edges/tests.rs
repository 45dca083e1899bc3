use super::*;

fn topology(rows: &[&[u32]]) -> Topology {
    let mut indptr = vec![0u64];
    rows.iter().for_each(|row| indptr.push(indptr[indptr.len() - 1] + row.len() as u64));
    Topology::new(indptr, rows.concat(), None).expect("a graph")
}

#[test]
fn training_pairs_are_the_edges() {
    let none = EdgeSplits::default();
    // Directed: 2 -> 0, 0 -> 1, 2 -> 1, and a self-loop.
    let directed = topology(&[&[2], &[0, 1, 2], &[]]);
    assert!(!directed.is_symmetric());
    assert_eq!(*none.train_pairs(&directed), [[2, 0], [0, 1], [2, 1]]);
    // Symmetric: a path, twice from 0 to 1, and a self-loop.
    let symmetric = topology(&[&[1, 1], &[0, 2, 0, 1], &[1]]);
    assert!(symmetric.is_symmetric());
    assert_eq!(*none.train_pairs(&symmetric), [[0, 1], [0, 1], [1, 2]]);
    // As many edges both ways, but not of the same nodes.
    assert!(!topology(&[&[1, 1], &[0], &[1]]).is_symmetric());
    let given = EdgeSplits { train: Some(vec![1, 2].into()), ..none };
    assert_eq!(*given.train_pairs(&directed), [[1, 2]]);
}

#[test]
fn a_reordered_graph_has_the_same_training_pairs() {
    // Node v of the path 0 - 1 - 2 - 3 is node `of_old[v]` now.
    let of_old = [2u32, 0, 3, 1];
    let keys = [1u32, 3, 0, 2];
    let path = topology(&[&[1], &[0, 2], &[1, 3], &[2]]);
    let reordered = topology(&[&[2, 3], &[3], &[0], &[0, 1]]).with_draw_keys(keys.to_vec()).expect("a permutation");
    let none = EdgeSplits::default();
    let renamed: Vec<[u32; 2]> = none.train_pairs(&path).iter().map(|pair| pair.map(|v| of_old[v as usize])).collect();
    assert_eq!(*none.train_pairs(&reordered), renamed);
}

#[test]
fn negatives_belong_to_one_pair_or_to_all() {
    let pairs = [[0, 1], [2, 1]];
    assert_eq!(negatives_per_pair(&pairs, &[[0, 2], [0, 0], [2, 0], [2, 2]]), Some(2));
    assert_eq!(negatives_per_pair(&pairs, &[[0, 2], [2, 0], [0, 0], [2, 2]]), None);
    assert_eq!(negatives_per_pair(&pairs, &[[0, 2]]), None);
    assert_eq!(negatives_per_pair(&[], &[[0, 2]]), None);
    assert_eq!(negatives_per_pair(&pairs, &[]), None);
}

#[test]
fn faults_name_array_and_element() {
    let fault = |splits: EdgeSplits| splits.check(3).expect_err("unsound");
    let none = EdgeSplits::default;
    assert_eq!(none().check(0), Ok(()));
    let odd = fault(EdgeSplits { valid: vec![0, 1, 2].into(), ..none() });
    assert_eq!(odd, "valid_edges, element 2: the last node has no partner");
    let absent = fault(EdgeSplits { train: Some(vec![0, 1, 2, 3].into()), ..none() });
    assert_eq!(absent, "train_edges, element 3: node 3 does not exist, there are 3");
    let orphan = fault(EdgeSplits { test_negatives: Some(vec![0, 1].into()), ..none() });
    assert_eq!(orphan, "test_edges_negatives, element 0: negatives of no pairs");
    // The graph's own edges have no order that is known beside it.
    let of_edges = fault(EdgeSplits { train_negatives: Some(vec![0, 1].into()), ..none() });
    assert_eq!(of_edges, "train_edges_negatives, element 0: negatives of no pairs");
    let against = |negatives: &[u32]| {
        let (train, negatives) = (Some(vec![0, 1, 2, 0].into()), Some(negatives.to_vec().into()));
        EdgeSplits { train, train_negatives: negatives, ..none() }
    };
    assert_eq!(against(&[0, 2, 0, 0, 2, 1, 2, 2]).check(3), Ok(()));
    let other = fault(against(&[0, 2, 0, 0, 2, 1, 0, 2]));
    assert_eq!(other, "train_edges_negatives, element 6: a negative of the pair 2,0 has the source 0, not 2");
    let uneven = fault(against(&[0, 2, 0, 0, 2, 1]));
    assert_eq!(uneven, "train_edges_negatives, element 0: 3 negatives of 2 pairs are not as many for each");
    assert_eq!(fault(against(&[])), "train_edges_negatives, element 0: there are none");
}

#[test]
fn labelled_pairs_have_a_row_each() {
    let matrix = |values: &[f32], dim| TargetMatrix::new(values.to_vec(), dim).expect("rows");
    let labels = |labels: &[i32]| PairTargets { labels: Some(labels.to_vec().into()), values: None };
    let values = |values: &[f32], dim| PairTargets { labels: None, values: Some(matrix(values, dim)) };
    let of = |train, valid| EdgeSplits {
        train: Some(vec![0, 1, 2, 0].into()),
        valid: vec![1, 2].into(),
        targets: [train, valid, PairTargets::default()],
        ..EdgeSplits::default()
    };
    let splits = of(labels(&[-1, 0]), labels(&[3]));
    assert_eq!((splits.check(3), splits.num_classes(), splits.target_dim()), (Ok(()), 4, 0));
    let splits = of(values(&[0.0, f32::NAN, 1.0, 2.0], 2), PairTargets::default());
    assert_eq!((splits.check(3), splits.num_classes(), splits.target_dim()), (Ok(()), 0, 2));
    assert_eq!(EdgeSplits::default().num_classes(), 0);
    let fault = |splits: EdgeSplits| splits.check(3).expect_err("unsound");
    let few = fault(of(labels(&[0]), PairTargets::default()));
    assert_eq!(few, "train_edges_labels, element 0: it has 1 rows, and there are 2 pairs");
    let low = fault(of(labels(&[0, -2]), PairTargets::default()));
    assert_eq!(low, "train_edges_labels, element 1: the label is -2, neither -1 (none) nor a class");
    let other = fault(of(values(&[0.0; 4], 2), values(&[0.0], 1)));
    assert_eq!(other, "valid_edges_targets, element 0: rows of 1 targets, those of another split have 2");
}

/// Users 0 and 1, items 2 to 4: `buys` and `views` from users to items, `rev_buys` back.
fn shop() -> Topology {
    use crate::{EdgeType, NodeType};
    let nodes = [("user", 2), ("item", 3)].map(|(name, count)| NodeType { name: name.into(), count });
    let edge = |source: &str, name: &str, target: &str| EdgeType {
        source: source.into(),
        name: name.into(),
        target: target.into(),
    };
    let edges = vec![edge("user", "buys", "item"), edge("user", "views", "item"), edge("item", "rev_buys", "user")];
    let types = Types::new(nodes.into(), edges).expect("types");
    topology(&[&[2], &[3], &[0, 0, 1], &[1], &[]])
        .with_types(types, vec![2, 2, 0, 1, 1, 0])
        .expect("edges of their types")
}

#[test]
fn training_pairs_have_the_types_of_their_edges() {
    let (shop, none) = (shop(), EdgeSplits::default());
    assert_eq!(*none.train_pairs(&shop), [[2, 0], [3, 1], [0, 2], [0, 2], [1, 2], [1, 3]]);
    assert_eq!(none.train_pair_types(&shop).as_deref(), Some(&[2u16, 2, 0, 1, 1, 0][..]));
    assert_eq!(none.train_pair_types(&topology(&[&[], &[0]])), None, "a graph without types");
    let untyped = EdgeSplits { valid: vec![0, 4].into(), ..none.clone() };
    assert_eq!(untyped.train_pair_types(&shop), None, "links whatever their type");
    let given = EdgeSplits { train: Some(vec![0, 4].into()), types: [Some(vec![1].into()), None, None], ..none };
    assert_eq!(given.train_pair_types(&shop).as_deref(), Some(&[1u16][..]));
}

#[test]
fn types_of_pairs_are_checked() {
    let shop = shop();
    let of = |valid: &[u32], types: &[u16]| {
        let types = [None, Some(types.to_vec().into()), None];
        EdgeSplits { valid: valid.to_vec().into(), types, ..EdgeSplits::default() }
    };
    let fault = |splits: EdgeSplits| splits.check_types(shop.types().map(|types| &**types)).expect_err("unsound");
    assert_eq!(of(&[0, 4, 4, 1], &[1, 2]).check_types(shop.types().map(|types| &**types)), Ok(()));
    assert_eq!(EdgeSplits::default().check_types(None), Ok(()));
    assert!(of(&[0, 1], &[0]).check_types(None).expect_err("no types").contains("without edge types"));
    let absent = fault(of(&[0, 4], &[3]));
    assert_eq!(absent, "valid_edges_types, element 0: the edge type 3 does not exist, there are 3");
    let other = fault(of(&[0, 4, 0, 4], &[0, 2]));
    let what = "the pair 0,4 has the type item-rev_buys-user, which leads between other nodes";
    assert_eq!(other, format!("valid_edges_types, element 1: {what}"));
    assert!(fault(of(&[0, 4], &[0, 0])).contains("it has 2 elements, and there are 1 pairs"));
    let some = fault(EdgeSplits { test: vec![0, 3].into(), ..of(&[0, 4], &[0]) });
    assert!(some.contains("the pairs of test_edges have no types"), "{some}");
    let shared = fault(EdgeSplits { valid_negatives: Some(vec![1, 4].into()), ..of(&[0, 4], &[0]) });
    assert!(shared.starts_with("valid_edges_negatives") && shared.contains("one pair each"), "{shared}");
}
