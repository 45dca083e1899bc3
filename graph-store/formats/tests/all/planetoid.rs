//! Planetoid: the real files against the arrays published beside them, and every way they can be broken.

use std::fs;
use std::path::{Path, PathBuf};

use crate::data::{failure, write};
use morphgl_formats::{FeatureNorm, Options, RandomSplit, Silent, planetoid};
use morphgl_graph_store::{Dataset, Element, FeatureMatrix, Load, OpenOptions, read_npy};
use proptest::prelude::*;

const ENDINGS: [&str; 8] = ["x", "y", "tx", "ty", "allx", "ally", "graph", "test.index"];

fn import(source: &Path, target: &Path, options: &Options) -> Dataset {
    let path = planetoid::import(source, target, options, &Silent).unwrap();
    Dataset::open(path, OpenOptions::default()).unwrap()
}

fn expected<T: Element>(dir: &Path, name: &str) -> Vec<T> {
    read_npy::<T>(&dir.join(format!("{name}.npy")), Load::Ram).unwrap().0.to_vec()
}

#[track_caller]
fn check(name: &str, num_classes: usize, train: usize) {
    let root = morphgl_testdata::path("planetoid");
    let tmp = tempfile::tempdir().unwrap();
    let dataset = import(&root.join(format!("ind.{name}")), &tmp.path().join("out"), &Options::default());
    let dir = root.join("expected").join(name);
    assert_eq!(dataset.name, name);
    assert_eq!(dataset.num_classes, num_classes);
    assert_eq!(dataset.splits.train.len(), train);
    assert_eq!(dataset.topology.indptr()[..], expected::<u64>(&dir, "indptr.u64")[..]);
    assert_eq!(dataset.topology.indices()[..], expected::<u32>(&dir, "indices.u32")[..]);
    assert!(dataset.topology.weights().is_none());
    assert_eq!(dataset.labels.as_deref().unwrap(), expected::<i32>(&dir, "labels.i32"));
    for (part, file) in
        [(&dataset.splits.train, "train.u32"), (&dataset.splits.valid, "val.u32"), (&dataset.splits.test, "test.u32")]
    {
        assert_eq!(**part, expected::<u32>(&dir, file)[..], "{file}");
    }
    let indptr = expected::<u64>(&dir, "feat.indptr.u64");
    let (cols, values) = (expected::<u32>(&dir, "feat.indices.u32"), expected::<f32>(&dir, "feat.values.f32"));
    let Some(FeatureMatrix::F32 { data, dim }) = &dataset.features else { panic!("{:?}", dataset.features) };
    let mut row = vec![0.0; *dim];
    for v in 0..dataset.num_nodes() {
        row.fill(0.0);
        for i in indptr[v] as usize..indptr[v + 1] as usize {
            row[cols[i] as usize] = values[i];
        }
        assert_eq!(data[v * dim..(v + 1) * dim], row, "features of node {v}");
    }
}

#[test]
fn cora_is_the_published_one() {
    check("cora", 7, 140);
}

#[test]
fn citeseer_with_its_gaps_is_the_published_one() {
    check("citeseer", 6, 120);
}

#[test]
fn a_random_split_and_row_normalisation_replace_the_sources() {
    let root = morphgl_testdata::path("planetoid");
    let tmp = tempfile::tempdir().unwrap();
    let split = Some(RandomSplit { train: 0.6, valid: 0.2, test: 0.2, seed: 1 });
    let options = Options { split, normalize_features: Some(FeatureNorm::Sum), ..Options::default() };
    let dataset = import(&root.join("ind.citeseer"), &tmp.path().join("out"), &options);
    let labelled = dataset.labels.as_deref().unwrap().iter().filter(|&&l| l >= 0).count();
    assert_eq!(labelled, 3312);
    assert!(dataset.splits.train.len().abs_diff(labelled * 6 / 10) <= 1);
    let Some(FeatureMatrix::F32 { data, dim }) = &dataset.features else { panic!("{:?}", dataset.features) };
    let sums = data.chunks(*dim).map(|row| row.iter().sum::<f32>());
    assert_eq!(sums.filter(|s| (s - 1.0).abs() < 1e-5).count(), 3312, "the rows of the 15 gaps stay zero");
}

#[test]
fn every_missing_file_is_named() {
    let copy = copied();
    for ending in ENDINGS.iter().filter(|&&e| e != "x") {
        let path = copy.path().join(format!("ind.cora.{ending}"));
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        check_failure(&copy, &format!("ind.cora.{ending}: there is no such file; name the files' common beginning"));
        fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn cut_files_name_the_byte() {
    let copy = copied();
    for ending in ["y", "ally", "ty", "allx", "tx", "graph"] {
        let path = copy.path().join(format!("ind.cora.{ending}"));
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        check_failure(&copy, "the pickle ends within an instruction");
        check_failure(&copy, &format!("ind.cora.{ending}, byte "));
        fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn a_pickle_that_would_run_something_is_refused_by_name() {
    let copy = copied();
    write(&copy.path().join("ind.cora.graph"), b"cposix\nsystem\n(S'touch /tmp/owned'\ntR.");
    check_failure(&copy, "ind.cora.graph, byte 0: the pickle asks for the class \"posix.system\", which is refused");
}

#[test]
fn files_of_another_set_do_not_fit() {
    let copy = copied();
    let root = morphgl_testdata::path("planetoid");
    for (ending, what) in [
        ("ally", "label rows for 1708 feature rows"),
        ("tx", "feature"),
        ("allx", "feature rows"),
        ("test.index", "the test nodes begin at 2312, those of .allx end at 1708"),
        ("graph", "to a node that does not exist, there are 2708"),
    ] {
        let path = copy.path().join(format!("ind.cora.{ending}"));
        let bytes = fs::read(&path).unwrap();
        fs::copy(root.join(format!("ind.citeseer.{ending}")), &path).unwrap();
        check_failure(&copy, what);
        fs::write(&path, bytes).unwrap();
    }
    write(&copy.path().join("ind.cora.test.index"), b"2692\n25x2\n");
    check_failure(&copy, "ind.cora.test.index, line 2: \"25x2\" is not a node number");
}

/// A copy of Cora's files.
fn copied() -> tempfile::TempDir {
    let root = morphgl_testdata::path("planetoid");
    let tmp = tempfile::tempdir().unwrap();
    for ending in ENDINGS {
        let file = format!("ind.cora.{ending}");
        write(&tmp.path().join(&file), &fs::read(root.join(&file)).unwrap());
    }
    tmp
}

#[track_caller]
fn check_failure(copy: &tempfile::TempDir, what: &str) {
    let target = copy.path().join("out");
    failure(planetoid::import(&copy.path().join("ind.cora"), &target, &Options::default(), &Silent), &target, what);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However a file is cut or altered: an error or a dataset that opens, and no panic.
    #[test]
    fn corrupt_files_never_panic(
        ending in proptest::sample::select(vec!["y", "ty", "ally", "tx", "graph", "test.index"]),
        cut in proptest::option::of(0.0..1.0f64),
        changes in proptest::collection::vec((0.0..1.0f64, any::<u8>()), 0..4),
        head in proptest::collection::vec((0usize..300, any::<u8>()), 0..3),
    ) {
        let copy = copied();
        let path: PathBuf = copy.path().join(format!("ind.cora.{ending}"));
        let bytes = crate::data::corrupted(fs::read(&path).unwrap(), cut, &changes, &head);
        fs::write(&path, bytes).unwrap();
        let target = copy.path().join("out");
        match planetoid::import(&copy.path().join("ind.cora"), &target, &Options::default(), &Silent) {
            Ok(path) => drop(Dataset::open(path, OpenOptions::default()).unwrap()),
            Err(error) => prop_assert!(!error.to_string().contains('\n') && !target.exists(), "{error}"),
        }
    }
}
