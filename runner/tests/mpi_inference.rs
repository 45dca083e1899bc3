//! `mpirun morphgl predict` and `evaluate`, and evaluation with all neighbours while ranks train.
#![cfg(all(feature = "mpi", feature = "cpu"))]

#[path = "support/mpi.rs"]
mod mpi;
mod support;

use std::fs;
use std::path::Path;

use mpi::{has_mpirun, mpirun, same, say, stderr};
use serde_json::Value;
use support::Bench;

/// The bench with a dataset of 300 nodes and two models.
fn bench() -> Option<Bench> {
    if !has_mpirun() {
        return None;
    }
    let bench = Bench::new();
    bench.small();
    for (kind, epochs) in [("sage", "3"), ("gat", "1")] {
        let save = format!("{kind}.safetensors");
        let model = ["train", "small", "--model", kind, "--layers", "2", "--hidden", "12", "--heads", "2"];
        let rest = ["--profile-seconds", "0.1", "--evaluation", "none", "--epochs", epochs, "--save", &save];
        bench.text(&[&model[..], &rest].concat());
    }
    Some(bench)
}

/// The document that rank 0 alone prints.
#[track_caller]
fn json(bench: &Bench, ranks: usize, args: &[&str]) -> Value {
    let output = same(bench, ranks, &[args, &["--json"]].concat()).output().expect("mpirun starts");
    assert!(output.status.success(), "{ranks} ranks, {args:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON document, by rank 0")
}

/// Amounts by rank.
fn amounts(ranks: &Value, name: &str) -> Vec<u64> {
    let ranks = ranks.as_array().expect("ranks").iter();
    ranks.map(|rank| rank[name].as_u64().unwrap_or_else(|| panic!("no {name}: {rank}"))).collect()
}

/// The document without what ranks alone have; each layer's outputs were computed once, and sent to every other rank.
#[track_caller]
fn without_ranks(mut json: Value, ranks: usize, values: u64) -> Value {
    let of_ranks = json.as_object_mut().expect("an object").remove("ranks").expect("ranks");
    let computed = amounts(&of_ranks, "values");
    assert_eq!((computed.len(), computed.iter().sum::<u64>()), (ranks, values), "{of_ranks}");
    assert!(ranks == 1 || computed.iter().all(|&own| own < values.max(1)), "each has a part: {of_ranks}");
    // A message to every other rank of all that this one has computed, besides a few of a line.
    for (own, sent) in computed.iter().zip(amounts(&of_ranks, "bytes_sent")) {
        assert_eq!(sent, 4 * own * (ranks as u64 - 1), "{of_ranks}");
    }
    json
}

/// The same but for rounding of numbers that are not whole: kernels may take the last rows of a range in another way.
#[track_caller]
fn near(what: &str, found: &Value, expected: &Value) {
    match (found, expected) {
        (Value::Array(found), Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len(), "{what}");
            found.iter().zip(expected).for_each(|(found, expected)| near(what, found, expected));
        }
        (Value::Object(found), Value::Object(expected)) => {
            assert!(found.keys().eq(expected.keys()), "{what}: {found:?}, {expected:?}");
            found.iter().zip(expected).for_each(|((_, found), (_, expected))| near(what, found, expected));
        }
        (Value::Number(found), Value::Number(expected)) if expected.is_f64() => {
            let [found, expected] = [found, expected].map(|x| x.as_f64().expect("a number"));
            assert!(
                (found - expected).abs() <= 1e-5 * expected.abs().max(1.0),
                "{what}: {found} instead of {expected}"
            );
        }
        _ => assert_eq!(found, expected, "{what}"),
    }
}

#[test]
fn predictions_are_those_of_one_process() {
    let Some(bench) = bench() else { return };
    fs::write(bench.path().join("ids.txt"), "7\n299\n7\n").expect("space");
    for model in ["sage.safetensors", "gat.safetensors"] {
        for operator in ["Training_CPU_Native", "Training_CPU_Burn"] {
            let args = ["predict", model, "small", "--training", operator];
            let (all, few) = (bench.json(&args), bench.json(&[&args[..], &["--nodes", "ids.txt"]].concat()));
            for ranks in [1, 2, 3, 4] {
                let of_ranks = without_ranks(json(&bench, ranks, &args), ranks, 300 * (12 + 3));
                let what = format!("{ranks} ranks, {model}, {operator}");
                near(&what, &of_ranks, &all);
                // One rank has the bits of a process.
                assert!(ranks > 1 || of_ranks == all, "{what}");
                // Two distinct nodes: more ranks than rows of the last layer.
                let of_ranks = json(&bench, ranks, &[&args[..], &["--nodes", "ids.txt"]].concat());
                near(&what, &without_ranks(of_ranks, ranks, 300 * 12 + 2 * 3), &few);
            }
        }
    }
    // Rank 0 alone writes, and prints one line. Probabilities in the file have six digits.
    let predict = ["predict", "sage.safetensors", "small", "-o"];
    let read = |name: &str| fs::read(bench.path().join(name)).expect("written");
    for (of_one, of_ranks) in [("one.csv", "all.csv"), ("one.npy", "all.npy")] {
        bench.text(&[&predict[..], &[of_one]].concat());
        let output = same(&bench, 3, &[&predict[..], &[of_ranks]].concat()).output().expect("mpirun starts");
        assert!(output.status.success(), "{}", stderr(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text, format!("300 nodes predicted, written to {of_ranks}\n"));
    }
    assert_eq!(read("one.npy"), read("all.npy"), "classes");
    let [one, all] = ["one.csv", "all.csv"].map(|name| String::from_utf8(read(name)).expect("text"));
    let classes = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.rsplit_once(',').expect("a probability").0.to_string()).collect()
    };
    assert_eq!(classes(&one), classes(&all));
    let csv = same(&bench, 3, &["predict", "sage.safetensors", "small"]).output().expect("mpirun starts");
    assert_eq!(String::from_utf8_lossy(&csv.stdout), all, "the same ranks give the same bits");
}

#[test]
fn scores_are_those_of_one_process() {
    let Some(bench) = bench() else { return };
    for operator in ["Training_CPU_Native", "Training_CPU_Burn"] {
        let args = ["evaluate", "sage.safetensors", "small", "--training", operator];
        let alone = bench.json(&args);
        for ranks in [1, 2, 4] {
            let of_ranks = without_ranks(json(&bench, ranks, &args), ranks, 300 * (12 + 3));
            near(&format!("{ranks} ranks, {operator}"), &of_ranks, &alone);
        }
    }
    // Mini-batches are divided: their sums are added in another order.
    let args = ["evaluate", "sage.safetensors", "small", "--evaluation", "sampled", "--batch-size", "16"];
    let alone = bench.json(&args);
    let of_ranks = without_ranks(json(&bench, 3, &args), 3, 0);
    for set in ["train", "valid", "test"] {
        assert_eq!(of_ranks[set]["nodes"], alone[set]["nodes"]);
        assert_eq!(of_ranks[set]["accuracy"], alone[set]["accuracy"]);
        let loss = |json: &Value| json[set]["loss"].as_f64().expect("a loss");
        assert!((loss(&of_ranks) / loss(&alone) - 1.0).abs() < 1e-6, "{of_ranks}, one process {alone}");
    }
}

#[test]
fn training_is_evaluated_by_all_ranks() {
    let Some(bench) = bench() else { return };
    let train = ["train", "small", "--layers", "2", "--hidden", "12", "--epochs", "4", "--profile-seconds", "0.1"];
    let train = [&train[..], &["--training", "Training_CPU_Native", "--evaluate-every", "2"]].concat();
    let alone = bench.json(&train);
    let splits = bench.json(&["info", "small"])["splits"].clone();
    let evaluated = splits["valid"].as_u64().expect("a number") + splits["test"].as_u64().expect("a number");
    for ranks in [1, 2, 4] {
        let run = json(&bench, ranks, &train);
        assert_eq!(run["training"]["evaluation"], "full");
        for (epoch, expected) in
            run["epochs"].as_array().expect("epochs").iter().zip(alone["epochs"].as_array().expect("epochs"))
        {
            let (loss, of_one) = (epoch["valid_loss"].as_f64(), expected["valid_loss"].as_f64());
            let near = match (loss, of_one) {
                // One rank has the bits of a process.
                (Some(loss), Some(of_one)) => (loss / of_one - 1.0).abs() <= if ranks == 1 { 0.0 } else { 1e-4 },
                both => both == (None, None),
            };
            assert!(near, "{ranks} ranks: {loss:?}, one process {of_one:?}");
        }
        let inference: Vec<Value> =
            run["ranks"].as_array().expect("ranks").iter().map(|rank| rank["inference"].clone()).collect();
        let computed = amounts(&inference.clone().into(), "values");
        // Two evaluations of all nodes' first layer, and of the evaluated nodes' last.
        let all = 2 * (300 * 12 + 3 * evaluated);
        assert_eq!(computed.iter().sum::<u64>(), all, "{inference:?}");
        assert!(ranks == 1 || computed.iter().all(|&own| own < all), "{inference:?}");
        let seconds = inference.iter().map(|of| of["exchange_seconds"].as_f64().expect("seconds"));
        assert!(seconds.clone().all(|seconds| seconds >= 0.0), "{inference:?}");
    }
}

#[test]
fn what_differs_is_named_on_every_rank() {
    let Some(bench) = bench() else { return };
    let program = Path::new(env!("CARGO_BIN_EXE_morphgl"));
    let differ = |first: &[&str], second: &[&str]| {
        mpirun(&bench, &[(program, first), (program, second)]).output().expect("mpirun starts")
    };
    let predict = ["predict", "sage.safetensors", "small"];
    let output = differ(&predict, &["predict", "gat.safetensors", "small"]);
    say(&output, &[0, 1], &["model: rank 1 (", "rank 0 (", "give all ranks the same"]);
    assert!(output.stdout.is_empty(), "nothing is predicted");
    let output = differ(&predict, &[&predict[..], &["--nodes", "test"]].concat());
    say(&output, &[0, 1], &["--nodes: rank 1 (", "300 nodes of digest", "give all ranks the same"]);
    let output = differ(&predict, &[&predict[..], &["--training", "Training_CPU_Burn"]].concat());
    say(&output, &[0, 1], &["training operator (--training): rank 1 (", "give all ranks the same"]);
    // A rank that fails says why, to the others too.
    let output = differ(&predict, &["predict", "nowhere.safetensors", "small"]);
    say(&output, &[1], &["error: ", "nowhere.safetensors"]);
    say(&output, &[0], &["trainer 1 has left the group: ", "nowhere.safetensors"]);
}
