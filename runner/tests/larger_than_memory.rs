//! A dataset several times larger than the memory allowed is trained from disk, within that memory.
#![cfg(feature = "cpu")]

mod support;

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
fn a_generated_dataset_is_not_on_disk() {
    let args = ["train", "--batching", "Batching_CPU+Disk_Neighbor"];
    Bench::new().refused(&args, &["made in memory", "morphgl generate"]);
}
