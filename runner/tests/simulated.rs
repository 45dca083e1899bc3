//! The whole program on the simulated accelerator: profile, plan, run, report; and operators that fail or hang.
#![cfg(feature = "sim")]

mod support;

use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Bench, fails};

const MILLIS: &str = "batching-cpu=12ms,transferring-pcie=6ms,batching-device=3ms,transferring-device=1ms,training=2ms";

/// Runs on the simulated accelerator; `extra` is appended to its configuration.
fn run(bench: &Bench, extra: &str, args: &[&str]) -> std::process::Output {
    let sim = format!("{MILLIS}{extra}");
    bench.command(args).env("MORPHGL_SIM", sim).output().expect("the binary starts")
}

/// Four hundred mini-batches, batched by two simulated CPU workers or by the device.
const TRAIN: [&str; 17] = [
    "train",
    "small",
    "--batch-size",
    "1",
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
    "1",
    "--epochs",
];

#[test]
fn every_plan_runs_as_predicted_and_is_reported_as_simulated() {
    let bench = Bench::new();
    bench.small();
    for plan in ["auto", "sequential", "pipeline", "device", "paper", "interleaved"] {
        let args = [&TRAIN[..], &["1", "--plan", plan, "--run", plan, "--json"]].concat();
        let output = run(&bench, "", &args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{plan}: {errors}");
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let batches = json["epochs"][0]["report"]["batches"].as_u64();
        assert_eq!(batches, json["profile"]["num_batches"].as_u64(), "{plan}");
        let page = std::fs::read_to_string(bench.path().join(plan).join("report.html")).expect("written");
        assert!(page.contains("simulated"), "{plan}: simulated figures are marked");
    }
}

#[test]
fn operators_that_fail_or_hang_end_the_program() {
    let bench = Bench::new();
    bench.small();
    for (work, kind, words) in [
        ("training", "panic", ["Training_SIM_Ledger", "fault of the operator"]),
        ("training", "error", ["Training_SIM_Ledger", "simulated"]),
        ("training", "memory", ["Training_SIM_Ledger", "memory"]),
        ("training", "hang", ["Training_SIM_Ledger", "has not answered"]),
    ] {
        // Profiling measures epoch 0; the fault is in epoch 1.
        let fault = format!(",fault={work}:{kind}@1:7");
        let args = [&TRAIN[..], &["2", "--time-limit", "1"]].concat();
        let start = Instant::now();
        let output = run(&bench, &fault, &args);
        fails(&output, &args, &[words[0], words[1], "mini-batch 7 of epoch 1"]);
        assert!(start.elapsed() < Duration::from_secs(600), "{kind}: it ends");
    }
}

#[test]
fn without_the_variable_there_is_no_simulated_accelerator() {
    let bench = Bench::new();
    let json = bench.json(&["ops"]);
    let operators = json["operators"].as_array().expect("a list");
    let simulated =
        operators.iter().filter(|o| o["key"].as_str().is_some_and(|k| k.contains("SIM") || k.contains("Sim")));
    let mut count = 0;
    for operator in simulated {
        count += 1;
        assert_eq!(operator["available"], false);
        assert!(operator["reason"].as_str().is_some_and(|r| r.contains("MORPHGL_SIM")), "{operator}");
    }
    assert_eq!(count, 5);
}
