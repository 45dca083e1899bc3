//! A dataset several times larger than the memory allowed is trained from disk, within that memory.
#![cfg(feature = "cpu")]

mod support;

use std::fs;

use serde_json::Value;
use support::Bench;

/// Bytes the whole program may use.
const MEMORY: u64 = 200 << 20;

#[test]
fn an_epoch_stays_within_the_memory_allowed() {
    let bench = Bench::new();
    let large =
        ["generate", "sbm", "-o", "large", "--nodes", "1200000", "--degree", "8", "--dim", "256", "--classes", "4"];
    let small = ["--dtype", "f16", "--memory", "100MiB", "--split", "0.004,0.0005,0.0005"];
    bench.text(&[&large[..], &small].concat());
    let size: u64 = std::fs::read_dir(bench.path().join("large"))
        .expect("it was generated")
        .map(|f| f.and_then(|f| f.metadata()).expect("readable").len())
        .sum();
    assert!(size > 3 * MEMORY, "{size} bytes of dataset");
    let memory = MEMORY.to_string();
    let train = ["train", "large", "--memory", &memory, "--fanouts", "5,5", "--hidden", "16", "--batch-size", "256"];
    let train = [&train[..], &["--threads", "2", "--epochs", "1"]].concat();
    let json = bench.json(&train);
    let peak = json["peak_rss_bytes"].as_u64().expect("a number");
    assert!(peak > 0 && peak <= MEMORY, "a peak of {peak} bytes, {MEMORY} allowed");
    let keys = &json["plan"]["schedule"]["shares"][0]["keys"];
    assert_eq!(keys["batching"], "Batching_CPU+Disk_Neighbor");
    assert!(json["epochs"][0]["loss"].as_f64().expect("a number").is_finite());
    // Evaluated on sampled mini-batches.
    assert!(json["test_accuracy"].as_f64().expect("a number") > 0.25);

    let refused = [&train[..], &["--evaluation", "full"]].concat();
    bench.misused(&refused, &["--evaluation full", "left on disk", "use sampled or none"]);
    let refused = [&train[..], &["--batching", "Batching_CPU_Neighbor"]].concat();
    bench.refused(&refused, &["Batching_CPU_Neighbor", "left on disk", "allow more memory"]);
}

#[test]
fn training_from_disk_equals_training_from_memory() {
    let bench = Bench::new();
    bench.small();
    let train = ["train", "small", "--fanouts", "4,3", "--hidden", "8", "--batch-size", "32", "--threads", "1"];
    // Training operators differ in the last bits.
    let train = [&train[..], &["--training", "Training_CPU_Native"]].concat();
    let train = [&train[..], &["--epochs", "2", "--plan", "sequential", "--evaluation", "sampled"]].concat();
    let memory = bench.json(&train);
    let used = |json: &serde_json::Value| json["plan"]["schedule"]["shares"][0]["keys"]["batching"].clone();
    assert_eq!(used(&memory), "Batching_CPU_Neighbor");
    let routes = memory["profile"]["routes"].as_array().expect("routes");
    assert_eq!(routes.len(), 1, "a dataset that fits in memory is not profiled from disk");
    let disk = bench.json(&[&train[..], &["--batching", "Batching_CPU+Disk_Neighbor"]].concat());
    assert_eq!(used(&disk), "Batching_CPU+Disk_Neighbor");
    for epoch in 0..2 {
        assert_eq!(disk["epochs"][epoch]["loss"], memory["epochs"][epoch]["loss"], "epoch {epoch}");
    }
    assert_eq!(disk["test_accuracy"], memory["test_accuracy"]);
}

#[test]
fn the_size_of_the_cache_is_planned_and_changes_no_mini_batch() {
    const MEMORY: u64 = 160 << 20;
    const KEY: &str = "Batching_CPU+Disk_Neighbor";
    let bench = Bench::new();
    let generate = ["generate", "sbm", "-o", "graph", "--nodes", "100000", "--degree", "8", "--dim", "128"];
    bench.text(&[&generate[..], &["--classes", "4", "--split", "0.05,0.005,0.005"]].concat());
    let memory = MEMORY.to_string();
    // Training operators differ in the last bits.
    let options = ["graph", "--batching", KEY, "--training", "Training_CPU_Native", "--memory", &memory];
    let options =
        [&options[..], &["--fanouts", "5,5", "--hidden", "16", "--batch-size", "256", "--threads", "2"]].concat();
    let train = |more: &[&str]| bench.json(&[&["train", "--epochs", "2"][..], &options, more].concat());
    let number = |json: &Value| json.as_u64().expect("a number");
    let losses = |json: &Value| [0, 1].map(|i| json["epochs"][i]["loss"].as_f64().expect("a number").to_bits());

    let chosen = train(&[]);
    let cache = &chosen["plan"]["caches"][0];
    let [profiled, bytes, left] = ["profiled_bytes", "bytes", "left_bytes"].map(|field| number(&cache[field]));
    assert_eq!((&cache["operator"], number(&chosen["plan"]["memory"]["caches"])), (&KEY.into(), bytes));
    assert!(profiled <= 42 << 20 && number(&chosen["plan"]["memory"]["host"]) <= left, "{cache:#}");
    assert!(bytes + left + number(&chosen["held_bytes"]) <= MEMORY, "{cache:#}");
    let peak = number(&chosen["peak_rss_bytes"]);
    assert!(peak <= MEMORY, "a peak of {peak} bytes, {MEMORY} allowed");
    let points = chosen["profile"]["routes"][0]["cache"]["points"].as_array().expect("a curve");
    assert!(points.len() > 10 && points.iter().map(|p| number(&p["bytes"])).is_sorted(), "{points:?}");

    // The same plan with the smallest cache of the curve, and with the largest.
    let text = bench.text(&[&["plan"][..], &options, &["--output", "plan.json"]].concat());
    assert!(text.contains(&format!("cache: {KEY} holds")) && text.contains("left for buffers and workers"), "{text}");
    let path = bench.path().join("plan.json");
    let plan: Value = serde_json::from_str(&fs::read_to_string(&path).expect("it was written")).expect("JSON");
    let with_size = |bytes: &Value| {
        let mut plan = plan.clone();
        plan["caches"][0]["bytes"] = bytes.clone();
        fs::write(&path, plan.to_string()).expect("room");
        train(&["--plan", "plan.json", "--evaluation", "none"])
    };
    let [small, large] = [0, points.len() - 1].map(|i| with_size(&points[i]["bytes"]));
    assert_eq!([losses(&small), losses(&large)], [losses(&chosen); 2]);
    let hits = |json: &Value| number(&json["counters"][KEY]["cache_hits"]);
    assert!(hits(&small) < hits(&large), "{} hits and {}", hits(&small), hits(&large));
    assert_eq!(hits(&large), number(&large["counters"][KEY]["cache_requests"]), "everything is cached");
    let huge = [&["train", "--plan", "plan.json"][..], &options].concat();
    let mut plan = plan.clone();
    plan["caches"][0]["bytes"] = Value::from(MEMORY);
    fs::write(&path, plan.to_string()).expect("room");
    bench.refused(&huge, &["plan.json", "its caches, buffers and workers take", "plan again"]);

    // A size that the user sets is kept.
    let fixed = train(&["--set", &format!("{KEY}.memory_bytes=20MiB"), "--evaluation", "none"]);
    let cache = &fixed["plan"]["caches"][0];
    assert_eq!(cache["bytes"], cache["profiled_bytes"]);
    assert!(number(&cache["bytes"]) <= 20 << 20, "{cache:#}");
    assert_eq!(losses(&fixed), losses(&chosen));
}

#[test]
fn a_generated_dataset_is_not_on_disk() {
    let args = ["train", "--batching", "Batching_CPU+Disk_Neighbor"];
    Bench::new().refused(&args, &["made in memory", "morphgl generate"]);
}
