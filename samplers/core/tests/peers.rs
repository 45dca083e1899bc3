//! Relabelling against GraphBolt's published outputs.

use std::path::{Path, PathBuf};

use morphgl_sampler_core::Relabel;
use serde_json::Value;

/// The reference outputs, where the test data is.
fn references() -> Option<Value> {
    let data = std::env::var_os("MORPHGL_TEST_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let file = data.join("reference-outputs/reference.json");
    let text = std::fs::read_to_string(&file).ok()?;
    Some(serde_json::from_str(&text).expect("the reference outputs are JSON"))
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).expect("a list of ids")
}

#[track_caller]
fn check(name: &str, test: impl Fn(&Value)) {
    match references() {
        Some(all) => test(&all[name]),
        None => skip(name),
    }
}

#[allow(clippy::print_stderr, reason = "says that the test data is absent")]
fn skip(name: &str) {
    eprintln!("{name}: skipped, set MORPHGL_TEST_DATA to the directory with reference-outputs/");
}

#[test]
fn gb_unique_and_compact_homo() {
    check("gb_unique_and_compact_homo", |case| {
        let mut nodes = ids(&case["nodes"]);
        let mut relabel = Relabel::default();
        relabel.start(Vec::new());
        relabel.locals(&mut nodes);
        assert_eq!(relabel.finish(), ids(&case["expect"]["unique"]));
        let compacted = case["expect"]["compacted"].as_array().expect("lists");
        assert_eq!(nodes, compacted.iter().flat_map(ids).collect::<Vec<_>>());
    });
}

#[test]
fn gb_unique_and_compact_csc_homo() {
    check("gb_unique_and_compact_csc_homo", |case| {
        let mut relabel = Relabel::default();
        relabel.start(Vec::new());
        relabel.locals(&mut ids(&case["seeds"]));
        let mut indices = ids(&case["indices"]);
        relabel.locals(&mut indices);
        assert_eq!(indices, ids(&case["expect"]["indices"]));
        assert_eq!(relabel.finish(), ids(&case["expect"]["unique"]));
    });
}
