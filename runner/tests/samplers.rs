//! `--sampler`: every command that samples takes every kind, and refuses options of another; `morphgl cache` judges them.
#![cfg(feature = "cpu")]

mod support;

use morphgl_graph_store::{Dataset, Load, read_npy};
use serde_json::{Value, json};
use support::Bench;

const SMALL: [&str; 4] = ["--batch-size", "32", "--threads", "2"];

#[test]
fn models_learn_from_subgraphs_and_walks() {
    let bench = Bench::new();
    bench.small();
    for (sampler, extra) in [
        ("shadow", &["--fanouts", "5,4", "--layers", "4"][..]),
        ("shadow", &["--model", "gcn", "--expansion", "new"]),
        ("walk", &["--walks", "5", "--walk-length", "2", "--restart", "0.3", "--neighbors", "4"]),
        ("walk", &["--model", "gat", "--hidden", "32"]),
    ] {
        let train = ["train", "small", "--sampler", sampler, "--epochs", "12", "--lr", "0.01"];
        let json = bench.json(&[&train[..], &SMALL, extra].concat());
        let losses: Vec<f64> =
            json["epochs"].as_array().expect("epochs").iter().filter_map(|e| e["loss"].as_f64()).collect();
        assert!(losses[11] < 0.9 * losses[0], "{sampler} {extra:?}: {losses:?}");
        assert!(json["test_accuracy"].as_f64() > Some(0.5), "{sampler} {extra:?}: {:#}", json["test_accuracy"]);
    }
}

/// Both trainers see the same mini-batches, whose importance weighs GraphSAGE's mean.
#[test]
fn the_trainers_agree_on_importance() {
    let bench = Bench::new();
    bench.small();
    let run = |training: &str| {
        let train = ["train", "small", "--sampler", "walk", "--epochs", "2", "--dropout", "0", "--training", training];
        bench.json(&[&train[..], &SMALL].concat())["epochs"][1]["loss"].as_f64().expect("a loss")
    };
    let (native, burn) = (run("Training_CPU_Native"), run("Training_CPU_Burn"));
    assert!((native - burn).abs() < 1e-4 * burn, "{native} and {burn}");
}

#[test]
fn options_of_another_kind_are_refused() {
    let bench = Bench::new();
    bench.small();
    let refused = |args: &[&str], words: &[&str]| bench.misused(&[&["train", "small"][..], args].concat(), words);
    refused(&["--walks", "3"], &["--walks", "--sampler neighbor", "leave it out"]);
    refused(&["--sampler", "shadow", "--restart", "0.1"], &["--restart", "--sampler shadow"]);
    refused(&["--sampler", "walk", "--fanouts", "5,5,5"], &["--fanouts", "--sampler walk"]);
    refused(&["--sampler", "walk", "--weighted"], &["--weighted", "--sampler walk"]);
    refused(&["--sampler", "walk", "--model", "gcn"], &["gcn", "importance", "use sage or gat"]);
    let other = ["--sampler", "walk", "--batching", "Batching_CPU_Neighbor"];
    refused(&other, &["Batching_CPU_Neighbor does not sample by walk", "--sampler neighbor"]);
}

fn hit_rates(policy: &Value) -> Vec<f64> {
    policy["sizes"].as_array().expect("sizes").iter().filter_map(|size| size["hit_rate"].as_f64()).collect()
}

#[test]
fn no_static_cache_has_more_hits_than_the_optimum() {
    let bench = Bench::new();
    bench.small();
    for (sampler, policies) in [("neighbor", 9), ("shadow", 9), ("walk", 8)] {
        let args =
            ["cache", "small", "--sampler", sampler, "--shares", "0,10,50,100", "--plot", "hits.svg", "--epochs", "2"];
        let json = bench.json(&[&args[..], &SMALL].concat());
        let all = json["policies"].as_array().expect("policies");
        // Walks have no fanouts for the analytic policy to read.
        assert_eq!(all.len(), policies, "{sampler}: {json:#}");
        let best = hit_rates(all.iter().find(|p| p["policy"] == "hindsight").expect("the optimum"));
        assert_eq!((best[0], best[3]), (0.0, 1.0), "nothing and everything is cached");
        for policy in all {
            let rates = hit_rates(policy);
            assert!(rates.iter().zip(&best).all(|(rate, best)| *rate <= best + 1e-9), "{sampler}: {policy:#}");
            let row_bytes = json["row_bytes"].as_f64().expect("bytes");
            assert_eq!(policy.get("lists").is_some(), sampler == "neighbor", "blocks of others are no hops");
            let missed = policy["sizes"][0]["missed_bytes"].as_f64().expect("bytes");
            assert!((missed - json["accesses"].as_f64().expect("accesses") * row_bytes).abs() <= 1.0, "{policy:#}");
        }
        let picture = std::fs::read_to_string(bench.path().join("hits.svg")).expect("a picture");
        assert!(picture.starts_with("<svg") && picture.contains("hindsight") && !picture.contains("NaN"), "{picture}");
    }
    bench.misused(&["cache", "small", "--save", "hot.npy"], &["--save", "--policies"]);
    bench.misused(&["cache", "small", "--policies", "hot"], &["hot", "in-degree", "hindsight", "sieve"]);
    bench.misused(&["cache", "small", "--policies", "lru", "--save", "hot.npy"], &["--save", "lru has no scores"]);
    let policies = ["--policies", "sieve,inclusion,lru", "--shares", "0,30,100", "--plot", "hits.svg"];
    let json = bench.json(&[&["cache", "small"][..], &policies, &SMALL].concat());
    for (policy, name) in json["policies"].as_array().expect("policies").iter().zip(["sieve", "inclusion", "lru"]) {
        let (rates, sizes) = (hit_rates(policy), &policy["sizes"]);
        assert_eq!((policy["policy"].as_str(), rates[0], rates[2]), (Some(name), 0.0, 1.0), "{policy:#}");
        assert!(rates[1] > 0.1 && rates[1] < 0.9, "{policy:#}");
        assert_eq!((&sizes[2]["missed_bytes"], sizes[1]["rows"].is_u64()), (&0.into(), true), "{policy:#}");
        assert_eq!(policy.get("lists").is_some(), name == "inclusion", "no dynamic cache has lists: {policy:#}");
    }
    bench.text(&["cache", "small", "--policies", "inclusion", "--save", "hot.npy"]);
    assert!(bench.path().join("hot.npy").exists(), "the scores are kept");
}

/// The hit rates of adjacency lists, beside those computed here from the counted accesses; and the bytes over PCIe.
#[test]
fn adjacency_lists_are_cached_by_accesses_a_byte() {
    let bench = Bench::new();
    bench.text(&["generate", "sbm", "-o", "small", "--nodes", "900", "--degree", "7", "--dim", "50", "--classes", "3"]);
    let args = ["cache", "small", "--policies", "hindsight", "--shares", "0,3,40,100", "--save", "hot.npy"];
    let args = [&args[..], &SMALL, &["--fanouts", "4,3"]].concat();
    let json = bench.json(&args);

    let dataset = Dataset::open(bench.path().join("small"), Default::default()).expect("sound");
    let (scores, shape) = read_npy::<f32>(&bench.path().join("hot.npy"), Load::Ram).expect("it was saved");
    assert_eq!(shape, [2, 900]);
    let bytes = |v: u32| 4 * dataset.topology.degree(v) + 4;
    let mut lists: Vec<u32> = (0..900).filter(|&v| dataset.topology.degree(v) > 0).collect();
    let rate = |v: u32| f64::from(scores[900 + v as usize]) / bytes(v) as f64;
    lists.sort_by(|&a, &b| rate(b).total_cmp(&rate(a)).then(a.cmp(&b)));
    let (all, accesses) = (lists.iter().map(|&v| bytes(v)).sum::<u64>(), f64::from(scores[900..].iter().sum::<f32>()));
    assert_eq!(json["lists"], json!({ "accesses": accesses, "lists": lists.len(), "bytes": all }));
    let cached = json["policies"][0]["lists"].as_array().expect("one size per share");
    assert_eq!(cached.len(), 4);
    for (size, share) in cached.iter().zip([0.0, 0.03, 0.4, 1.0]) {
        let (mut held, mut hits, mut number) = (0, 0.0, 0);
        for &v in lists.iter().take_while(|&&v| {
            held += bytes(v);
            held as f64 <= (all as f64 * share).round()
        }) {
            (hits, number) = (hits + f64::from(scores[900 + v as usize]), number + 1);
        }
        let held: u64 = lists[..number].iter().map(|&v| bytes(v)).sum();
        assert_eq!((&size["share"], &size["lists"]), (&json!(share), &json!(number)), "{size:#}");
        assert_eq!(size["cache_bytes"], json!(held), "{size:#}");
        assert!((size["hit_rate"].as_f64().expect("a rate") - hits / accesses).abs() < 1e-9, "{size:#}, {hits}");
    }
    assert_eq!((&cached[0]["hit_rate"], &cached[3]["hit_rate"]), (&json!(0.0), &json!(1.0)));

    // Rows of 200 bytes lie in 7 or 8 sectors of 32.
    let number = |value: &Value| value.as_f64().expect("a number");
    let [none, some] = [0, 2].map(|size| number(&json["policies"][0]["sizes"][size]["link_bytes"]));
    let (zero_copy, naive) = (number(&json["link"]["zero_copy"]["bytes"]), number(&json["link"]["naive"]["bytes"]));
    let missed = 1.0 - number(&json["policies"][0]["sizes"][2]["hit_rate"]);
    assert!(none == zero_copy && (some - missed * zero_copy).abs() <= 1.0, "{json:#}");
    let a_row = zero_copy / number(&json["accesses"]);
    assert!(zero_copy <= naive && (200.0..=256.0).contains(&a_row), "{a_row} bytes per row, naive {naive}");
    let text = bench.text(&args);
    for part in ["over PCIe: ", " adjacency lists of ", "40% of bytes", "40% of rows"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A sampled evaluation of a run's model samples as the run did; options replace its settings one by one, and are said.
#[test]
fn a_run_is_evaluated_as_it_was_sampled() {
    let bench = Bench::new();
    bench.small();
    let train = "train small --epochs 2 --hidden 8 --layers 2 --profile-seconds 0.05 --training Training_CPU_Native --threads 1";
    let settings = [
        ("--fanouts 3,2 --expansion new --batch-size 50 --seed 7", "--fanouts 4,1"),
        ("--sampler shadow --fanouts 3 --batch-size 50 --seed 7", "--batch-size 20"),
        ("--sampler walk --walks 4 --walk-length 2 --restart 0.25 --neighbors 3 --seed 7", "--walks 6"),
    ];
    for (i, (of_run, other)) in settings.into_iter().enumerate() {
        let run = format!("run{i}");
        let json = |line: &str| bench.json(&line.split_whitespace().collect::<Vec<_>>());
        json(&format!("{train} {of_run} --run {run}"));
        let scores = json(&format!("evaluate {run} --evaluation sampled"));
        // All of the run's settings given by hand to its model alone.
        let by_hand = json(&format!("evaluate {run}/model.safetensors small --evaluation sampled {of_run}"));
        assert_eq!(scores, by_hand, "{of_run}");
        let default = json(&format!("evaluate {run}/model.safetensors small --evaluation sampled"));
        assert_ne!(
            scores["test"]["loss"], default["test"]["loss"],
            "{of_run}: settings that change nothing test nothing"
        );

        let args = format!("evaluate {run} --evaluation sampled --json {other}");
        let output = bench.run(&args.split_whitespace().collect::<Vec<_>>());
        let stderr = String::from_utf8_lossy(&output.stderr);
        let option = other.split(' ').next().expect("an option");
        assert!(stderr.contains(&format!("samples as the run did, but for {option}")), "{stderr}");
        let replaced: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let by_hand =
            json(&format!("evaluate {run}/model.safetensors small --evaluation sampled {}", merged(of_run, other)));
        assert_eq!(replaced, by_hand, "{of_run}, {other}");
    }
    // A model that was trained on walks is not evaluated with all neighbours unless that is asked for.
    assert_eq!(bench.json(&["evaluate", "run2"])["evaluation"], "sampled");
    bench.misused(&["evaluate", "run2", "--fanouts", "3,2"], &["--fanouts: --sampler walk does not read it"]);
}

/// `options` with the value of `other`, one of them or a further one.
fn merged(options: &str, other: &str) -> String {
    let (option, value) = other.split_once(' ').expect("an option with a value");
    let words: Vec<&str> = options.split(' ').collect();
    let mut pairs: Vec<(&str, &str)> = words.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.retain(|pair| pair.0 != option);
    pairs.push((option, value));
    pairs.into_iter().map(|(option, value)| format!("{option} {value}")).collect::<Vec<_>>().join(" ")
}
