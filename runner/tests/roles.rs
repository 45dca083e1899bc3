//! `--plan factored`: some devices sample, the others gather and train.

#[path = "support/runs.rs"]
mod runs;
mod support;

use std::fs;
use std::path::Path;

use runs::{Training, last, metrics, newest};
use serde_json::Value;
use support::Bench;

const SAMPLING: &str = "Batching_PCIe+SIM_Neighbor";
const COPY: &str = "Transferring_PCIe+Peer+SIM_SimCopy";

/// Mini-batches of four seeds on simulated devices.
const TRAIN: [&str; 19] = [
    "train",
    "small",
    "--batch-size",
    "4",
    "--layers",
    "1",
    "--fanouts",
    "2",
    "--evaluation",
    "none",
    "--training",
    "Training_SIM_Ledger",
    "--threads",
    "2",
    "--profile-seconds",
    "0.5",
    "--plan",
    "factored",
    "--quiet",
];

/// So many devices, which sample and train in these milliseconds.
fn devices(number: usize, sampling: f64, training: f64) -> String {
    let [sampling, training] = [sampling, training].map(|millis| (millis * 1e3) as u64);
    format!(
        "batching-device={sampling}us,training={training}us,transferring-peer=300us,transferring-device=300us,memory=99,\
         devices={number}"
    )
}

fn json(bench: &Bench, sim: &str, args: &[&str]) -> Value {
    let output = bench.command(&[args, &["--json"]].concat()).env("MORPHGL_SIM", sim).output().expect("it starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn places(json: &Value) -> Vec<&str> {
    json.as_array().expect("a list").iter().map(|place| place.as_str().expect("a place")).collect()
}

/// Every mini-batch is trained once, whatever the number of devices; the report shows who did what.
#[test]
fn simulated_devices_have_roles() {
    let bench = Bench::new();
    bench.small();
    for (number, sampling, training) in [(2, 1.0, 1.0), (3, 1.0, 6.0), (4, 8.0, 2.0)] {
        let name = number.to_string();
        let json = json(
            &bench,
            &devices(number, sampling, training),
            &[&TRAIN[..], &["--epochs", "2", "--run", &name]].concat(),
        );
        let factored = &json["factored"];
        assert_eq!(places(&factored["places"]).len(), number, "{name}");
        assert_eq!(factored["keys"]["batching"], SAMPLING);
        assert_eq!(factored["keys"]["transferring"], COPY);
        let batches = json["profile"]["num_batches"].as_u64().expect("a number");
        for epoch in json["epochs"].as_array().expect("a list") {
            let report = &epoch["report"];
            assert_eq!(report["batches"].as_u64(), Some(batches), "{name}");
            let seeds: u64 =
                report["trainers"].as_array().expect("a list").iter().map(|t| t["seeds"].as_u64().unwrap_or(0)).sum();
            assert_eq!(report["seeds"].as_u64(), Some(seeds), "{name}: every seed is of one trainer");
        }
        let page = fs::read_to_string(bench.path().join(&name).join("report.html")).expect("written");
        let last = number - 1;
        for words in
            ["sim:0: training", "sim:0: gathering", &format!("sim:{last}: sampling"), "mini-batches in the queue"]
        {
            assert!(page.contains(words), "{name}: {words:?} is in the report");
        }
    }
}

/// Copies a run directory.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("room on the disk");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("room on the disk");
        }
    }
}

/// By the same plan, killed in mid-epoch and resumed: the bits of a run that was not.
#[test]
fn a_run_with_roles_is_resumed_exactly() {
    let bench = Bench::new();
    bench.small();
    let sim = devices(3, 1.0, 4.0);
    json(&bench, &sim, &[&TRAIN[..], &["--epochs", "1", "--run", "base"]].concat());
    let of = |name: &str| bench.path().join(name);
    let killed = of("killed");
    copy(&of("base"), &of("undisturbed"));
    copy(&of("base"), &killed);
    let resume = |name| ["train", "--resume", name, "--epochs", "3", "--checkpoint-every", "20b", "--json", "--quiet"];
    let command = || {
        let mut command = bench.command(&resume("killed"));
        command.env("MORPHGL_SIM", &sim);
        command
    };
    json(&bench, &sim, &resume("undisturbed")[..7]);
    let mut training = Training::start(command(), &killed);
    let mut within = 0;
    for _ in 0..3 {
        let next = newest(&killed).map_or(2, |newest| newest + 2);
        if training.wait_for_checkpoint(next) {
            break;
        }
        training.kill();
        within += usize::from(last(&killed).position.within.is_some());
        training = Training::start(command(), &killed);
    }
    let (code, _, stderr) = training.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(within > 0, "killed in mid-epoch");
    let without_times = |name: &str| -> Vec<Value> {
        let mut rows = metrics(&of(name));
        // Where roles change, durations decide which of two samplers samples a share, and so how many bytes each copies.
        rows.iter_mut().for_each(|row| row["counters"] = Value::Null);
        rows
    };
    assert_eq!(without_times("killed"), without_times("undisturbed"));
    assert_eq!(last(&killed).training, last(&of("undisturbed")).training);
}

/// A machine of three devices that sample so many million edges per second.
fn three(bench: &Bench, sampling: f64) {
    let text = format!(
        "name = \"three\"\npeer_gb_per_s = 50\n[host]\ncores = 8\nmemory_gb = 64\nbandwidth_gb_per_s = 60\n\
         sampling_m_edges_per_s = 1\ngflop_per_s = 10\n[[link]]\nname = \"l\"\ngb_per_s = 20\n[[device]]\nname = \"d\"\n\
         count = 3\nlink = \"l\"\nmemory_gb = 16\nbandwidth_gb_per_s = 100\ntflop_per_s = 0.01\n\
         sampling_m_edges_per_s = {sampling:?}\n"
    );
    fs::write(bench.path().join("three.toml"), text).expect("room on the disk");
}

const THREE: [&str; 11] =
    ["small", "--batch-size", "4", "--layers", "2", "--hidden", "16", "--fanouts", "4,4", "--machine", "three.toml"];

/// The slower role has more devices; where no number of samplers balances, devices take turns, and the report marks when.
#[test]
fn roles_are_by_what_takes_long_and_change_where_no_number_balances() {
    let bench = Bench::new();
    bench.small();
    for (sampling, trainers) in [(1.0, 1), (400.0, 2)] {
        three(&bench, sampling);
        let roles = bench.json(&[&["plan"], &THREE[..]].concat())["factored"]["roles"].clone();
        assert_eq!(roles["unswitched_trainers"], trainers, "{sampling} M edges/s: {roles}");
    }
    three(&bench, 20.0);
    let json = bench.json(&[&["train"], &THREE[..], &["--plan", "factored", "--run", "turns", "--quiet"]].concat());
    let roles = &json["factored"]["roles"];
    assert!(roles["segments"].as_array().expect("a list").len() > 3, "{roles}");
    let number = |value: &Value| value.as_f64().expect("a number");
    assert!(number(&roles["epoch_seconds"]) < 0.9 * number(&roles["unswitched_seconds"]), "{roles}");
    let read = |file: &str| fs::read_to_string(bench.path().join("turns").join(file)).expect("written");
    for words in ["sim:1 trains", "sim:1 samples"] {
        assert!(read("trace.json").contains(words), "{words:?} is in the trace");
    }
    for epoch in json["epochs"].as_array().expect("a list") {
        let report = &epoch["report"];
        assert_eq!(report["batches"], json["profile"]["num_batches"]);
        let ratio = number(&epoch["seconds"]) / number(&epoch["predicted_seconds"]);
        assert!((0.8..1.25).contains(&ratio), "{ratio} of the prediction");
        // The devices that take turns have trained, too.
        let trainers = report["trainers"].as_array().expect("a list");
        assert!(trainers.len() == 3 && trainers.iter().all(|t| number(&t["seeds"]) > 0.0), "{trainers:?}");
    }
}

/// A machine without two devices has no roles to give.
#[test]
fn roles_need_two_devices() {
    let bench = Bench::new();
    bench.small();
    let output = bench.command(&TRAIN).env("MORPHGL_SIM", devices(1, 1.0, 1.0)).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(2) && error.contains("--plan factored") && error.contains("--plan auto"),
        "{error}"
    );
}

const DESCRIBED: [&str; 12] = [
    "small",
    "--batch-size",
    "24",
    "--layers",
    "2",
    "--hidden",
    "16",
    "--fanouts",
    "4,4",
    "--machine",
    "eight-v100",
    "--quiet",
];

/// The rows of a simulated run, times included but for the only one that is real.
fn rows(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).expect("written");
    let mut rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    rows.iter_mut().for_each(|row| row["evaluation_seconds"] = Value::Null);
    rows
}

/// On a described machine roles are planned and executed in virtual time, as predicted, to the same bits each time.
#[test]
fn roles_on_a_described_machine_are_executed_as_planned() {
    let bench = Bench::new();
    bench.small();
    let plan = bench.json(&[&["plan"], &DESCRIBED[..], &["--report", "plan.html"]].concat());
    assert_eq!(places(&plan["factored"]["places"]).len(), 8);
    let seconds = plan["factored"]["roles"]["epoch_seconds"].as_f64().expect("predicted");
    assert!(fs::read_to_string(bench.path().join("plan.html")).expect("written").contains("factored"));
    let train = |name: &'static str, more: &[&'static str]| {
        let args = [&["train"], &DESCRIBED[..], &["--plan", "factored", "--run", name], more].concat();
        bench.text(&args);
        rows(&bench.path().join(name))
    };
    let first = train("first", &[]);
    assert_eq!(first.len(), 3);
    assert_eq!(train("second", &[]), first);
    for row in &first {
        let took = row["seconds"].as_f64().expect("seconds");
        assert!((0.8..1.25).contains(&(took / seconds)), "{took} s, predicted {seconds} s");
    }
    train("resumed", &["--epochs", "1"]);
    bench.text(&["train", "--resume", "resumed", "--epochs", "3", "--quiet"]);
    assert_eq!(rows(&bench.path().join("resumed")), first);
}

/// Devices that change their roles move what they sampled themselves by the fastest operator that they have, and epochs take as long as
/// predicted.
#[test]
fn epochs_with_changes_of_roles_take_as_long_as_predicted() {
    let bench = Bench::new();
    let graph = "generate sbm -o graph --nodes 6000 --classes 4 --dim 64 --degree 10";
    bench.text(&graph.split(' ').collect::<Vec<_>>());
    let options = "train graph --layers 2 --hidden 16 --fanouts 5,5 --machine eight-v100 --plan factored --epochs 1";
    for batch_size in ["50", "200"] {
        let options = options.split(' ').chain(["--cache", "none", "--batch-size", batch_size, "--quiet"]);
        let json = bench.json(&options.collect::<Vec<_>>());
        let factored = &json["factored"];
        assert!(factored["roles"]["segments"].as_array().is_some_and(|s| s.len() > 1), "{factored}");
        assert_eq!(factored["own"], "Transferring_PCIe+SIM_SimGather");
        let seconds = |name: &str| json[name].as_f64().expect("seconds");
        let ratio = seconds("measured_epoch_seconds") / seconds("predicted_epoch_seconds");
        assert!((0.95..1.06).contains(&ratio), "{ratio} of the prediction, mini-batches of {batch_size}");
    }
}

/// Gradients that may be stale hide the all-reduce, by prediction and in virtual time; the run says how stale they were, and repeats to
/// the bit. The bound is not taken by plans that have no use for it.
#[test]
fn stale_gradients_hide_the_all_reduce() {
    let bench = Bench::new();
    bench.small();
    // An all-reduce between two trainers takes two latencies of a link, about as long as a trainer's step.
    let text = "name = \"slow links\"\n[host]\ncores = 8\nmemory_gb = 64\nbandwidth_gb_per_s = 60\nsampling_m_edges_per_s = 1\n\
                gflop_per_s = 10\n[[link]]\nname = \"l\"\ngb_per_s = 20\nlatency_us = 100\n[[device]]\nname = \"d\"\ncount = 3\n\
                link = \"l\"\nmemory_gb = 16\nbandwidth_gb_per_s = 100\ntflop_per_s = 0.00007\nsampling_m_edges_per_s = 400.0\n";
    fs::write(bench.path().join("slow.toml"), text).expect("room on the disk");
    let machine = [&THREE[..10], &["slow.toml", "--quiet"]].concat();
    let train = |more: &[&str]| {
        bench.json(&[&["train"], &machine[..], &["--plan", "factored", "--epochs", "2"], more].concat())
    };
    let number = |value: &Value| value.as_f64().expect("a number");
    let predicted = |json: &Value| number(&json["factored"]["roles"]["epoch_seconds"]);
    let fresh = train(&[]);
    assert_eq!(fresh["stale_gradients"], Value::Null);
    let stale = train(&["--allow-staleness", "2", "--run", "stale"]);
    assert!(predicted(&stale) < 0.95 * predicted(&fresh), "{} s, {} s", predicted(&stale), predicted(&fresh));
    for epoch in stale["epochs"].as_array().expect("a list") {
        let ratio = number(&epoch["seconds"]) / number(&epoch["predicted_seconds"]);
        assert!((0.8..1.25).contains(&ratio), "{ratio} of the prediction");
        assert_eq!(epoch["report"]["batches"], stale["profile"]["num_batches"]);
    }
    let of = &stale["stale_gradients"];
    let shares: Vec<u64> =
        of["shares"].as_array().expect("a list").iter().map(|n| n.as_u64().expect("shares")).collect();
    assert_eq!((of["bound"].as_u64(), shares.len()), (Some(2), 3), "{of}");
    assert!(shares[1] + shares[2] > 0, "{of}: the all-reduce is hidden");
    let page = fs::read_to_string(bench.path().join("stale/report.html")).expect("written");
    assert!(page.contains("gradients of shares by the steps that they were stale, 2 at most"), "a note of the report");
    assert_eq!(train(&["--allow-staleness", "2", "--run", "again"])["stale_gradients"], *of);
    assert_eq!(rows(&bench.path().join("again")), rows(&bench.path().join("stale")));
    let args = |more: &[&'static str]| [&["train"], &DESCRIBED[..], more].concat();
    bench.misused(&args(&["--allow-staleness", "2"]), &["--allow-staleness", "--machine"]);
    bench.misused(
        &args(&["--plan", "factored", "--allow-staleness", "2", "--hot-ratio", "0.5"]),
        &["--allow-staleness", "--machine"],
    );
}

/// In real time: killed in mid-epoch and resumed, a run whose gradients may be stale trains every mini-batch once.
#[test]
fn a_run_with_stale_gradients_is_resumed() {
    let bench = Bench::new();
    bench.small();
    let sim = devices(4, 1.0, 4.0);
    let dir = bench.path().join("stale");
    let train = [&TRAIN[..], &["--epochs", "1", "--run", "stale", "--allow-staleness", "1"]].concat();
    let json = json(&bench, &sim, &train);
    assert_eq!(json["stale_gradients"]["bound"], 1, "{}", json["stale_gradients"]);
    let mut command =
        bench.command(&["train", "--resume", "stale", "--epochs", "3", "--checkpoint-every", "20b", "--quiet"]);
    command.env("MORPHGL_SIM", &sim);
    let mut training = Training::start(command, &dir);
    if !training.wait_for_checkpoint(newest(&dir).map_or(2, |newest| newest + 2)) {
        training.kill();
        assert!(last(&dir).position.within.is_some(), "killed in mid-epoch");
    }
    let mut command = bench.command(&["train", "--resume", "stale", "--epochs", "3", "--quiet"]);
    let output = command.env("MORPHGL_SIM", &sim).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = metrics(&dir);
    let batches = json["profile"]["num_batches"].as_u64();
    assert_eq!(rows.len(), 3);
    for row in &rows {
        assert_eq!(row["shares"], serde_json::json!([batches]), "{row}");
    }
    let misused = [&TRAIN[..], &["--allow-staleness", "1", "--hot-ratio", "0.5"]].concat();
    let output = bench.command(&misused).env("MORPHGL_SIM", &sim).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && error.contains("split no layers"), "{error}");
}
