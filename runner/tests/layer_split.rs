//! `--allow-staleness`: layer-split training beside exact training.

mod support;

use serde_json::Value;
use support::Bench;

/// Small mini-batches, so that an epoch has many of them.
const QUICK: [&str; 14] = [
    "--layers",
    "2",
    "--hidden",
    "16",
    "--fanouts",
    "5,5",
    "--batch-size",
    "2",
    "--profile-seconds",
    "0.1",
    "--threads",
    "1",
    "--training",
    "Training_CPU_Native",
];

fn train<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["train", "small", "--epochs", "3"], args, &QUICK].concat()
}

fn losses(run: &Value) -> Vec<&Value> {
    run["epochs"].as_array().expect("epochs").iter().map(|epoch| &epoch["loss"]).collect()
}

fn count(run: &Value, counter: &str) -> u64 {
    run["counters"]["Transferring_CPU_Host"][counter].as_u64().unwrap_or(0)
}

#[test]
fn hot_nodes_are_computed_beside_training() {
    let bench = Bench::new();
    bench.small();
    let split = ["--allow-staleness", "31", "--hot-ratio", "0.5"];
    let [first, second] = [(); 2].map(|()| bench.json(&train(&split)));
    assert_eq!(losses(&first), losses(&second), "two runs have the same bits");
    let plan = &first["layer_split"]["plan"];
    let split = &plan["split"]["split"];
    assert_eq!(
        (&split["ratio"], &plan["staleness"]),
        (&0.5.into(), &(2 * split["super_batch"].as_u64().expect("a length") - 1).into())
    );
    let batches = count(&first, "given_batches");
    assert!(
        batches > 0 && count(&first, "given_rows") > 0 && count(&first, "computed_rows") > 0,
        "{}",
        first["counters"]
    );
    let staleness = count(&first, "staleness_steps");
    assert!(staleness >= batches && staleness <= 31 * batches, "{staleness} steps in {batches} mini-batches");
    let share = first["layer_split"]["given_share"].as_f64().expect("a share");
    assert!(share >= 0.5, "half of the nodes, the hottest, are more than half of the rows: {share}");
    let exact = bench.json(&train(&[]));
    assert_ne!(losses(&first), losses(&exact));
    assert_eq!(exact["layer_split"], Value::Null);
    let loss = |epoch: usize| losses(&first)[epoch].as_f64().expect("a loss");
    assert!(loss(2) < loss(0), "the loss falls: {:?}", losses(&first));
    // Without hot nodes training is exact.
    let none = bench.json(&train(&["--allow-staleness", "31", "--hot-ratio", "0"]));
    assert_eq!(losses(&none), losses(&exact));
}

#[test]
fn the_plan_says_whether_layers_are_split() {
    let bench = Bench::new();
    bench.small();
    let planned = bench.json(&[&["plan", "small", "--allow-staleness", "31"], &QUICK[..]].concat());
    let split = &planned["layer_split"]["split"];
    let seconds = |plan: &Value| plan["prediction"]["epoch_seconds"].as_f64().expect("seconds");
    assert!(seconds(&split["plan"]) > 0.0 && split["split"]["super_batch"].as_u64() <= Some(16), "{split:#}");
    let text = bench.text(&train(&["--allow-staleness", "31"]));
    assert!(text.contains("layer split: "), "{text}");
    assert!(text.contains(": not split") != text.contains(" steps old"), "chosen or not: {text}");
}

#[test]
fn a_resumed_run_has_the_losses_of_an_undisturbed_one() {
    let bench = Bench::new();
    bench.small();
    let split = ["--allow-staleness", "31", "--hot-ratio", "0.5"];
    bench.json(&train(&[&split[..], &["--run", "run"]].concat()));
    let resumed = bench.json(&["train", "--resume", "run", "--epochs", "5"]);
    let mut args = train(&split);
    args[3] = "5";
    assert_eq!(losses(&resumed), losses(&bench.json(&args)));
    assert!(resumed["layer_split"]["super_batches"].as_u64() > Some(0), "{}", resumed["layer_split"]);
}

/// A reduction of the learning rate between epochs leaves stale rows as they are.
#[test]
fn a_schedule_by_the_score_is_resumed_to_the_same_losses() {
    let bench = Bench::new();
    bench.small();
    let split = ["--allow-staleness", "31", "--hot-ratio", "0.5"];
    let plateau =
        ["--lr", "0.2", "--score", "loss", "--lr-schedule", "plateau", "--lr-patience", "0", "--clip-norm", "0.5"];
    let args = [&split[..], &plateau].concat();
    bench.json(&train(&[&args[..], &["--run", "run"]].concat()));
    let resumed = bench.json(&["train", "--resume", "run", "--epochs", "8"]);
    let mut args = train(&args);
    args[3] = "8";
    let undisturbed = bench.json(&args);
    assert_eq!(losses(&resumed), losses(&undisturbed));
    assert_eq!(resumed["optimizer"], undisturbed["optimizer"]);
    let last = undisturbed["optimizer"]["last_lr"].as_f64().expect("a rate");
    assert!(last < 0.2, "the learning rate was reduced: {last}");
}

#[test]
fn what_cannot_be_split_is_refused_with_the_reason() {
    let bench = Bench::new();
    bench.small();
    let refused = |args: &[&str], why: &str| {
        let out = bench.run(&train(args));
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && error.contains(why), "{args:?}: {error}");
    };
    refused(&["--hot-ratio", "0.5"], "give --allow-staleness too");
    refused(&["--max-hot-ratio", "0.5"], "give --allow-staleness too");
    refused(&["--allow-staleness", "31", "--hot-ratio", "0.5", "--max-hot-ratio", "0.2"], "give a lower one");
    refused(&["--allow-staleness", "31", "--hot-ratio", "1.5"], "a number from 0 to 1 is needed");
    refused(&["--allow-staleness", "31", "--plan", "sequential"], "leave --plan out");
    refused(&["--allow-staleness", "1", "--hot-ratio", "0.5"], "allow a staleness of");
    refused(&["--allow-staleness", "31", "--hot-ratio", "0.5", "--sampler", "shadow"], "neighbo");
}
