//! `mpirun morphgl train --resume`: the bits of an undisturbed run by as many ranks, and its losses by any other number.
#![cfg(all(unix, feature = "mpi", feature = "cpu"))]

#[path = "support/mpi.rs"]
mod mpi;
#[path = "support/runs.rs"]
mod runs;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;
use std::time::Duration;

use mpi::{has_mpirun, ranks_of, same, say, stderr};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runs::{Training, status};
use serde_json::Value;
use support::Bench;

/// Some mini-batches per epoch, by one operator: choosing it by measurement would leave it open.
const TRAIN: [&str; 15] = [
    "train",
    "small",
    "--training=Training_CPU_Native",
    "--hidden",
    "16",
    "--fanouts",
    "5,5",
    "--batch-size",
    "16",
    "--profile-seconds",
    "0.1",
    "--evaluate-every",
    "3",
    "--dropout",
    "0.5",
];

fn bench() -> Option<Bench> {
    if !has_mpirun() {
        return None;
    }
    let bench = Bench::new();
    bench.small();
    Some(bench)
}

/// Runs a command by so many ranks, to its end.
#[track_caller]
fn ranks(bench: &Bench, number: usize, args: &[&str]) -> Output {
    let output = same(bench, number, args).output().expect("mpirun starts");
    assert!(output.status.success(), "{number} ranks, {args:?}: {}", stderr(&output));
    output
}

#[track_caller]
fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON document, by rank 0")
}

/// What a row of `metrics.jsonl` says of the model.
fn rows(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let row = |line: &str| -> Value {
        let row: Value = serde_json::from_str(line).expect("a row");
        let mut kept = Value::Null;
        for name in ["epoch", "loss", "train_accuracy", "valid_loss", "valid_accuracy"] {
            kept[name] = row[name].clone();
        }
        kept["score"] = row["report"]["score"].clone();
        kept["batches"] = row["report"]["batches"].clone();
        kept
    };
    text.lines().map(row).collect()
}

/// The same scores of every epoch and the same model, bit for bit.
#[track_caller]
fn alike(run: &Path, expected: &Path) {
    assert_eq!(rows(run), rows(expected));
    let model = |run: &Path| fs::read(run.join("model.safetensors")).expect("a model");
    assert!(model(run) == model(expected), "the models of {} and {} differ", run.display(), expected.display());
}

/// The largest relative distance of the losses of two runs.
fn apart(run: &Path, expected: &Path) -> f64 {
    let losses = |run: &Path| rows(run).iter().map(|row| row["loss"].as_f64().expect("a loss")).collect::<Vec<_>>();
    let (losses, expected) = (losses(run), losses(expected));
    assert_eq!(losses.len(), expected.len(), "epochs");
    losses.iter().zip(&expected).map(|(a, e)| (a / e - 1.0).abs()).fold(0.0, f64::max)
}

/// A run that two ranks begin in the directory `name`, ended by a signal to one of them after some checkpoints.
fn ended(bench: &Bench, name: &str, checkpoint: u64, signal: Signal, rank: usize) -> PathBuf {
    let run = bench.path().join(name);
    let args = [&TRAIN[..], &["--epochs", "60", "--run", name, "--checkpoint-every", "3b"]].concat();
    let mut training = Training::start(same(bench, 2, &args), &run);
    let ids = ranks_of(training.id(), 2);
    assert!(!training.wait_for_checkpoint(checkpoint), "it has more mini-batches than that");
    kill(Pid::from_raw(ids[rank] as i32), signal).expect("it runs");
    let (code, _, stderr) = training.end();
    assert!(code != Some(0), "{stderr}");
    // The kernel takes a moment to end a killed process.
    for _ in 0..1000 {
        if ids.iter().all(|&id| !mpi::is_alive(id)) {
            return run;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("of {ids:?} some are left: {stderr}");
}

/// Ranks reduce the learning rate after the same epoch, clip by the norm of all gradients, and go on with both.
#[test]
fn schedules_and_clipping_give_the_same_bits() {
    let Some(bench) = bench() else { return };
    let optimizer = "--optimizer adamw --weight-decay 0.01 --clip-norm 0.05 --lr 0.2 --warmup 2 --score loss \
                     --lr-schedule plateau --lr-patience 2 --lr-gamma 0.5 --evaluate-every 1";
    let optimizer: Vec<&str> = optimizer.split_whitespace().collect();
    let train: Vec<&str> = TRAIN.iter().copied().filter(|word| !["--evaluate-every", "3"].contains(word)).collect();
    let train = [&train[..], &optimizer].concat();
    let whole = json(&ranks(&bench, 2, &[&train[..], &["--json", "--epochs", "40", "--run", "whole"]].concat()));
    ranks(&bench, 2, &[&train[..], &["--epochs", "15", "--run", "run"]].concat());
    let resumed = json(&ranks(&bench, 2, &["train", "--resume", "run", "--epochs", "40", "--json"]));
    alike(&bench.path().join("run"), &bench.path().join("whole"));
    assert_eq!(resumed["optimizer"], whole["optimizer"]);
    let last = whole["optimizer"]["last_lr"].as_f64().expect("a rate");
    assert!(last < 0.2, "the learning rate was reduced: {last}");
    let alone = bench.json(&[&train[..], &["--epochs", "3"]].concat());
    let loss = |run: &Value| run["epochs"][2]["loss"].as_f64().expect("a loss");
    assert!((loss(&whole) / loss(&alone) - 1.0).abs() < 1e-3, "{} by ranks, {} alone", loss(&whole), loss(&alone));
}

#[test]
fn as_many_ranks_give_the_same_bits() {
    let Some(bench) = bench() else { return };
    let expected = bench.path().join("undisturbed");
    ranks(&bench, 2, &[&TRAIN[..], &["--epochs", "60", "--run", "undisturbed"]].concat());
    // Asked to stop, both end after the same step; killed, rank 0 has kept nothing of what came last.
    for (name, signal, rank) in
        [("asked", Signal::SIGTERM, 1), ("killed", Signal::SIGKILL, 1), ("first", Signal::SIGKILL, 0)]
    {
        let run = ended(&bench, name, 20, signal, rank);
        let resumed = json(&ranks(&bench, 2, &["train", "--resume", name, "--json"]));
        assert_eq!((resumed["ended"].as_str(), &status(&run)[..]), (Some("epochs"), "done"), "{name}");
        assert!(resumed["resumed"]["batches"].is_u64() && resumed["ranks"].as_array().is_some_and(|r| r.len() == 2));
        alike(&run, &expected);
        let trace = fs::read_to_string(run.join("trace.json")).expect("it was written");
        assert!(trace.contains("rank 0 (") && trace.contains("rank 1 ("), "lanes of both ranks");
    }
}

/// Runs that split layers go on by as many ranks, to the same bits, and by no other number of them.
#[test]
fn split_layers_give_the_same_bits() {
    let Some(bench) = bench() else { return };
    let train = [&TRAIN[..], &["--allow-staleness", "15", "--hot-ratio", "0.5"]].concat();
    ranks(&bench, 2, &[&train[..], &["--epochs", "6", "--run", "whole"]].concat());
    ranks(&bench, 2, &[&train[..], &["--epochs", "3", "--run", "run"]].concat());
    let output = same(&bench, 3, &["train", "--resume", "run", "--epochs", "6"]).output().expect("mpirun starts");
    say(&output, &[0, 1, 2], &["the run splits layers, and 2 ranks trained it"]);
    ranks(&bench, 2, &["train", "--resume", "run", "--epochs", "6"]);
    alike(&bench.path().join("run"), &bench.path().join("whole"));
}

#[test]
fn any_number_of_ranks_goes_on() {
    let Some(bench) = bench() else { return };
    let begin = |name: &str, number: usize, epochs: &str| {
        let args = [&TRAIN[..], &["--epochs", epochs, "--run", name]].concat();
        match number {
            0 => drop(bench.text(&args)),
            _ => drop(ranks(&bench, number, &args)),
        }
        bench.path().join(name)
    };
    let expected = begin("undisturbed", 2, "6");
    for (from, to) in [(2, 0), (2, 1), (2, 4), (0, 2), (4, 2)] {
        let name = format!("{from}to{to}");
        let run = begin(&name, from, "3");
        let resume = ["train", "--resume", &name, "--epochs", "6"];
        match to {
            0 => drop(bench.text(&resume)),
            _ => {
                let output = ranks(&bench, to, &[&resume[..], &["--json"]].concat());
                let plan = &json(&output)["plan"];
                assert!(plan["prediction"]["epoch_seconds"].as_f64() > Some(0.0), "{plan}");
                assert!(stderr(&output).contains("planned again: the run was trained by "), "{}", stderr(&output));
            }
        }
        let apart = apart(&run, &expected);
        assert!(apart < 1e-4, "{from} to {to}: losses are {apart:e} apart");
        // A run that was resumed by other ranks is theirs.
        if to == 4 {
            let output = ranks(&bench, 4, &["train", "--resume", &name, "--epochs", "7"]);
            assert!(!stderr(&output).contains("planned again"), "{}", stderr(&output));
        }
    }
}

#[test]
fn a_run_that_is_done_or_not_there_ends_all_ranks() {
    let Some(bench) = bench() else { return };
    ranks(&bench, 2, &[&TRAIN[..], &["--epochs", "2", "--run", "run"]].concat());
    let output = ranks(&bench, 3, &["train", "--resume", "run", "--json"]);
    assert!(stderr(&output).contains("run: the run is done (all epochs done); --epochs trains longer"));
    assert_eq!(json(&output)["resumed"], Value::Null);
    let output = same(&bench, 2, &["train", "--resume", "nowhere"]).output().expect("mpirun starts");
    say(&output, &[0], &["error: nowhere/config.toml: cannot be read; give the --run directory of a training"]);
    say(&output, &[1], &["trainer 0 has left the group: nowhere/config.toml: cannot be read"]);
    let epochs = same(&bench, 2, &["train", "--resume", "run", "--epochs", "1"]).output().expect("mpirun starts");
    say(&epochs, &[0], &["--epochs 1: the run has 2 epochs already; give more"]);
}

/// Options that change nothing of what is computed may be given: where features lie, and how gradients are added up.
#[test]
fn features_may_be_divided_from_there_on() {
    let Some(bench) = bench() else { return };
    let train = [&TRAIN[..], &["--evaluation", "sampled", "--run"]].concat();
    ranks(&bench, 2, &[&train[..], &["undisturbed", "--epochs", "6"]].concat());
    ranks(&bench, 2, &[&train[..], &["run", "--epochs", "3"]].concat());
    let resume = ["train", "--resume", "run", "--epochs", "6", "--shard", "--gradient-bucket", "0", "--json"];
    let resumed = json(&ranks(&bench, 2, &resume));
    let read = resumed["ranks"][1]["features"]["read_bytes_per_epoch"].as_f64();
    assert!(read > Some(0.0), "{}", resumed["ranks"]);
    alike(&bench.path().join("run"), &bench.path().join("undisturbed"));
    // No rank has all features then.
    ranks(&bench, 2, &[&TRAIN[..], &["--epochs", "2", "--run", "full"]].concat());
    let resume = ["train", "--resume", "full", "--epochs", "3", "--shard"];
    let output = same(&bench, 2, &resume).output().expect("mpirun starts");
    say(&output, &[0, 1], &["error: --shard: the run is evaluated with all neighbours", "leave it out"]);
}
