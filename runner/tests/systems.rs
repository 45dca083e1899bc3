//! `--as`: plans and runs like systems of the papers, end to end.

mod support;

use std::fs;

use support::{Bench, number};

const SMALL: [&str; 10] =
    ["small", "--batch-size", "25", "--layers", "2", "--hidden", "16", "--fanouts", "4,4", "--quiet"];

#[test]
fn the_list_says_what_each_sets_and_where_ours_differs() {
    let bench = Bench::new();
    let systems = bench.json(&["plan", "--as", "list"])["systems"].clone();
    let systems = systems.as_array().expect("a list");
    let text = bench.text(&["train", "--as", "list"]);
    for field in ["name", "title", "paper", "does", "differs"] {
        for system in systems {
            let words = system[field].as_str().expect("text");
            assert!(text.contains(words), "{words:?} is in the list");
        }
    }
    let names: Vec<&str> = systems.iter().filter_map(|system| system["name"].as_str()).collect();
    for name in ["dgl", "naive-pipeline", "salient", "ducati", "gnnlab", "pytorch-direct", "pagraph", "unified-static"]
    {
        assert!(names.contains(&name), "{names:?}");
    }
    assert_eq!(names.iter().filter(|name| name.starts_with("neutronorch-case-")).count(), 4);
    bench.misused(&["plan", "--as", "salint"], &["salint", "salient", "--as list"]);
}

#[test]
fn a_plan_is_printed_beside_our_best_one() {
    let bench = Bench::new();
    bench.small();
    for (name, plan) in [("salient", "pipeline"), ("dgl", "sequential"), ("gnnlab", "factored")] {
        let args = [&["plan"], &SMALL[..], &["--machine", "eight-v100", "--as", name]].concat();
        let json = bench.json(&args);
        let own = &json["as"];
        assert_eq!((&own["system"]["name"], &own["plan"]), (&name.into(), &plan.into()));
        assert_eq!(own["epoch_seconds"], json["plan"]["prediction"]["epoch_seconds"], "{name}");
        let ratio = number(&own["epoch_seconds"]) / number(&own["best"]["epoch_seconds"]);
        assert!((ratio / number(&own["ratio"]) - 1.0).abs() < 1e-9 && ratio >= 1.0, "{own}");
        let text = bench.text(&args);
        for words in [&format!("as {name}: --plan {plan}"), "our best plan", "times as long", "ours differs"] {
            assert!(text.contains(words), "{words:?} is in {text}");
        }
    }
    // Both are planned by the threads that are asked for.
    let threads = ["--threads", "2", "--machine", "a100", "--as", "salient"];
    let json = bench.json(&[&["plan"], &SMALL[..], &threads].concat());
    assert!(number(&json["as"]["ratio"]) >= 1.0, "{}", json["as"]);
    let without = bench.json(&[&["plan"], &SMALL[..], &["--machine", "a100"]].concat());
    assert!(without["as"].is_null());
}

#[test]
fn a_run_is_by_the_system_s_plan_and_operators() {
    let bench = Bench::new();
    bench.small();
    let args = [&["train"], &SMALL[..], &["--machine", "a100", "--as", "pagraph", "--run", "run"]].concat();
    let json = bench.json(&args);
    assert_eq!(json["plan"]["strategy"], "pipeline");
    let keys = &json["plan"]["schedule"]["shares"][0]["keys"];
    assert_eq!(keys["batching"], "Batching_CPU_SimNeighbor");
    assert_eq!(keys["transferring"], "Transferring_PCIe+SIM_SimDmaGather");
    for epoch in json["epochs"].as_array().expect("a list") {
        let ratio = number(&epoch["seconds"]) / number(&epoch["predicted_seconds"]);
        assert!((0.85..1.15).contains(&ratio), "{ratio} of the prediction");
    }
    // The run keeps what the name stood for.
    bench.misused(&["train", "--resume", "run", "--as", "salient"], &["--as", "--run"]);
    bench.misused(&["train", "--config", "run/config.toml", "--as", "salient"], &["--as", "--config"]);
    let config = fs::read_to_string(bench.path().join("run/config.toml")).expect("written");
    assert!(config.contains("SimDmaGather"), "{config}");
}

#[test]
fn what_cannot_be_had_is_refused_by_name() {
    let bench = Bench::new();
    bench.small();
    let plan = |more: &[&'static str]| [&["plan"], &SMALL[..], more].concat();
    bench.misused(&plan(&["--as", "salient"]), &["--as salient", "a device", "--machine", "MORPHGL_SIM"]);
    bench.misused(&plan(&["--as", "gnnlab", "--machine", "a100"]), &["--as gnnlab", "two devices", "a100"]);
    let several = ["--as", "gnnlab", "--machine", "eight-v100", "--output", "plan.json"];
    bench.misused(&plan(&several), &["--output", "--plan factored"]);
    let train = [&["train"], &SMALL[..], &["--machine", "a100", "--as", "ducati", "--plan", "pipeline"]].concat();
    bench.misused(&train, &["--plan pipeline", "--as ducati", "--plan device"]);
}

/// Stale gradients, which GNNLab has, are a bound of the user's; of the run that it makes it is said.
#[test]
fn a_run_like_gnnlab_takes_the_bound_on_staleness() {
    let bench = Bench::new();
    bench.small();
    let more = ["--machine", "eight-v100", "--as", "gnnlab", "--allow-staleness", "2"];
    let json = bench.json(&[&["train"], &SMALL[..], &more].concat());
    assert_eq!(json["stale_gradients"]["bound"], 2);
    assert_eq!(json["factored"]["problem"]["staleness"], 2);
    let json = bench.json(&[&["plan"], &SMALL[..], &more].concat());
    assert_eq!(json["factored"]["problem"]["staleness"], 2);
    assert!(number(&json["as"]["ratio"]) >= 1.0, "{}", json["as"]);
    let salient =
        [&["train"], &SMALL[..], &["--machine", "eight-v100", "--as", "salient", "--allow-staleness", "2"]].concat();
    bench.misused(&salient, &["--allow-staleness"]);
}
