//! Starts the binary by `mpirun`.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::print_stdout, reason = "says what is skipped")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;

use crate::support::Bench;

/// The prefix of Cora's files.
pub(crate) fn cora() -> String {
    morphgl_testdata::path("planetoid").join("ind.cora").display().to_string()
}

/// Whether ranks can be started here.
pub(crate) fn has_mpirun() -> bool {
    let has = Command::new("mpirun").arg("--version").output().is_ok();
    if !has {
        println!("skipped: there is no mpirun");
    }
    has
}

/// `mpirun` of these programs, one rank after the other, whose processes are bound to no core.
pub(crate) fn mpirun(bench: &Bench, ranks: &[(&Path, &[&str])]) -> Command {
    bound(bench, "none", ranks)
}

/// The same with processes that are bound to what `--bind-to` says.
pub(crate) fn bound(bench: &Bench, to: &str, ranks: &[(&Path, &[&str])]) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--bind-to", to]).current_dir(bench.path());
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    for (i, (program, args)) in ranks.iter().enumerate() {
        command.args((i > 0).then_some(":")).args(["-n", "1"]).arg(program).args(*args);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn same(bench: &Bench, ranks: usize, args: &[&str]) -> Command {
    mpirun(bench, &vec![(Path::new(env!("CARGO_BIN_EXE_morphgl")), args); ranks])
}

pub(crate) fn losses(text: &[u8]) -> Vec<f64> {
    let document: Value = serde_json::from_slice(text).expect("one JSON document, by rank 0");
    let epochs = document["epochs"].as_array().expect("epochs");
    epochs.iter().map(|epoch| epoch["loss"].as_f64().expect("a loss")).collect()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Each of these ranks has a line of its own with all of `words`.
#[track_caller]
pub(crate) fn say(output: &Output, ranks: &[usize], words: &[&str]) {
    let text = stderr(output);
    for rank in ranks {
        let says = |line: &str| line.starts_with(&format!("rank {rank} (")) && words.iter().all(|w| line.contains(w));
        assert!(text.lines().any(says), "rank {rank} does not say {words:?}:\n{text}");
    }
    assert!(!output.status.success(), "{text}");
}

/// The processes that `mpirun` has started, by rank.
pub(crate) fn ranks_of(mpirun: u32, ranks: usize) -> Vec<u32> {
    let start = Instant::now();
    loop {
        let listed = fs::read_to_string(format!("/proc/{mpirun}/task/{mpirun}/children")).unwrap_or_default();
        let mut found: Vec<(usize, u32)> = Vec::new();
        for id in listed.split_whitespace().filter_map(|id| id.parse::<u32>().ok()) {
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let rank = environment.split('\0').find_map(|v| v.strip_prefix("OMPI_COMM_WORLD_RANK=")?.parse().ok());
            found.extend(rank.map(|rank| (rank, id)));
        }
        found.sort_unstable();
        if found.len() == ranks {
            return found.into_iter().map(|(_, id)| id).collect();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "mpirun has started {found:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process runs: neither gone nor a zombie that its parent has not waited for.
pub(crate) fn is_alive(id: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z') && !line.contains('X'))
}
