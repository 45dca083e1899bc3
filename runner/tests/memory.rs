//! A run of training holds the dataset, a little more, and what each worker needs.
#![cfg(all(feature = "cpu", target_os = "linux"))]

mod support;

use support::Bench;

/// Bytes that a run may hold for each worker, with the mini-batches in flight and the trainer's memory.
const WORKER: u64 = 150_000_000;
/// One part of so many of the dataset that may be held beside it. On a large dataset a seventh is promised; on one as small
/// as this that would hide half a step.
const BESIDE: u64 = 20;

/// Generates a dataset of some 210 MB; its bytes.
fn generate(bench: &Bench) -> u64 {
    let args = ["generate", "sbm", "-o", "graph", "--nodes", "400000", "--degree", "30", "--dim", "100", "--classes"];
    bench.text(&[&args[..], &["8", "--split", "0.02,0.005,0.005"]].concat());
    let files = std::fs::read_dir(bench.path().join("graph")).expect("it was generated");
    files.map(|f| f.and_then(|f| f.metadata()).expect("readable").len()).sum()
}

/// Trains; the most memory held, and the plan's workers.
fn peak(bench: &Bench, options: &[&str]) -> (u64, u64) {
    let train = ["train", "graph", "--evaluation", "none", "--epochs", "2", "--hidden", "128", "--batch-size", "256"];
    let json = bench.json(&[&train[..], options].concat());
    let shares = json["plan"]["schedule"]["shares"].as_array().expect("shares");
    let workers = shares.iter().map(|s| s["workers"].as_u64().expect("a number")).sum();
    (json["peak_rss_bytes"].as_u64().expect("a number"), workers)
}

#[test]
fn training_holds_little_beside_the_dataset() {
    let bench = Bench::new();
    let dataset = generate(&bench);
    assert!(dataset > 200_000_000, "{dataset} bytes of dataset");
    for options in [&["--threads", "1"][..], &["--threads", "2"], &["--threads", "2", "--plan", "sequential"]] {
        let (peak, workers) = peak(&bench, options);
        let allowed = dataset + dataset / BESIDE + workers * WORKER;
        assert!(peak > dataset && peak <= allowed, "{options:?}: a peak of {peak} bytes, {allowed} allowed");
    }

    // Files that are mapped are not held: the system takes them back when it needs the memory.
    let half = (dataset / 2).to_string();
    let train = ["train", "graph", "--evaluation", "none", "--epochs", "1", "--hidden", "16", "--threads", "1"];
    let json = bench.json(&[&train[..], &["--batch-size", "256", "--mmap", "--memory", &half]].concat());
    let held = json["held_bytes"].as_u64().expect("a number");
    assert!(held > 0 && held < dataset / 2, "{held} bytes held beside a mapped dataset of {dataset}");
}
