//! Choice among training operators, end to end: measured, reported everywhere, without effect on the model.
#![cfg(feature = "cpu")]

mod support;

use std::fs;

use serde_json::Value;
use support::Bench;

const NATIVE: &str = "Training_CPU_Native";
const BURN: &str = "Training_CPU_Burn";
const QUICK: [&str; 10] =
    ["--layers", "2", "--hidden", "16", "--fanouts", "5,5", "--profile-seconds", "0.3", "--batch-size", "32"];

fn selection(json: &Value) -> &Value {
    let all = json["profile"]["selections"].as_array().expect("a list");
    let [only] = &all[..] else { panic!("one place: {all:?}") };
    only
}

/// The candidate of this key.
#[track_caller]
fn candidate<'a>(selection: &'a Value, key: &str) -> &'a Value {
    let all = selection["candidates"].as_array().expect("a list");
    all.iter().find(|c| c["training"] == key).unwrap_or_else(|| panic!("no {key}: {selection:#}"))
}

fn trained_by(json: &Value) -> &Value {
    &json["plan"]["schedule"]["shares"][0]["keys"]["training"]
}

fn losses(json: &Value) -> Vec<f64> {
    json["epochs"].as_array().expect("a list").iter().map(|e| e["loss"].as_f64().expect("a number")).collect()
}

#[test]
fn both_operators_are_timed_and_the_outcome_is_reported_everywhere() {
    let bench = Bench::new();
    bench.small();
    for command in ["profile", "plan", "train"] {
        let extra: &[&str] = if command == "train" { &["--epochs", "1", "--run", "run"] } else { &[] };
        let json = bench.json(&[&[command, "small"], &QUICK[..], extra].concat());
        let selection = selection(&json);
        let chosen = selection["chosen"].as_str().expect("a key");
        assert!([NATIVE, BURN].contains(&chosen), "{selection:#}");
        assert_eq!((&selection["place"], selection["threads"].is_u64()), (&"host".into(), true));
        for key in [NATIVE, BURN] {
            let candidate = candidate(selection, key);
            assert!(candidate["first"].as_f64().expect("every one is timed") > 0.0);
            let outcomes: &[&str] = if key == chosen { &["chosen"] } else { &["slower", "given-up"] };
            assert!(outcomes.iter().any(|o| candidate["outcome"] == *o), "{selection:#}");
        }
        // The other one has no routes.
        let routes = json["profile"]["routes"].as_array().expect("a list");
        assert!(routes.iter().all(|r| r["route"]["training"] == chosen), "{routes:?}");
        assert!(json["profile"]["seconds"].as_f64() > selection["seconds"].as_f64(), "it is a part of profiling");
    }
    let page = fs::read_to_string(bench.path().join("run/report.html")).expect("written");
    assert!(page.contains("Training operators") && page.contains(NATIVE) && page.contains(BURN));
    bench.text(&[&["profile", "small", "--save", "p.json"], &QUICK[..]].concat());
    let plan = bench.text(&["plan", "--profile", "p.json", "--report", "plan.html"]);
    let train = bench.text(&[&["train", "small", "--epochs", "1"], &QUICK[..]].concat());
    for text in [plan, train] {
        let line = text.lines().find(|l| l.starts_with("trained at host by Training_CPU_")).expect("a line of it");
        assert!(
            line.contains(NATIVE) && line.contains(BURN) && line.matches(" per mini-batch (").count() == 2,
            "{line}"
        );
    }
    assert!(fs::read_to_string(bench.path().join("plan.html")).expect("written").contains("Training operators"));
}

#[test]
fn an_operator_chosen_by_name_is_not_compared() {
    let bench = Bench::new();
    bench.small();
    for key in [NATIVE, BURN] {
        let json = bench.json(&[&["train", "small", "--epochs", "1", "--training", key], &QUICK[..]].concat());
        assert_eq!(json["profile"]["selections"], serde_json::json!([]));
        assert_eq!(trained_by(&json), key);
        // A plan from a file names its operator.
        fs::write(bench.path().join("plan.json"), json["plan"].to_string()).expect("room");
        let again = bench.json(&[&["train", "small", "--epochs", "1", "--plan", "plan.json"], &QUICK[..]].concat());
        assert_eq!((&again["profile"]["selections"], trained_by(&again)), (&serde_json::json!([]), &key.into()));
        assert_eq!(losses(&again), losses(&json));
    }
}

#[test]
fn the_model_is_the_same_whatever_was_compared() {
    let bench = Bench::new();
    bench.small();
    let train = |extra: &[&str]| {
        let args = ["train", "small", "--epochs", "2", "--dropout", "0.3", "--plan", "sequential", "--threads", "2"];
        bench.json(&[&args, &QUICK[..], extra].concat())
    };
    for model in ["sage", "gcn", "gat"] {
        let auto = train(&["--model", model, "--save", "auto.safetensors"]);
        let chosen = trained_by(&auto).as_str().expect("a key").to_string();
        let named = train(&["--model", model, "--save", "named.safetensors", "--training", &chosen]);
        assert_eq!(losses(&auto), losses(&named), "{model} by {chosen}");
        let read = |file: &str| morphgl_model_core::load_parameters(&bench.path().join(file)).expect("written");
        assert!(read("auto.safetensors") == read("named.safetensors"), "{model} by {chosen}: bit for bit");
    }
}

#[test]
fn an_operator_that_cannot_train_the_model_has_a_reason() {
    let bench = Bench::new();
    bench.small();
    let json = bench.json(&[&["train", "small", "--epochs", "1", "--model", "gin"], &QUICK[..]].concat());
    let selection = selection(&json);
    assert_eq!((&selection["chosen"], trained_by(&json)), (&BURN.into(), &BURN.into()));
    let [burn, native] = [BURN, NATIVE].map(|key| candidate(selection, key));
    assert_eq!(
        (&burn["outcome"], burn["first"].is_null()),
        (&"chosen".into(), true),
        "nothing to compare: {selection:#}"
    );
    assert_eq!(native["outcome"], "unable");
    assert!(native["reason"].as_str().expect("a reason").contains("does not do gin"), "{selection:#}");
    assert_eq!(selection["seconds"], 0.0);
    let text = bench.text(&[&["plan", "small", "--model", "gin"], &QUICK[..]].concat());
    assert!(text.contains("Training_CPU_Burn (the only one that can); Training_CPU_Native (cannot: "), "{text}");
}

/// The choice is kept beside the dataset: the next run prefers it where operators are equally fast, unless it measures anew.
#[test]
fn the_last_choice_is_kept() {
    let bench = Bench::new();
    bench.small();
    let train = |extra: &[&str]| bench.json(&[&["train", "small", "--epochs", "1"], &QUICK[..], extra].concat());
    let preferred = |json: &Value| json["profile"]["settings"]["preferred"].clone();
    let first = train(&[]);
    assert!(preferred(&first).is_null(), "nothing was chosen yet");
    let second = train(&["--seed", "7"]);
    assert_eq!(preferred(&second), serde_json::json!([selection(&first)["chosen"]]));
    assert!(preferred(&train(&["--fresh"])).is_null());
    // Of another model, and where no choice can be kept or read.
    assert!(preferred(&train(&["--model", "gcn"])).is_null());
    let path = bench.path().join("small/choices.json");
    let kept: Value = serde_json::from_slice(&fs::read(&path).expect("kept")).expect("JSON");
    assert_eq!(kept.as_array().map(Vec::len), Some(2), "{kept:#}");
    fs::remove_file(&path).expect("there");
    fs::create_dir(&path).expect("room");
    assert!(preferred(&train(&[])).is_null());
    bench.text(&["info", "small", "--check"]);
}

/// Two identical commands on a dataset directory have the same bits by default: the second run keeps the operator of the first where
/// both are equally fast. A run that measures another one to be faster beyond the noise takes that, so pairs are tried.
#[test]
fn two_runs_have_the_same_bits() {
    let bench = Bench::new();
    bench.small();
    let train = |run: &str| bench.json(&[&["train", "small", "--epochs", "3", "--run", run], &QUICK[..]].concat());
    let same = (0..5).any(|pair| {
        let runs = ["a", "b"].map(|name| format!("{name}{pair}"));
        let [first, second] = [&runs[0], &runs[1]].map(|run| train(run));
        if selection(&first)["chosen"] != selection(&second)["chosen"] {
            return false;
        }
        assert_eq!(losses(&first), losses(&second));
        let [first, second] =
            runs.map(|run| fs::read(bench.path().join(run).join("model.safetensors")).expect("a model"));
        assert!(first == second, "the models differ");
        true
    });
    assert!(same, "five pairs of runs chose different operators");
}
