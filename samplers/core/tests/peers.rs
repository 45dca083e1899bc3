//! Relabelling against GraphBolt's published outputs.

use morphgl_sampler_core::Relabel;
use serde_json::Value;

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).expect("a list of ids")
}

#[track_caller]
fn check(name: &str, test: impl Fn(&Value)) {
    let path = morphgl_testdata::path("reference-outputs/reference.json");
    let text = std::fs::read_to_string(path).expect("the reference outputs can be read");
    let all: Value = serde_json::from_str(&text).expect("the reference outputs are JSON");
    assert!(all[name].is_object(), "there is no reference output {name}");
    test(&all[name]);
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
