//! Commands called as functions.

mod other_datasets;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use morphgl::cli::{call, stop};
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::Dataset;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_string).collect()
}

fn graph() -> Arc<Dataset> {
    Arc::new(sbm(&SbmConfig { nodes: 600, classes: 3, ..SbmConfig::default() }).expect("a valid configuration"))
}

/// Held by a test: commands of a process run one after the other.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn commands_take_a_dataset_in_memory_and_return_documents() {
    let _one = one_at_a_time();
    let train =
        "train --model gcn --fanouts 4,4 --hidden 8 --threads 1 --plan sequential --training Training_CPU_Native";
    let first = call(&words(&format!("{train} --epochs 3")), Some(graph()), true).expect("it trains");
    assert_eq!(first["epochs"].as_array().map(Vec::len), Some(3));
    assert_eq!(first["dataset"]["num_nodes"], 600);
    let second = call(&words(&format!("{train} --epochs 3")), Some(graph()), true).expect("it trains again");
    assert_eq!(first["epochs"][2]["loss"], second["epochs"][2]["loss"]);

    let wrong = call(&words("train --hiden 8"), None, true).expect_err("no such option");
    assert!(wrong.usage && wrong.message.contains("--hiden") && !wrong.message.contains('\n'), "{wrong:?}");
    let unread = call(&words("ops"), Some(graph()), true).expect_err("ops reads no dataset");
    assert_eq!(unread.message, "this command reads no dataset");
    let custom =
        call(&words("train --model custom --epochs 1"), Some(graph()), true).expect_err("no operator trains it");
    assert!(custom.message.contains("a custom model is trained by the operator that brings it"), "{custom:?}");

    let endless = thread::spawn(move || {
        call(&words(&format!("{train} --epochs 100000000 --evaluation none")), Some(graph()), true)
    });
    let beside = loop {
        // The command is under way when another one is refused.
        thread::sleep(Duration::from_millis(20));
        if let Err(failure) = call(&words("ops"), None, true) {
            break failure;
        }
    };
    assert_eq!(beside.message, "another command runs in this process; wait for its end");
    // Repeated, since a request before the command begins is discarded.
    while !endless.is_finished() {
        stop();
        thread::sleep(Duration::from_millis(20));
    }
    match endless.join().expect("no panic") {
        Ok(document) => assert_eq!(document["ended"], "interrupted"),
        // It was still profiling.
        Err(failure) => assert!(failure.message.contains("stop"), "{failure:?}"),
    }
    let after =
        call(&words(&format!("{train} --epochs 2")), Some(graph()), true).expect("a stop ends one command alone");
    assert_eq!(after["ended"], "epochs");
}
