//! Commands called as functions.

mod other_datasets;

use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use morphgl::cli::{Call, Failure, call};
use morphgl::{Process, Stop};
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::Dataset;
use serde_json::Value;

/// The process of these tests, whose commands run beside each other.
static PROCESS: LazyLock<Arc<Process>> = LazyLock::new(Arc::default);

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_string).collect()
}

fn graph() -> Arc<Dataset> {
    Arc::new(sbm(&SbmConfig { nodes: 600, classes: 3, ..SbmConfig::default() }).expect("a valid configuration"))
}

/// Runs a command that nobody stops.
fn run(arguments: &[String], dataset: Option<Arc<Dataset>>) -> Result<Value, Failure> {
    stoppable(arguments, dataset, &Stop::new())
}

fn stoppable(arguments: &[String], dataset: Option<Arc<Dataset>>, stop: &Stop) -> Result<Value, Failure> {
    call(Call { process: &PROCESS, arguments, dataset, quiet: true, stop, observer: None })
}

/// A training of which two runs have the same bits.
const TRAIN: &str =
    "train --fanouts 4,4 --hidden 8 --threads 1 --plan sequential --training Training_CPU_Native --profile-seconds 0.1";

/// What must be the same in two runs: the figures of each epoch, and of the test.
fn figures(document: &Value) -> Vec<Value> {
    let epochs = document["epochs"].as_array().expect("a list").iter();
    let of_epochs = epochs.flat_map(|e| ["loss", "train_accuracy", "valid_loss"].map(|name| e[name].clone()));
    of_epochs.chain([document["test_loss"].clone()]).collect()
}

#[test]
fn commands_take_a_dataset_in_memory_and_return_documents() {
    let first = run(&words(&format!("{TRAIN} --model gcn --epochs 3")), Some(graph())).expect("it trains");
    assert_eq!(first["epochs"].as_array().map(Vec::len), Some(3));
    assert_eq!(first["dataset"]["num_nodes"], 600);

    let wrong = run(&words("train --hiden 8"), None).expect_err("no such option");
    assert!(wrong.usage && wrong.message.contains("--hiden") && !wrong.message.contains('\n'), "{wrong:?}");
    let unread = run(&words("ops"), Some(graph())).expect_err("ops reads no dataset");
    assert_eq!(unread.message, "this command reads no dataset");
    let custom = run(&words("train --model custom --epochs 1"), Some(graph())).expect_err("no operator trains it");
    assert!(custom.message.contains("a custom model is trained by the operator that brings it"), "{custom:?}");
}

#[test]
fn two_runs_beside_each_other_have_the_bits_of_each_alone() {
    let trainings = ["--model gcn --seed 1 --epochs 12", "--model sage --seed 2 --epochs 8"];
    let one = |options: &str| run(&words(&format!("{TRAIN} {options}")), Some(graph())).expect("it trains");
    let alone = trainings.map(|options| figures(&one(options)));
    let beside = thread::scope(|scope| {
        let running = trainings.map(|options| scope.spawn(move || figures(&one(options))));
        running.map(|run| run.join().expect("no panic"))
    });
    assert_eq!(beside, alone);
    assert_ne!(alone[0], alone[1]);
}

#[test]
fn a_stop_ends_one_command_alone() {
    let stop = Stop::new();
    let of_endless = stop.clone();
    let endless = thread::spawn(move || {
        let words = words(&format!("{TRAIN} --model gcn --epochs 100000000 --evaluation none"));
        stoppable(&words, Some(graph()), &of_endless)
    });
    // Another command runs from beginning to end meanwhile.
    let other = run(&words(&format!("{TRAIN} --model gcn --epochs 2")), Some(graph())).expect("it trains");
    assert!(!endless.is_finished());
    stop.request();
    while !endless.is_finished() {
        thread::sleep(Duration::from_millis(20));
    }
    match endless.join().expect("no panic") {
        Ok(document) => assert_eq!(document["ended"], "interrupted"),
        // It was still profiling.
        Err(failure) => assert!(failure.message.contains("stop"), "{failure:?}"),
    }
    assert_eq!(other["ended"], "epochs");
    let requested = Stop::new();
    requested.request();
    let none = stoppable(&words(&format!("{TRAIN} --model gcn --epochs 2")), Some(graph()), &requested);
    assert!(none.is_err_and(|failure| failure.message.contains("stop")), "a stop before the command is not lost");
}
