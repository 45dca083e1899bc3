//! `.npz` collections: the real files by their counts, small ones of every layout, and broken ones.

use std::fs;
use std::path::Path;

use crate::data::{failure, npy, write, write_npz};
use crate::le;
use half::f16;
use morphgl_formats::{FeatureNorm, Options, RandomSplit, Silent, npz};
use morphgl_graph_store::{Dataset, Dtype, FeatureMatrix, FeatureView, OpenOptions};
use proptest::prelude::*;

fn import(source: &Path, options: &Options) -> Dataset {
    let tmp = tempfile::tempdir().unwrap();
    let path = npz::import(source, &tmp.path().join("out"), options, &Silent).unwrap();
    Dataset::open(path, OpenOptions::default()).unwrap()
}

/// Number of features that are not 0.
fn nonzero(dataset: &Dataset) -> usize {
    match dataset.features.as_ref().map(|f| f.view()) {
        Some(FeatureView::U8(d)) => d.iter().filter(|&&v| v != 0).count(),
        Some(FeatureView::F32(d)) => d.iter().filter(|&&v| v != 0.0).count(),
        other => panic!("{other:?}"),
    }
}

/// Counts of a published collection: nodes, undirected edges, features, of these not 0, and classes; and the features' type.
type Counts = (usize, usize, usize, usize, usize, Dtype);

#[track_caller]
fn check_counts(source: &Path, (nodes, edges, dim, nnz, classes, dtype): Counts) {
    let dataset = import(source, &Options::default());
    assert_eq!((Path::new(&dataset.name), dataset.num_nodes()), (Path::new(source.file_stem().unwrap()), nodes));
    assert_eq!(dataset.topology.num_edges(), 2 * edges as u64);
    assert_eq!((dataset.feature_dim(), nonzero(&dataset)), (dim, nnz));
    assert_eq!((dataset.num_classes, dataset.features.as_ref().map(FeatureMatrix::dtype)), (classes, Some(dtype)));
    assert!(dataset.topology.weights().is_none() && dataset.splits.train.is_empty());
    for v in 0..nodes as u32 {
        let row = dataset.topology.neighbors(v);
        assert!(row.windows(2).all(|w| w[0] < w[1]), "row {v} is sorted and has no duplicates");
        assert!(!row.contains(&v), "node {v} has no edge to itself");
        assert!(row.iter().all(|&u| dataset.topology.neighbors(u).binary_search(&v).is_ok()), "row {v} is symmetric");
    }
}

#[test]
fn collections_have_their_published_counts() {
    let cora_ml = morphgl_testdata::path("gnn-benchmark-npz/cora_ml.npz");
    check_counts(&cora_ml, (2_995, 8_158, 2_879, 151_171, 7, Dtype::F32));
    for (name, counts) in [
        ("coauthor_phy", (34_493, 247_962, 8_415, 1_137_311, 5, Dtype::U8)),
        ("coauthor_cs", (18_333, 81_894, 6_805, 1_092_079, 15, Dtype::U8)),
        ("amazon_cs", (13_752, 245_861, 767, 3_675_081, 10, Dtype::U8)),
        ("amazon_photo", (7_650, 119_081, 745, 1_979_909, 8, Dtype::U8)),
    ] {
        if let Some(source) = morphgl_testdata::extra(&format!("gnn-benchmark-npz/{name}.npz")) {
            check_counts(&source, counts);
        }
    }
}

#[test]
fn karate_club_has_no_features_and_a_split_on_demand() {
    let source = morphgl_testdata::path("gnn-benchmark-npz/karate_club.npz");
    let split = Some(RandomSplit { train: 0.5, valid: 0.25, test: 0.25, seed: 7 });
    let dataset = import(&source, &Options { split, ..Options::default() });
    assert_eq!((dataset.num_nodes(), dataset.topology.num_edges()), (34, 2 * 78));
    assert!(dataset.features.is_none());
    assert_eq!(dataset.splits.train.len(), 17);
}

/// The three-node graph 0 - 1 - 2 listed one way, with a loop and a duplicate, in plain arrays.
fn plain() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("adj_data", npy("<f4", "(4,)", &le![f32: 1.0, 1.0, 1.0, 1.0])),
        ("adj_indices", npy("<i4", "(4,)", &le![i32: 1, 1, 1, 1])),
        ("adj_indptr", npy("<i4", "(4,)", &le![i32: 0, 2, 3, 4])),
        ("adj_shape", npy("<i8", "(2,)", &le![i64: 3, 3])),
        ("attr_data", npy("<f8", "(2,)", &le![f64: 0.5, 2.0])),
        ("attr_indices", npy("<i4", "(2,)", &le![i32: 1, 0])),
        ("attr_indptr", npy("<i4", "(4,)", &le![i32: 0, 1, 1, 2])),
        ("attr_shape", npy("<i8", "(2,)", &le![i64: 3, 2])),
        ("labels", npy("<i8", "(3,)", &le![i64: 1, 0, 1])),
    ]
}

fn with(name: &str, bytes: Vec<u8>) -> Vec<(&str, Vec<u8>)> {
    let mut arrays: Vec<_> = plain().into_iter().filter(|(n, _)| *n != name).collect();
    arrays.push((name, bytes));
    arrays
}

#[test]
fn plain_arrays_deflated_or_stored_become_an_undirected_graph() {
    let tmp = tempfile::tempdir().unwrap();
    for compressed in [false, true] {
        let source = tmp.path().join("small.npz");
        write_npz(&source, compressed, &plain());
        let dataset = import(&source, &Options::default());
        assert_eq!(dataset.topology.indptr()[..], [0u64, 1, 3, 4][..]);
        assert_eq!(dataset.topology.indices()[..], [1u32, 0, 2, 1][..]);
        assert_eq!(dataset.features.as_ref().unwrap().view(), FeatureView::F32(&[0.0, 0.5, 0.0, 0.0, 2.0, 0.0]));
        assert_eq!(dataset.labels.as_deref(), Some(&[1, 0, 1][..]));
    }
}

#[test]
fn weights_that_are_not_all_one_are_kept() {
    let tmp = tempfile::tempdir().unwrap();
    let source = tmp.path().join("small.npz");
    write_npz(&source, true, &with("adj_data", npy("<f4", "(4,)", &le![f32: 2.0, 9.0, 9.0, 4.0])));
    let dataset = import(&source, &Options::default());
    assert_eq!(dataset.topology.weights().map(|w| &w[..]), Some(&[2.0f32, 2.0, 4.0, 4.0][..]));
}

#[test]
fn dense_features_keep_their_type_or_the_smallest_exact_one() {
    let tmp = tempfile::tempdir().unwrap();
    let source = tmp.path().join("small.npz");
    let mut arrays: Vec<_> = plain().into_iter().filter(|(n, _)| !n.starts_with("attr_")).collect();
    let half = [0.5, 1.0, -2.0].map(f16::from_f32);
    for (matrix, dtype) in [
        (npy("<f4", "(3, 1)", &le![f32: 0.0, 7.0, 255.0]), Dtype::U8),
        (npy("<f4", "(3, 1)", &le![f32: 0.0, 7.5, 255.0]), Dtype::F32),
        (npy("<f4", "(3, 1)", &le![f32: 0.0, 7.0, 256.0]), Dtype::F32),
        (npy("<f2", "(3, 1)", &half.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()), Dtype::F16),
    ] {
        arrays.push(("attr_matrix", matrix));
        write_npz(&source, true, &arrays);
        assert_eq!(import(&source, &Options::default()).features.unwrap().dtype(), dtype);
        arrays.pop();
    }
}

/// A feature that copies or codes the labels is noted, dense or sparse, in any type.
#[test]
fn leaked_labels_are_noted() {
    let tmp = tempfile::tempdir().unwrap();
    let source = tmp.path().join("small.npz");
    let mut arrays: Vec<_> = plain().into_iter().filter(|(n, _)| !n.starts_with("attr_")).collect();
    let notes = |normalize_features: Option<FeatureNorm>| {
        let options = Options { replace: true, normalize_features, ..Options::default() };
        let path = npz::import(&source, &tmp.path().join("out"), &options, &Silent).unwrap();
        let meta = morphgl_graph_store::Meta::read(&path).unwrap();
        meta.provenance.get("notes").map_or(String::new(), ToString::to_string)
    };
    // The labels are 1, 0, 1.
    for (matrix, leaks) in [
        (npy("<f4", "(3, 2)", &le![f32: 5.0, 2.5, 6.0, 7.0, 7.0, 2.5]), "the feature 1 (counted from 0) has one value"),
        (npy("|u1", "(3, 2)", &[1, 9, 0, 8, 1, 7]), "the feature 0 (counted from 0) has one value"),
        (npy("<f2", "(3, 1)", &[0, 0x3c, 0, 0x40, 0, 0x3c]), "the feature 0 (counted from 0) has one value"),
        (npy("<f4", "(3, 2)", &le![f32: 0.0, 1.0, 1.0, 0.0, 0.0, 1.0]), "2 features have one value per class"),
        (npy("<f4", "(3, 2)", &le![f32: 5.0, 1.0, 6.0, 1.0, 7.0, 1.0]), ""),
    ] {
        arrays.push(("attr_matrix", matrix));
        write_npz(&source, true, &arrays);
        for normalized in [None, Some(FeatureNorm::Sum), Some(FeatureNorm::Pyg)] {
            let found = notes(normalized);
            assert!(
                if leaks.is_empty() { !found.contains("per class") } else { found.contains(leaks) },
                "{leaks}: {found}"
            );
        }
        arrays.pop();
    }
}

#[test]
fn impossible_arrays_are_named_with_a_cure() {
    let tmp = tempfile::tempdir().unwrap();
    let (source, target) = (tmp.path().join("small.npz"), tmp.path().join("out"));
    let check = |arrays: Vec<(&str, Vec<u8>)>, what: &str| {
        write_npz(&source, true, &arrays);
        failure(npz::import(&source, &target, &Options::default(), &Silent), &target, what);
    };
    check(with("adj_indices", npy("<i4", "(4,)", &le![i32: 1, 1, 3, 1])), "entry 2 is in column 3, but there are 3");
    check(with("adj_indptr", npy("<i4", "(4,)", &le![i32: 0, 2, 1, 4])), "decreases from 2 to 1");
    check(with("adj_shape", npy("<i8", "(2,)", &le![i64: 3, 4])), "the adjacency matrix is 3 x 4");
    check(with("attr_data", npy("<f4", "(2,)", &le![f32: 1.0, f32::NAN])), "entry 1 is NaN");
    check(with("labels", npy("<i8", "(2,)", &le![i64: 1, 0])), "labels of shape [2] for 3 nodes");
    check(with("labels", npy("<f8", "(3,)", &le![f64: 1.0, 0.5, 0.0])), "the label is 0.5");
    check(with("labels", npy("<i8", "(3,)", &le![i64: 1, -7, 0])), "the label is -7");
    check(with("labels", npy("<i8", "(3,)", &le![i64: 1, 0])), "small.npz/labels.npy, byte");
    check(with("adj_data", npy("<U1", "(4,)", &[0; 16])), "elements of type text or bytes, expected numbers");
    check(with("adj_shape", npy("<i8", "(99999999999999, 99999999999)", &[])), "impossibly large");
    check(with("adj_shape", npy("<i8", "(99999,)", &[0; 80])), "the array ends early");
    check(
        vec![("something", npy("<i8", "(1,)", &[0; 8]))],
        "among the arrays [\"something\"]; this is no gnn-benchmark file; arrays of your own are read",
    );
}

#[test]
fn files_that_are_no_archive_and_missing_ones_are_named() {
    let tmp = tempfile::tempdir().unwrap();
    let target = tmp.path().join("out");
    let run = |source: &Path, what: &str| {
        failure(npz::import(source, &target, &Options::default(), &Silent), &target, what);
    };
    run(&tmp.path().join("none.npz"), "none.npz: no such file or directory; check the path");
    run(tmp.path(), "this is a directory; name the .npz file");
    let source = tmp.path().join("text.npz");
    write(&source, b"this is no archive");
    run(&source, "text.npz: this is no .npz archive; read a list of edges with `morphgl import edges`");
    write(&source, &npy("<i8", "(1,)", &[0; 8]));
    run(&source, "text.npz: this is one array alone; put it into a directory");
    write(&source, b"\x80\x04\x95\x07");
    run(&source, "text.npz: this is a pickle");
    write_npz(&source, true, &plain());
    let bytes = fs::read(&source).unwrap();
    write(&source, &bytes[..bytes.len() - 30]);
    run(&source, "text.npz: not a readable archive");
}

#[test]
fn an_object_array_above_the_memory_limit_and_a_foreign_class_are_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let (source, target) = (tmp.path().join("small.npz"), tmp.path().join("out"));
    write_npz(&source, true, &[("adj_matrix", npy("|O", "()", &[b'N'; 5000]))]);
    let options = Options { memory: 4096, ..Options::default() };
    failure(
        npz::import(&source, &target, &options, &Silent),
        &target,
        "more than 4096 bytes, which must be held whole",
    );
    write_npz(&source, true, &with("adj_data", npy("<f4", "(1000,)", &[0; 4000])));
    failure(
        npz::import(&source, &target, &options, &Silent),
        &target,
        "an array of 1000 elements, which must be held whole",
    );
    write_npz(&source, true, &[("adj_matrix", npy("|O", "()", b"\x80\x03cbuiltins\neval\nX\x01\x00\x00\x001\x85R."))]);
    let what = "adj_matrix.npy, byte 2: the pickle asks for the class \"builtins.eval\", which is refused";
    failure(npz::import(&source, &target, &Options::default(), &Silent), &target, what);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However an archive is cut or altered: an error or a dataset that opens, and no panic.
    #[test]
    fn corrupt_archives_never_panic(
        real_file in any::<bool>(),
        compressed in any::<bool>(),
        cut in proptest::option::weighted(0.3, 0.0..1.0f64),
        changes in proptest::collection::vec((0.0..1.0f64, any::<u8>()), 1..5),
        tail in proptest::collection::vec((0usize..120, any::<u8>()), 0..4),
    ) {
        let tmp = tempfile::tempdir().unwrap();
        let (source, target) = (tmp.path().join("small.npz"), tmp.path().join("out"));
        write_npz(&source, compressed, &plain());
        if real_file {
            write(&source, &fs::read(morphgl_testdata::path("gnn-benchmark-npz/karate_club.npz")).unwrap());
        }
        let mut bytes = crate::data::corrupted(fs::read(&source).unwrap(), cut, &changes, &[]);
        let len = bytes.len();
        for (back, value) in tail {
            if back < len {
                bytes[len - 1 - back] = value;
            }
        }
        write(&source, &bytes);
        match npz::import(&source, &target, &Options::default(), &Silent) {
            Ok(path) => drop(Dataset::open(path, OpenOptions::default()).unwrap()),
            Err(error) => prop_assert!(!error.to_string().contains('\n') && !target.exists(), "{error}"),
        }
    }
}
