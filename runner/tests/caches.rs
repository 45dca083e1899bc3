//! `--cache`, end to end: what is cached, refusals, and hit rates in the report of a run.
#![cfg(feature = "cpu")]

mod support;

use std::fs;

use serde_json::{Value, json};
use support::Bench;

const DISK: &str = "Batching_CPU+Disk_Neighbor";

/// Bytes for most of the rows and lists of `small`: less than both, more than either.
const SIZE: u64 = 14_000;

/// Trains `small` from disk.
fn from_disk<'a>(extra: &[&'a str]) -> Vec<&'a str> {
    let train = ["train", "small", "--batching", DISK, "--training", "Training_CPU_Native", "--threads", "1"];
    let model = ["--fanouts", "4,3", "--hidden", "8", "--batch-size", "32", "--evaluation", "sampled"];
    let length = ["--epochs", "2", "--plan", "sequential", "--profile-seconds", "0.2", "--memory", "300MiB"];
    [&train[..], &model, &length, extra].concat()
}

fn counter(json: &Value, name: &str) -> Option<u64> {
    json["counters"][DISK][name].as_u64()
}

#[test]
fn every_policy_trains_the_same_and_its_hits_are_reported() {
    let bench = Bench::new();
    bench.small();
    let losses = |json: &Value| [0, 1].map(|epoch| json["epochs"][epoch]["loss"].as_f64().expect("a number"));
    let auto = bench.json(&from_disk(&[]));
    assert_eq!(counter(&auto, "cache_hits"), counter(&auto, "cache_requests"), "everything fits");
    assert_eq!(auto["config"].get("cache"), None);
    for policy in ["in-degree", "random", "weighted-reverse-pagerank", "inclusion", "presample:2", "lru", "sieve"] {
        let limited = bench.json(&from_disk(&["--cache", &format!("{policy}:{SIZE}")]));
        assert_eq!(losses(&limited), losses(&auto), "{policy}");
        let [hits, requests] = ["cache_hits", "cache_requests"].map(|name| counter(&limited, name).expect("a count"));
        assert!(hits > 0 && hits <= requests, "{policy}: {hits} hits of {requests} requests");
        assert_eq!((&limited["config"]["cache"], &limited["config"]["cache_bytes"]), (&json!(policy), &json!(SIZE)));
    }
    let none = bench.json(&from_disk(&["--cache", "none"]));
    assert_eq!(losses(&none), losses(&auto));
    assert_eq!(counter(&none, "cache_requests").unwrap_or(0), 0, "{:#}", none["counters"]);
    // The option of one operator is more particular.
    let set = bench.json(&from_disk(&["--cache", "inclusion:14000", "--set", &format!("{DISK}.cache=none")]));
    assert_eq!(counter(&set, "cache_requests").unwrap_or(0), 0, "{:#}", set["counters"]);
}

/// Of a graph whose node types have rows of different length: hit rates by type, in budgets of bytes; a miss costs the bytes of its row.
#[test]
fn hit_rates_are_by_node_type() {
    let bench = Bench::new();
    for (name, features) in [("by-type", "by-type"), ("papers", "papers"), ("all", "all")] {
        let generate = ["generate", "typed", "-o", name, "--nodes", "3000", "--classes", "8", "--dim", "16"];
        bench.text(&[&generate[..], &["--features", features]].concat());
    }
    let sampled = ["--sampler", "typed", "--fanouts", "6,4", "--batch-size", "100", "--shares", "5,30,100"];
    let policies = ["--policies", "in-degree,inclusion,presample:1,hindsight"];
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    let sum = |list: &Value, field: &str| -> f64 {
        list.as_array().expect("a list").iter().map(|one| number(&one[field])).sum()
    };
    for (name, types) in [("by-type", 4), ("papers", 1), ("all", 4)] {
        let json = bench.json(&[&["cache", name][..], &sampled, &policies].concat());
        assert_eq!(json["types"].as_array().map(Vec::len), Some(types), "{name}: {:#}", json["types"]);
        assert_eq!(json["row_bytes"].is_number(), name == "all", "{name}");
        assert!((sum(&json["types"], "accesses") - number(&json["accesses"])).abs() < 1e-6 * number(&json["accesses"]));
        let of_types = json["types"].as_array().expect("a list");
        let all: f64 = of_types.iter().map(|of| number(&of["rows"]) * number(&of["row_bytes"])).sum();
        let longest = of_types.iter().map(|of| number(&of["row_bytes"])).fold(0.0, f64::max);
        let best = json["policies"][3]["sizes"].as_array().expect("those of hindsight");
        for policy in json["policies"].as_array().expect("a list") {
            let sizes = policy["sizes"].as_array().expect("a list");
            for ((share, size), best) in [0.05, 0.3, 1.0].into_iter().zip(sizes).zip(best) {
                for field in ["rows", "cache_bytes", "missed_bytes"] {
                    let of_types = sum(&size["types"], field);
                    assert!((of_types - number(&size[field])).abs() <= types as f64, "{name}, {field}: {size:#}");
                }
                let [bytes, missed] = ["cache_bytes", "missed_bytes"].map(|field| number(&size[field]));
                assert!((bytes - all * share).abs() <= longest, "{name}: {bytes} of {all}: {size:#}");
                assert_eq!(missed == 0.0, share == 1.0, "{name}: {size:#}");
                // Of as many bytes, no others save more, but for those that are left.
                let left = number(&json["accesses"]) / 100.0 * longest;
                assert!(missed >= number(&best["missed_bytes"]) - left, "{name}: {policy:#}");
            }
        }
        let [inclusion, degree] = [1, 0].map(|policy| number(&json["policies"][policy]["sizes"][1]["hit_rate"]));
        assert!(inclusion > 0.95 * degree, "{name}: {inclusion} by inclusion, {degree} by in-degree");
    }
    bench.misused(&[&["cache", "all"][..], &sampled, &["--policies", "lru"]].concat(), &["lru", "without types"]);
    let text = bench.text(&[&["cache", "by-type"][..], &sampled, &["--policies", "inclusion"]].concat());
    for part in ["rows of 4 node types", "5% of bytes", "node type", "institution", "adjacency lists"] {
        assert!(text.contains(part), "no {part}: {text}");
    }
}

#[test]
fn what_cannot_be_cached_is_refused() {
    let bench = Bench::new();
    bench.small();
    for policy in ["inclusion", "none", "auto:1GiB"] {
        let words = ["--cache", "no operator of any route has a cache", "a dataset in memory", "leave it out"];
        bench.misused(&["train", "small", "--fanouts", "4,3", "--cache", policy], &words);
    }
    let words = [DISK, "cache=inclusion with cache_bytes=1073741824", "needs memory_bytes of at least 107", "auto"];
    bench.refused(&from_disk(&["--cache", "inclusion:1GiB"]), &words);
    bench.refused(&from_disk(&["--cache", "inclusion:50"]), &[DISK, "no room for a row", "give more"]);
    bench.refused(&from_disk(&["--cache", "lru:50"]), &[DISK, "no room for a row", "give more"]);
    let set = format!("{DISK}.cache=hindsight");
    bench.misused(&from_disk(&["--set", &set]), &["counts the epochs that are trained", "give another policy"]);
    bench.misused(&from_disk(&["--cache", "hindsight"]), &["--cache", "counts the epochs that are trained"]);
    bench.misused(&["plan", "small", "--cache", "degree"], &["--cache", "give auto, none, lru, sieve, in-degree"]);
    bench.misused(&["profile", "small", "--cache", "none:1GiB"], &["--cache", "leave the size out"]);
    bench.misused(&["plan", "--profile", "p.json", "--cache", "inclusion"], &["--cache", "cannot be used with"]);
}

#[test]
fn the_plot_of_a_run_is_put_into_its_report() {
    let bench = Bench::new();
    bench.small();
    let trained = bench.json(&from_disk(&["--cache", "in-degree:14000", "--run", "run"]));
    let read = |file: &str| fs::read_to_string(bench.path().join("run").join(file)).expect("written");
    let before = read("report.html");
    assert!(before.contains("Caches") && !before.contains("Hit rates"), "{before}");

    let json = bench.json(&["cache", "--run", "run", "--policies", "in-degree,inclusion,hindsight", "--epochs", "2"]);
    assert_eq!(serde_json::from_str::<Value>(&read("cache.json")).expect("JSON"), json);
    assert_eq!(json["settings"], trained["config"]["sampler"]);
    // The counted epochs are those of the run.
    let accesses = 2.0 * json["accesses"].as_f64().expect("a number");
    assert_eq!(Some(accesses as u64), counter(&trained, "cache_requests"), "{json:#}");
    let page = read("report.html");
    for part in ["Hit rates", "in-degree", "inclusion", "hindsight", "measured in the run"] {
        assert!(page.contains(part), "no {part}");
    }
    let files = fs::read_dir(bench.path().join("run")).expect("there").count();
    bench.text(&["cache", "--run", "run", "--policies", "in-degree,inclusion,hindsight", "--epochs", "2"]);
    assert_eq!(read("report.html"), page, "the plot is replaced by the same");
    assert_eq!(fs::read_dir(bench.path().join("run")).expect("there").count(), files);

    bench.misused(&["cache", "small", "--run", "run"], &["--run", "cannot be used with"]);
    bench.misused(&["cache", "--run", "run", "--fanouts", "2,2"], &["--run", "cannot be used with"]);
    bench.refused(&["cache", "--run", "no-run"], &["no-run/config.toml", "give the --run directory of a training"]);
    fs::remove_file(bench.path().join("run/report.html")).expect("it was there");
    let refused = ["cache", "--run", "run", "--policies", "in-degree"];
    bench.refused(&refused, &["report.html", "a training that has ended"]);
}
