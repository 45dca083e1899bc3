//! Optimizers, schedules of the learning rate and clipping on the command line: what they give, and the bits of a resumed run.
#![cfg(all(unix, feature = "cpu"))]

#[path = "support/runs.rs"]
mod runs;
mod support;

use std::fs;

use runs::{Training, alike};
use serde_json::{Value, json};
use support::{Bench, words};

/// 23 mini-batches per epoch.
const TRAIN: &str =
    "train small --threads 2 --hidden 16 --fanouts 5,5 --batch-size 8 --profile-seconds 0.1 --plan sequential";

fn bench() -> Bench {
    let bench = Bench::new();
    bench.small();
    bench
}

fn train(bench: &Bench, options: &str) -> Value {
    bench.json(&[words(TRAIN), words(options)].concat())
}

fn last_lr(run: &Value) -> f64 {
    run["optimizer"]["last_lr"].as_f64().expect("a learning rate")
}

fn last_loss(run: &Value) -> f64 {
    run["epochs"].as_array().and_then(|epochs| epochs.last()).expect("epochs")["loss"].as_f64().expect("a loss")
}

/// A run that is killed within an epoch and resumed has the bits of one that is not, with each optimizer and schedule.
#[test]
fn killed_runs_give_the_same_bits() {
    let bench = bench();
    for (index, options) in [
        "--optimizer sgd --lr 0.2 --clip-norm 0.3",
        "--optimizer sgd --lr 0.05 --momentum 0.9 --nesterov --lr-schedule cosine --warmup 3",
        "--optimizer adamw --weight-decay 0.05 --lr-schedule step --lr-step-size 3 --lr-gamma 0.7",
        "--lr 0.1 --score loss --lr-schedule plateau --lr-patience 1 --lr-gamma 0.5 --lr-min 1e-4 --clip-norm 0.1",
    ]
    .iter()
    .enumerate()
    {
        let options = format!("{options} --training Training_CPU_Native --epochs 20 --run");
        let [whole, run] = ["whole", "run"].map(|name| format!("{name}{index}"));
        let expected = train(&bench, &format!("{options} {whole}"));
        let path = bench.path().join(&run);
        let line = format!("{TRAIN} {options} {run} --checkpoint-every 5b");
        let mut training = Training::start(bench.command(&words(&line)), &path);
        assert!(!training.wait_for_checkpoint(30), "it has more mini-batches than that");
        training.kill();
        let resumed = bench.json(&["train", "--resume", &run]);
        alike(&path, &bench.path().join(&whole));
        assert_eq!(resumed["optimizer"], expected["optimizer"], "{options}");
        let lr = expected["optimizer"]["lr"].as_f64().expect("a learning rate");
        assert_eq!(last_lr(&expected) < lr, options.contains("schedule"), "{options}: {}", last_lr(&expected));
    }
}

/// A run by the configuration of another one has its optimizer, and the schedule of its own length.
#[test]
fn configurations_have_the_optimizer() {
    let bench = bench();
    let options =
        "--optimizer sgd --lr 0.1 --momentum 0.5 --lr-schedule cosine --lr-min 0.01 --training Training_CPU_Native";
    let first = train(&bench, &format!("{options} --epochs 6 --run run"));
    let config = fs::read_to_string(bench.path().join("run/config.toml")).expect("a configuration");
    for line in ["kind = \"sgd\"", "momentum = 0.5", "kind = \"cosine\"", "steps_per_epoch = 23"] {
        assert!(config.contains(line), "{line}: {config}");
    }
    let again = bench.json(&["train", "--config", "run/config.toml"]);
    assert_eq!((last_loss(&again), &again["optimizer"]), (last_loss(&first), &first["optimizer"]));
    let shorter = bench.json(&["train", "--config", "run/config.toml", "--epochs", "3"]);
    assert_eq!(shorter["optimizer"]["schedule"]["epochs"], 3);
    let fallen = last_lr(&shorter);
    assert!(fallen > 0.01 && fallen < 0.02, "the last step is all but at the end: {fallen}");
    // Resumed for longer, it stays at the minimum.
    let longer = bench.json(&["train", "--resume", "run", "--epochs", "8"]);
    assert_eq!(last_lr(&longer), 0.01);
}

/// The operators on the host train alike.
#[test]
fn operators_train_alike() {
    let bench = bench();
    for options in [
        "--optimizer sgd --lr 0.1 --momentum 0.9 --clip-norm 0.5",
        "--optimizer adamw --weight-decay 0.1 --lr-schedule cosine --warmup 1",
    ] {
        let by = |operator: &str| train(&bench, &format!("{options} --epochs 4 --training {operator}"));
        let [native, burn] = ["Training_CPU_Native", "Training_CPU_Burn"].map(by);
        let (a, b) = (last_loss(&native), last_loss(&burn));
        assert!((a - b).abs() < 1e-3 * a, "{options}: {a}, by burn {b}");
        assert_eq!(last_lr(&native), last_lr(&burn));
    }
}

#[test]
fn summaries_name_the_optimizer() {
    let bench = bench();
    let json = train(&bench, "--optimizer adamw --clip-norm 1 --epochs 2");
    let optimizer = &json["optimizer"];
    assert_eq!(
        (&optimizer["kind"], &optimizer["clip_norm"], &optimizer["last_lr"]),
        (&json!("adamw"), &json!(1.0), &json!(0.003))
    );
    let text = bench.text(&[words(TRAIN), words("--lr 0.1 --lr-schedule step --lr-step-size 1 --epochs 3")].concat());
    assert!(text.contains("learning rate 0.1, schedule step: 1.000e-3 in the last step"), "{text}");
    bench.misused(
        &[words(TRAIN), words("--epochs 3 --lr-schedule cosine --warmup 3")].concat(),
        &["--warmup 3", "leave none to the cosine"],
    );
    let plateau = words("--epochs 3 --lr-schedule plateau --evaluation none");
    bench.misused(&[words(TRAIN), plateau].concat(), &["--lr-schedule plateau", "nothing is validated"]);
}
