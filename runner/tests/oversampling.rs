//! Training nodes that repeat: a node that is listed k times weighs k times in the loss, from import to resumed runs.
#![cfg(feature = "cpu")]

mod support;

use std::fs;

use morphgl_graph_store::{Dataset, OpenOptions};
use serde_json::Value;
use support::Bench;

const NODES: u32 = 120;
/// Validation nodes are the last ones.
const NUM_TRAIN: u32 = 90;

fn list(nodes: impl IntoIterator<Item = u32>) -> String {
    nodes.into_iter().map(|node| format!("{node}\n")).collect()
}

/// A graph with the training nodes of `train.txt` and the validation nodes of `valid.txt`.
fn import(name: &str) -> Vec<&str> {
    let files = ["--train", "train.txt", "--valid", "valid.txt", "--force"];
    let data = ["--random-features", "8", "--random-labels", "3", "--num-nodes", "120", "--drop-self-loops"];
    [&["import", "edges", "edges.txt", "-o", name][..], &data, &files].concat()
}

#[test]
fn attention_refuses_a_node_that_repeats_and_has_a_self_loop() {
    let bench = bench();
    fs::write(bench.path().join("train.txt"), list([0, 5, 0])).expect("room");
    let mut args = import("looped");
    args.retain(|arg| *arg != "--drop-self-loops");
    bench.text(&args);
    let train = ["train", "looped", "--layers", "1", "--epochs", "1", "--profile-seconds", "0.1", "--model"];
    bench.text(&[&train[..], &["gcn"]].concat());
    let words = ["training node 0 repeats and has a self-loop", "--drop-self-loops"];
    bench.refused(&[&train[..], &["gat"]].concat(), &words);
}

fn bench() -> Bench {
    let bench = Bench::new();
    let edges: String =
        (0..NODES).map(|v| format!("{} {v}\n{} {v}\n{v} {}\n", (7 * v + 1) % NODES, (v * v) % NODES, v / 2)).collect();
    fs::write(bench.path().join("edges.txt"), edges).expect("room");
    fs::write(bench.path().join("valid.txt"), list(NUM_TRAIN..NODES)).expect("room");
    bench
}

/// Imports a dataset with these training nodes.
fn dataset(bench: &Bench, name: &str, train: impl IntoIterator<Item = u32>) -> Value {
    fs::write(bench.path().join("train.txt"), list(train)).expect("room");
    bench.json(&import(name))
}

/// The training nodes of `dataset`, those of class 0 three times.
fn oversampled(bench: &Bench, dataset: &str) -> Vec<u32> {
    let dataset = Dataset::open(bench.path().join(dataset), OpenOptions::default()).expect("it was imported");
    let labels = dataset.labels.as_deref().expect("labels");
    (0..NUM_TRAIN).flat_map(|v| std::iter::repeat_n(v, if labels[v as usize] == 0 { 3 } else { 1 })).collect()
}

fn losses(json: &Value) -> Vec<f64> {
    json["epochs"].as_array().expect("a list").iter().map(|e| e["loss"].as_f64().expect("a loss")).collect()
}

#[test]
fn imports_say_how_many_training_nodes_repeat() {
    let bench = bench();
    dataset(&bench, "once", 0..NUM_TRAIN);
    assert_eq!(bench.json(&["info", "once"])["splits"]["oversampled"], 0);
    let train = oversampled(&bench, "once");
    let repeats = train.len() as u32 - NUM_TRAIN;
    let imported = dataset(&bench, "often", train.iter().rev().copied());
    let note = format!("{repeats} of {} training nodes are repeats: a node is trained on as often", train.len());
    assert!(imported["provenance"]["notes"].to_string().contains(&note), "{imported:#}");
    let info = bench.json(&["info", "often"]);
    assert_eq!(
        (info["splits"]["train"].as_u64(), info["splits"]["oversampled"].as_u64()),
        (Some(train.len() as u64), Some(repeats.into()))
    );
    assert_eq!(bench.text(&["info", "often"]).matches(&note).count(), 1);
    let stored = Dataset::open(bench.path().join("often"), OpenOptions::default()).expect("it was imported");
    assert_eq!(stored.splits.train.to_vec(), train);
    // Nodes that are scored are distinct.
    fs::write(bench.path().join("valid.txt"), list([100, 101, 100])).expect("room");
    bench.refused(&import("other"), &["valid.txt, element 2: the node 100 stands there twice; remove one of the rows"]);
}

/// One mini-batch with all neighbours: its loss is that of the nodes, weighted.
#[test]
fn the_loss_of_a_class_that_repeats_is_weighted() {
    let bench = bench();
    dataset(&bench, "once", 0..NUM_TRAIN);
    let train = oversampled(&bench, "once");
    let extra = train.len() as f64 - f64::from(NUM_TRAIN);
    dataset(&bench, "often", train.iter().copied());
    let mut class = train.clone();
    class.retain(|v| train.iter().filter(|w| *w == v).count() == 3);
    class.dedup();
    dataset(&bench, "class", class);
    for training in ["Training_CPU_Native", "Training_CPU_Burn"] {
        for kind in ["sage", "gcn", "gat"] {
            let loss = |dataset: &str| {
                let model = ["--model", kind, "--layers", "2", "--hidden", "8", "--training", training];
                let run = ["--fanouts=-1,-1", "--batch-size", "1000", "--epochs", "1", "--profile-seconds", "0.1"];
                losses(&bench.json(&[&["train", dataset, "--evaluation", "none"][..], &model, &run].concat()))[0]
            };
            let expected = (f64::from(NUM_TRAIN) * loss("once") + extra * loss("class")) / train.len() as f64;
            let actual = loss("often");
            assert!((actual / expected - 1.0).abs() < 1e-5, "{kind} by {training}: {actual}, weighted {expected}");
        }
    }
}

#[test]
fn a_run_with_repeats_is_resumed_and_evaluated() {
    let bench = bench();
    dataset(&bench, "once", 0..NUM_TRAIN);
    let train = oversampled(&bench, "once");
    dataset(&bench, "often", train.iter().copied());
    let args = ["train", "often", "--training", "Training_CPU_Native", "--layers", "2", "--hidden", "8", "--fanouts"];
    let args = [&args[..], &["3,2", "--batch-size", "16", "--profile-seconds", "0.1", "--epochs"]].concat();
    let whole = bench.json(&[&args[..], &["3", "--run", "whole"]].concat());
    bench.json(&[&args[..], &["1", "--run", "parts"]].concat());
    let resumed = bench.json(&["train", "--resume", "parts", "--epochs", "3"]);
    assert_eq!(losses(&resumed), losses(&whole));
    let scores = bench.json(&["evaluate", "whole"]);
    assert_eq!(scores["train"]["nodes"], train.len(), "a training node is scored as often as it is listed");
    assert_eq!(scores["valid"]["nodes"], NODES - NUM_TRAIN);
}
