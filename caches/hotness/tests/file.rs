//! Hotness in files.

use std::fs;

use morphgl_graph_store::NpyWriter;
use morphgl_hotness::Hotness;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn what_was_saved_is_loaded(
        scores in prop::collection::vec((-1e9f32..1e9, prop::num::f32::NORMAL | prop::num::f32::ZERO), 1..200),
    ) {
        let hotness = Hotness { features: scores.iter().map(|s| s.0).collect(), rows: scores.iter().map(|s| s.1).collect() };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hotness.npy");
        fs::write(&path, "an older file").expect("written");
        hotness.save(&path).expect("saved");
        prop_assert_eq!(Hotness::load(&path, scores.len()).expect("loaded"), hotness);
        prop_assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing is left beside it");
    }
}

fn three_nodes() -> Hotness {
    Hotness { features: [1.0, 2.5, 0.0].into(), rows: [4.0, 0.0, 8.0].into() }
}

/// What numpy 2 writes for `numpy.save(path, numpy.array([[1, 2.5, 0], [4, 0, 8]], "f4"))`.
fn by_numpy() -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }".to_vec();
    bytes.resize(127, b' ');
    bytes.push(b'\n');
    bytes.extend([1.0f32, 2.5, 0.0, 4.0, 0.0, 8.0].iter().flat_map(|x| x.to_le_bytes()));
    bytes
}

#[test]
fn files_are_those_of_numpy() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hotness.npy");
    three_nodes().save(&path).expect("saved");
    assert_eq!(fs::read(&path).expect("read"), by_numpy());
    fs::write(&path, by_numpy()).expect("written");
    assert_eq!(Hotness::load(&path, 3).expect("loaded"), three_nodes());
}

#[test]
fn files_of_something_else_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hotness.npy");
    let refused = |num_nodes: usize, expected: &str| {
        let error = Hotness::load(&path, num_nodes).expect_err("refused").to_string();
        assert!(error.contains("hotness.npy") && error.contains(expected), "{error}");
    };
    refused(3, "check the path");
    three_nodes().save(&path).expect("saved");
    refused(4, "the shape is [2, 3], and hotness of 4 nodes has [2, 4]; score this graph again");
    fs::write(&path, &by_numpy()[..140]).expect("written");
    refused(3, "the header promises 152 bytes, the file has 140");
    fs::write(&path, "no array").expect("written");
    refused(3, "not a readable npy file");
    let write = |values: &[f32], dim| {
        let mut writer = NpyWriter::create(&path).expect("created");
        writer.write(values).expect("written");
        writer.finish(dim).expect("finished");
    };
    write(&[0.0; 6], None);
    refused(3, "the shape is [6]");
    write(&[0.0; 6], Some(2));
    refused(3, "the shape is [3, 2]");
    write(&[0.0, 1.0, 2.0, f32::NAN], Some(2));
    refused(2, "element 3: the score is NaN");
    let mut writer = NpyWriter::<f64>::create(&path).expect("created");
    writer.write(&[0.0; 6]).expect("written");
    writer.finish(Some(3)).expect("finished");
    refused(3, "element type <f8, expected <f4");
}

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing/hotness.npy");
    let error = three_nodes().save(&missing).expect_err("refused").to_string();
    assert!(error.contains("hotness.npy") && error.contains("check the path"), "{error}");
    let error = three_nodes().save(&folder.path().join("..")).expect_err("refused").to_string();
    assert!(error.contains("name a file"), "{error}");
    let none = Hotness { features: [].into(), rows: [].into() };
    let error = none.save(&folder.path().join("hotness.npy")).expect_err("refused").to_string();
    assert!(error.contains("there are no scores to save"), "{error}");
    // A folder stands where the file should: the new file is removed.
    fs::create_dir(folder.path().join("folder.npy")).expect("created");
    three_nodes().save(&folder.path().join("folder.npy")).expect_err("refused");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}
