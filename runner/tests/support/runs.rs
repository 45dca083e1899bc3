//! Runs that are killed, interrupted and resumed.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use morphgl::Checkpoint;
use serde_json::{Value, json};

/// A training process, killed when it is dropped.
pub(crate) struct Training {
    child: Child,
    run: PathBuf,
}

impl Drop for Training {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Training {
    /// Starts a command that trains into the directory `run`.
    pub(crate) fn start(mut command: Command, run: &Path) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        Self { child, run: run.to_path_buf() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the run has a checkpoint with at least this number, or the process has ended; returns whether it has.
    pub(crate) fn wait_for_checkpoint(&mut self, number: u64) -> bool {
        let start = Instant::now();
        loop {
            if self.child.try_wait().expect("it can be waited for").is_some() {
                return true;
            }
            if newest(&self.run).is_some_and(|newest| newest >= number) {
                return false;
            }
            assert!(start.elapsed() < Duration::from_secs(300), "no checkpoint {number}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_some()
    }

    /// Kills it, as by SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it can be waited for");
    }

    /// Waits for its end; returns status, stdout and stderr.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        use std::io::Read;
        let (mut stdout, mut stderr) = (String::new(), String::new());
        // Both fit into a pipe's buffer, so the order of reading does not matter.
        self.child.stdout.take().expect("a pipe").read_to_string(&mut stdout).expect("text");
        self.child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("text");
        (self.child.wait().expect("it can be waited for").code(), stdout, stderr)
    }
}

/// Paths of a run's checkpoints, the newest last.
pub(crate) fn checkpoints(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run.join("checkpoints")).map(|entries| entries.flatten().map(|e| e.path()).collect());
    let mut paths: Vec<PathBuf> = entries.unwrap_or_default();
    paths.retain(|path| path.extension().is_some_and(|e| e == "checkpoint"));
    paths.sort();
    paths
}

/// The newest checkpoint of a run.
pub(crate) fn last(run: &Path) -> Checkpoint {
    Checkpoint::read(checkpoints(run).last().expect("a checkpoint")).expect("a whole checkpoint")
}

/// Number of the newest checkpoint.
pub(crate) fn newest(run: &Path) -> Option<u64> {
    checkpoints(run).last()?.file_stem()?.to_str()?.parse().ok()
}

pub(crate) fn status(run: &Path) -> String {
    let text = fs::read_to_string(run.join("status.json")).expect("a status");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    json["status"].as_str().expect("text").to_string()
}

/// The rows of `metrics.jsonl` without times, and without counters and peaks that depend on times.
pub(crate) fn metrics(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    assert!(text.ends_with('\n'), "whole lines");
    let row = |line: &str| -> Value {
        let row: Value = serde_json::from_str(line).expect("a row");
        let report = &row["report"];
        let shares: Vec<&Value> = report["shares"].as_array().expect("a list").iter().map(|s| &s["batches"]).collect();
        let mut kept = json!({ "shares": shares, "counters": report["counters"] });
        for field in ["epoch", "loss", "train_accuracy", "valid_loss", "valid_accuracy", "replanned"] {
            kept[field] = row[field].clone();
        }
        for field in ["batches", "seeds", "edges", "score", "stopped", "remaining"] {
            kept[field] = report[field].clone();
        }
        kept
    };
    text.lines().map(row).collect()
}

/// Asserts that two runs have the same metrics and the same model, bit for bit. How an epoch was planned is compared only where
/// neither run planned again, which depends on times.
#[track_caller]
pub(crate) fn alike(actual: &Path, expected: &Path) {
    let (mut a, mut e) = (metrics(actual), metrics(expected));
    for (a, e) in a.iter_mut().zip(&mut e) {
        if a["replanned"] != 0 || e["replanned"] != 0 {
            for planned in ["replanned", "shares"] {
                (a[planned], e[planned]) = (Value::Null, Value::Null);
            }
        }
        assert_eq!(a, e);
    }
    assert_eq!(a.len(), e.len(), "epochs");
    let model = |run: &Path| fs::read(run.join("model.safetensors")).ok();
    assert!(model(actual) == model(expected), "the models of {} and {} differ", actual.display(), expected.display());
}
