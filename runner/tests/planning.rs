//! `morphgl plan` and `morphgl train --plan`, end to end.

mod support;

use std::fs;

use serde_json::Value;
use support::Bench;

const DURATIONS: &str = "batching-cpu=80ms,workers=8,transferring-pcie=4ms,batching-device=14ms,\
transferring-device=4ms,training=10ms,batches=1179";
const QUICK: [&str; 8] = ["--layers", "2", "--hidden", "16", "--fanouts", "5,5", "--profile-seconds", "0.2"];

fn epoch_seconds(plan: &Value) -> f64 {
    plan["prediction"]["epoch_seconds"].as_f64().expect("seconds")
}

#[test]
fn durations_by_hand_are_planned_and_drawn() {
    let bench = Bench::new();
    let json = bench.json(&["plan", "--durations", DURATIONS, "--what-if", "CPU*2", "--what-if", "CPU*2,PCIe*2"]);
    let plans = json["plans"].as_array().expect("a list");
    let of = |strategy: &str| plans.iter().find(|p| p["strategy"] == strategy).map(epoch_seconds);
    let ours = of("interleaved").expect("two routes");
    for rival in ["sequential", "pipeline", "device", "paper"] {
        assert!(ours <= of(rival).expect("a baseline"), "{rival}: {plans:#?}");
    }
    // A mix of routes is chosen where it is predicted to be 5% shorter than any route alone.
    assert!((ours..1.05 * ours).contains(&epoch_seconds(&json["plan"])), "{}", json["plan"]);
    let what_if = json["what_if"].as_array().expect("a list");
    let speed_ups: Vec<f64> = what_if.iter().map(|w| w["speed_up"].as_f64().expect("a number")).collect();
    assert!(speed_ups[0] > 1.0 && speed_ups[1] > speed_ups[0], "{speed_ups:?}");

    let text =
        bench.text(&["plan", "--durations", DURATIONS, "--timeline", "t.svg", "--report", "r.html", "-o", "p.json"]);
    assert!(text.contains("interleaved") && text.contains("bottleneck"), "{text}");
    let read = |file: &str| fs::read_to_string(bench.path().join(file)).expect("written");
    assert!(read("t.svg").starts_with("<svg"));
    let page = read("r.html");
    assert!(page.contains("<svg") && page.contains("interleaved") && !page.contains("src=\"http"));
    let plan: Value = serde_json::from_str(&read("p.json")).expect("a plan");
    assert_eq!(plan, json["plan"]);
}

#[test]
fn impossible_plans_are_refused_in_one_line() {
    let bench = Bench::new();
    bench.misused(&["plan", "--durations", "training=10ms"], &["--durations", "no route"]);
    bench.misused(&["plan", "--durations", DURATIONS, "--what-if", "GPU*2"], &["GPU*2", "CPU, PCIe, DEV"]);
    bench.refused(&["plan", "--durations", DURATIONS, "--timeline", "none/t.svg"], &["none/t.svg", "another file"]);
    bench.small();
    let train = |extra: &[&'static str]| [&["train", "small", "--epochs", "1"], &QUICK[..], extra].concat();
    bench.misused(&train(&["--plan", "device"]), &["--plan device", "sequential"]);
    bench.misused(&train(&["--plan", "no-file.json"]), &["no-file.json", "auto"]);
    bench.misused(&train(&["--memory", "1MiB"]), &["--memory 1.0 MiB", "give --memory"]);
}

#[test]
fn plans_by_name_and_by_file_are_followed() {
    let bench = Bench::new();
    bench.small();
    let train = |plan: &'static str| {
        // Training operators differ in the last bits.
        let args = ["train", "small", "--epochs", "2", "--evaluation", "none", "--training", "Training_CPU_Native"];
        [&args, &QUICK[..], &["--plan", plan]].concat()
    };
    let losses = |json: &Value| -> Vec<f64> {
        let epochs = json["epochs"].as_array().expect("a list");
        epochs.iter().map(|e| e["loss"].as_f64().expect("a number")).collect()
    };
    let sequential = bench.json(&train("sequential"));
    let pipeline = bench.json(&train("pipeline"));
    assert_eq!(sequential["plan"]["strategy"], "sequential");
    assert_eq!(pipeline["plan"]["strategy"], "pipeline");
    assert_eq!(losses(&sequential), losses(&pipeline), "mini-batches are trained in the same order");
    fs::write(bench.path().join("plan.json"), pipeline["plan"].to_string()).expect("room");
    let again = bench.json(&train("plan.json"));
    assert_eq!(again["plan"], pipeline["plan"]);
    assert_eq!(losses(&again), losses(&pipeline));
    let other = ["train", "small", "--epochs", "1", "--batch-size", "7", "--plan", "plan.json"];
    bench.refused(&[&other[..], &QUICK[..]].concat(), &["plan.json", "plan again"]);
}

#[test]
fn a_run_leaves_a_trace_and_a_report() {
    let bench = Bench::new();
    bench.small();
    bench.text(&[&["train", "small", "--epochs", "2", "--run", "run"], &QUICK[..]].concat());
    let read = |file: &str| fs::read_to_string(bench.path().join("run").join(file)).expect("written");
    let trace: Value = serde_json::from_str(&read("trace.json")).expect("JSON");
    let events = trace["traceEvents"].as_array().or_else(|| trace.as_array()).expect("events");
    let spans = events.iter().filter(|e| e["ph"] == "X").count();
    assert!(spans >= 2 * 3, "every phase of every mini-batch: {spans}");
    let page = read("report.html");
    for part in ["Predicted", "Timeline", "Accuracy", "CPU"] {
        assert!(page.to_lowercase().contains(&part.to_lowercase()), "{part} is missing");
    }
}

#[test]
fn a_memory_budget_is_planned_with() {
    let bench = Bench::new();
    let generate =
        ["generate", "sbm", "-o", "wide", "--nodes", "4000", "--classes", "3", "--dim", "2048", "--degree", "8"];
    bench.text(&generate);
    let train = |memory: &str| {
        let options = ["--epochs", "1", "--evaluation", "none", "--plan", "pipeline", "--memory", memory];
        let all = [&["train", "wide", "--batch-size", "256"], &QUICK[..], &options].concat();
        all.into_iter().map(str::to_string).collect::<Vec<String>>()
    };
    let json = |memory: u64| {
        let args = train(&memory.to_string());
        bench.json(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let free = json(64 << 30);
    let number = |json: &Value, field: &str| json[field].as_u64().expect("a number");
    let planned = |json: &Value| json["plan"]["memory"]["host"].as_u64().expect("bytes");
    let (held, need) = (number(&free, "held_bytes"), planned(&free));
    // Half of it more, since the buffers of profiling vary.
    let memory = held + held / 2 + need;
    let tight = json(memory);
    let (held, planned) = (number(&tight, "held_bytes"), planned(&tight));
    assert!(held + planned <= memory, "{planned} bytes for buffers beside {held}, of {memory}");
    assert_eq!(tight["epochs"].as_array().map(Vec::len), Some(1), "and it ends");
    // With a profile, `--memory` limits the buffers.
    bench.text(&[&["profile", "wide", "--batch-size", "256", "--save", "p.json"], &QUICK[..]].concat());
    let of = |memory: &str| bench.json(&["plan", "--profile", "p.json", "--memory", memory]);
    let bytes = |json: &Value| -> Vec<u64> {
        let plans = json["plans"].as_array().expect("a list").iter();
        plans.map(|p| p["memory"]["host"].as_u64().expect("bytes")).collect()
    };
    // The memory of the smallest plan suffices for a plan, and then all plans fit it.
    let least = bytes(&of("64GiB")).into_iter().min().expect("a plan");
    let fitting = bytes(&of(&least.to_string()));
    assert!(!fitting.is_empty() && fitting.iter().all(|bytes| *bytes <= least), "{fitting:?} within {least} bytes");
    bench.refused(&["plan", "--profile", "p.json", "--memory", "100KiB"], &["smallest needs", "0.1 MiB", "batch size"]);
    let too_little = train(&(held / 2).to_string());
    bench.misused(&too_little.iter().map(String::as_str).collect::<Vec<_>>(), &["--memory", "give --memory"]);
}
