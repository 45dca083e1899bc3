//! The pipeline against a reference in memory, for every budget; features, labels and splits.

use std::path::Path;

use crate::support::{edges, ingest};
use morphgl_formats::{FeatureNorm, Ingest, Options, RandomFeatures, RandomSplit, Silent};
use morphgl_graph_store::{Dataset, Dtype, FeatureView, Result};
use proptest::prelude::*;

/// The graph by the definition of the options, in the simplest code.
fn reference(input: &[(u32, u32, f32)], num_nodes: u32, options: &Options) -> Vec<(u32, u32, f32)> {
    let mut all = Vec::new();
    for &(u, v, w) in input.iter().filter(|e| !options.drop_self_loops || e.0 != e.1) {
        all.push((u, v, w));
        if options.symmetrise {
            all.push((v, u, w));
        }
    }
    if options.symmetrise || options.drop_duplicates {
        let mut seen = std::collections::HashSet::new();
        all.retain(|e| seen.insert((e.0, e.1)));
    }
    if options.add_self_loops {
        let missing: Vec<u32> = (0..num_nodes).filter(|&v| !all.iter().any(|e| e.0 == v && e.1 == v)).collect();
        all.extend(missing.into_iter().map(|v| (v, v, 1.0)));
    }
    all.sort_by_key(|e| (e.1, e.0));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_budget_gives_the_reference(
        pairs in prop::collection::vec((0u32..12, 0u32..12), 1..200),
        memory in prop::sample::select(vec![0u64, 2_000, 1 << 20]),
        (symmetrise, drop_self_loops, drop_duplicates, add_self_loops, weighted) in any::<(bool, bool, bool, bool, bool)>(),
    ) {
        let options = Options { symmetrise, drop_self_loops, drop_duplicates, add_self_loops, memory, ..Options::default() };
        let input: Vec<_> = pairs.iter().enumerate().map(|(i, &(u, v))| (u, v, if weighted { i as f32 } else { 1.0 })).collect();
        let dataset = ingest(&input, Some(14), weighted, &options);
        prop_assert_eq!(dataset.num_nodes(), 14);
        prop_assert_eq!(dataset.topology.weights().is_some(), weighted);
        prop_assert_eq!(edges(&dataset), reference(&input, 14, &options));
    }
}

#[test]
fn the_highest_id_gives_the_number_of_nodes() {
    let dataset = ingest(&[(0, 5, 1.0), (3, 0, 1.0)], None, false, &Options::default());
    assert_eq!(dataset.num_nodes(), 6);
    assert_eq!(edges(&dataset), [(3, 0, 1.0), (0, 5, 1.0)]);
}

#[test]
fn weights_can_be_dropped() {
    let options = Options { drop_weights: true, ..Options::default() };
    assert_eq!(ingest(&[(0, 1, -2.0)], None, true, &options).topology.weights(), None);
}

/// A path of four nodes, and the data that `add` adds.
fn path(options: &Options, add: impl FnOnce(&mut Ingest<'_>) -> Result<()>) -> Result<Dataset> {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("path");
    let mut ingest = Ingest::new(Path::new("raw/path.txt"), &target, options, &Silent)?;
    let mut sink = ingest.edges(Path::new("path.txt"), None, false)?;
    sink.push(&[0, 1, 2], &[1, 2, 3], None)?;
    assert_eq!(sink.finish()?, 4);
    add(&mut ingest)?;
    Dataset::open(ingest.finish()?, Default::default())
}

#[track_caller]
fn check_refused(expected: &str, options: &Options, add: impl FnOnce(&mut Ingest<'_>) -> Result<()>) {
    assert_eq!(path(options, add).unwrap_err().to_string(), expected);
}

#[test]
fn features_are_narrowed_and_normalised() {
    let rows = [1.0, 3.0, 0.0, 0.0, 2.0, 0.0, 5.0, 5.0];
    let features = |ingest: &mut Ingest<'_>| {
        let mut sink = ingest.features(Path::new("x.npy"), 2, Dtype::F32)?;
        sink.push(&rows[..2])?;
        sink.push(&rows[2..])?;
        sink.finish()
    };
    let keep = path(&Options::default(), features).unwrap();
    assert_eq!(keep.name, "path");
    assert_eq!(keep.features.unwrap().view(), FeatureView::F32(&rows));
    let bytes = Options { feature_dtype: Some(Dtype::U8), ..Options::default() };
    assert_eq!(path(&bytes, features).unwrap().features.unwrap().view(), FeatureView::U8(&[1, 3, 0, 0, 2, 0, 5, 5]));
    let shares =
        Options { normalize_features: Some(FeatureNorm::Sum), feature_dtype: Some(Dtype::F16), ..Options::default() };
    let mut wide = [0.0; 8];
    path(&shares, features).unwrap().features.unwrap().view().to_f32(&mut wide);
    assert_eq!(wide, [0.25, 0.75, 0.0, 0.0, 1.0, 0.0, 0.5, 0.5]);
}

#[test]
fn features_are_normalised_from_the_lowest_value_as_pyg_does() {
    let rows = [-1.0, 3.0, 0.0, 0.0, -0.75, -1.0, -1.0, -1.0];
    let features = |ingest: &mut Ingest<'_>| {
        let mut sink = ingest.features(Path::new("x.npy"), 2, Dtype::F32)?;
        sink.push(&rows[..2])?;
        sink.push(&rows[2..])?;
        sink.finish()
    };
    let options = Options { normalize_features: Some(FeatureNorm::Pyg), ..Options::default() };
    let expected = [0.0, 1.0, 0.5, 0.5, 0.25, 0.0, 0.0, 0.0];
    assert_eq!(path(&options, features).unwrap().features.unwrap().view(), FeatureView::F32(&expected));
    check_refused(
        "x.npy, element 1: the feature of node 0, column 1 is NaN, not a finite number; clean the data",
        &options,
        |ingest| ingest.features(Path::new("x.npy"), 2, Dtype::F32)?.push(&[0.0, f32::NAN]),
    );
}

#[test]
fn bad_values_are_named() {
    let push = |values: &'static [f32]| {
        move |ingest: &mut Ingest<'_>| {
            let mut sink = ingest.features(Path::new("x.npy"), 2, Dtype::F32)?;
            sink.push(&[0.0, 1.0])?;
            sink.push(values)?;
            sink.finish()
        }
    };
    let dtype = |dtype| Options { feature_dtype: Some(dtype), ..Options::default() };
    check_refused(
        "x.npy, element 5: the feature of node 2, column 1 is NaN, not a finite number; clean the data",
        &Options { normalize_features: Some(FeatureNorm::Sum), ..Options::default() },
        push(&[0.0, 1.0, 2.0, f32::NAN, 0.0, 0.0]),
    );
    check_refused(
        "x.npy, element 3: the feature of node 1, column 1 is 70000, which f16 cannot hold; choose the feature type f32",
        &dtype(Dtype::F16),
        push(&[0.0, 70_000.0]),
    );
    check_refused(
        "x.npy, element 2: the feature of node 1, column 0 is 0.5, which u8 cannot hold; choose the feature type f32",
        &dtype(Dtype::U8),
        push(&[0.5, 1.0]),
    );
    check_refused(
        "x.npy: features for 2 nodes, but the graph has 4; give every node its row",
        &Options::default(),
        push(&[0.5, 1.0]),
    );
    let none = &Options::default();
    check_refused(
        "y.npy, element 1: the label of node 1 is 3, outside -1 (none) and 0..3; number the classes from 0, and write -1 for nodes without a label",
        none,
        |i| i.labels(Path::new("y.npy"), &[-1, 3, 0, 0], Some(3)),
    );
    check_refused(
        "y.npy, element 0: the label of node 0 is -2, outside -1 (none) and 0..1; number the classes from 0, and write -1 for nodes without a label",
        none,
        |i| i.labels(Path::new("y.npy"), &[-2, 0, 0, 0], None),
    );
    check_refused("y.npy: labels for 3 nodes, but the graph has 4; give every node its row", none, |i| {
        i.labels(Path::new("y.npy"), &[0, 1, 0], None)
    });
    check_refused(
        "split: the split has node 4, but there are 4 nodes; correct the split or pass a random one",
        none,
        |i| i.splits(Path::new("split"), &[0], &[4], &[]),
    );
    check_refused(
        "e.txt, element 1: the edge 1 -> 9 names a node that does not exist, there are 4 nodes; \
         correct the edge or the number of nodes",
        none,
        |i| i.edges(Path::new("e.txt"), Some(4), false)?.push(&[0, 1], &[1, 9], None),
    );
    check_refused(
        "e.txt, element 1: the weight -1 is not a finite number of at least 0; correct it, or import with --drop-weights",
        none,
        |i| i.edges(Path::new("e.txt"), Some(4), true)?.push(&[0, 1], &[1, 2], Some(&[1.0, -1.0])),
    );
    check_refused("e.txt: there is no edge; check that this is the right file and format", none, |i| {
        i.edges(Path::new("e.txt"), None, false)?.finish().map(|_| ())
    });
}

#[test]
fn contradicting_options_are_refused() {
    let split =
        |train, valid, test| Options { split: Some(RandomSplit { train, valid, test, seed: 0 }), ..Options::default() };
    let nothing = |_: &mut Ingest<'_>| Ok(());
    check_refused(
        "--split: the shares are 0.6, 0.3 and 0.2; give three numbers of at least 0 that sum to at most 1",
        &split(0.6, 0.3, 0.2),
        nothing,
    );
    check_refused(
        "--dtype: features cannot be i64; use f32, f16, bf16 or u8",
        &Options { feature_dtype: Some(Dtype::I64), ..Options::default() },
        nothing,
    );
    check_refused(
        "--dtype: normalised features are fractions, which u8 cannot hold; use f32, f16 or bf16",
        &Options { feature_dtype: Some(Dtype::U8), normalize_features: Some(FeatureNorm::Sum), ..Options::default() },
        nothing,
    );
}

#[test]
fn random_splits_cover_the_labelled_nodes_and_replace_the_sources_own() {
    let options =
        Options { split: Some(RandomSplit { train: 0.5, valid: 0.25, test: 0.25, seed: 3 }), ..Options::default() };
    let add = |i: &mut Ingest<'_>| {
        i.splits(Path::new("split"), &[0], &[1], &[2])?;
        i.labels(Path::new("y"), &[0, -1, 1, 1], None)
    };
    let splits = path(&options, add).unwrap().splits;
    assert_eq!(splits, path(&options, add).unwrap().splits, "the same seed, the same split");
    let mut all = [&splits.train[..], &splits.valid, &splits.test].concat();
    all.sort_unstable();
    assert_eq!(all, [0, 2, 3]);
    assert_eq!((splits.train.len(), splits.valid.len(), splits.test.len()), (2, 0, 1));
    let own = path(&Options::default(), add).unwrap().splits;
    assert_eq!((&own.train[..], &own.valid[..], &own.test[..]), (&[0][..], &[1][..], &[2][..]));
    let none = path(&options, |_| Ok(())).unwrap().splits;
    assert_eq!((none.train.len(), none.valid.len(), none.test.len()), (2, 1, 1));
}

#[test]
fn random_features_are_a_function_of_the_seed_and_only_for_graphs_without() {
    let wanted =
        |dtype, seed| Options { random_features: Some(RandomFeatures { dim: 3, dtype, seed }), ..Options::default() };
    let nothing = |_: &mut Ingest<'_>| Ok(());
    let (a, b) = (wanted(Dtype::F16, 1), wanted(Dtype::F16, 2));
    let features = |o: &Options| path(o, nothing).unwrap().features.unwrap();
    assert_eq!((features(&a).dtype(), features(&a).dim(), features(&a).num_rows()), (Dtype::F16, 3, 4));
    assert_eq!(features(&a), features(&a));
    assert_ne!(features(&a), features(&b));
    assert_eq!(features(&wanted(Dtype::U8, 1)).dtype(), Dtype::U8);
    let own = path(&a, |i| {
        let mut sink = i.features(Path::new("x"), 1, Dtype::F32)?;
        sink.push(&[1.0, 2.0, 3.0, 4.0])?;
        sink.finish()
    });
    assert_eq!(own.unwrap().features.unwrap().view(), FeatureView::F32(&[1.0, 2.0, 3.0, 4.0]));
}
