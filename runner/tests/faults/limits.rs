//! Limits of the process, and a system without `/proc` or without locks: one line that names the limit, or a run that goes on.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::Stage;

const TRAIN: &str =
    "train small --layers 2 --hidden 8 --fanouts 5,5 --batch-size 16 --epochs 2 --profile-seconds 0.05 --run run";

/// Runs a command with a variable of the library, or after a command of a shell.
fn run(stage: &Stage, dir: &Path, variable: (&str, &str), shell: &str, line: &str) -> Output {
    let script = format!("{shell}; exec \"$@\"");
    let mut command = Command::new("timeout");
    command.args(["120", "bash", "-c", &script, "bash", env!("CARGO_BIN_EXE_morphgl")]);
    command.args(line.split_whitespace()).current_dir(dir).env("RUST_BACKTRACE", "1");
    // The shell itself is not to be limited.
    command.env("LD_PRELOAD", stage.layer.library()).env("FAULTS_PROGRAM", env!("CARGO_BIN_EXE_morphgl"));
    let output = command.env(variable.0, variable.1).output().expect("timeout starts");
    assert_ne!(output.status.code(), Some(124), "{line}: it hangs: {output:?}");
    output
}

/// Asserts success, or failure with one line that has all of `words` and no stack; returns whether it was refused.
#[track_caller]
fn is_refused(output: &Output, what: &str, words: &[&str]) -> bool {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked") && !stderr.contains("backtrace"), "{what}: {stderr}");
    let errors: Vec<&str> = stderr.lines().filter(|line| line.contains("error:")).collect();
    match output.status.code() {
        Some(0) => false,
        Some(1) if errors.len() == 1 && words.iter().all(|word| errors[0].contains(word)) => true,
        status => panic!("{what}: {status:?}, not one line with {words:?}: {stderr}"),
    }
}

#[test]
fn few_threads() {
    let stage = Stage::new();
    for line in [
        TRAIN,
        "train small --layers 2 --hidden 8 --fanouts 5,5 --epochs 1 --profile-seconds 0.05 --threads 3",
        "import edges edges.csv -o imported --nodes nodes.csv --ids strings",
        "generate sbm -o drawn --nodes 60 --classes 3 --dim 4 --degree 6",
        "reorder small -o hot",
        "predict model.safetensors small --threads 2",
    ] {
        let mut refused = Vec::new();
        for threads in 0..8 {
            let dir = stage.copy(&format!("threads-{threads}"));
            let output = run(&stage, &dir, ("FAULTS_THREADS", &threads.to_string()), ":", line);
            refused.push(is_refused(&output, &format!("{line}, {threads} threads"), &["thread", "ulimit -u"]));
            if refused.last() == Some(&true) {
                assert_eq!(super::temporaries(&dir), [""; 0], "{line}, {threads} threads");
            }
            fs::remove_dir_all(&dir).expect("removed");
        }
        assert_eq!(refused[..3], [true; 3], "{line}");
    }
}

#[test]
fn few_open_files() {
    let stage = Stage::new();
    let mut refused = 0;
    for files in 4..28 {
        let dir = stage.copy(&format!("files-{files}"));
        let output = run(&stage, &dir, ("FAULTS_NONE", ""), &format!("ulimit -n {files}"), TRAIN);
        let stderr = String::from_utf8_lossy(&output.stderr);
        // With fewer files the program itself cannot be loaded.
        if stderr.contains("error while loading shared libraries") || stderr.contains("cannot be preloaded") {
            continue;
        }
        assert!(!stderr.contains("disk space"), "{files} files: {stderr}");
        refused += usize::from(is_refused(&output, &format!("{files} files"), &["ulimit -n"]));
    }
    assert!(refused > 0, "{refused} numbers of files were refused");
}

/// Whatever allocation fails, and although the environment asks for stacks: the process ends, by itself, with one line.
#[test]
fn little_memory() {
    let stage = Stage::new();
    let mut refused = 0;
    for kilobytes in [8_000, 20_000, 40_000, 60_000, 80_000, 100_000, 150_000] {
        let dir = stage.copy(&format!("memory-{kilobytes}"));
        let output = run(&stage, &dir, ("FAULTS_NONE", ""), &format!("ulimit -d {kilobytes}"), TRAIN);
        refused += usize::from(is_refused(&output, &format!("{kilobytes} KB"), &["memory"]));
    }
    assert!(refused > 0, "none was refused");
}

#[test]
fn a_system_without_proc() {
    let stage = Stage::new();
    let dir = stage.copy("no-proc");
    let json = |line: &str| -> serde_json::Value {
        let output = run(&stage, &dir, ("FAULTS_NO_PROC", "1"), ":", &format!("{line} --json"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let memory = &json("ops")["machine"]["available_bytes"];
    assert!(memory.as_u64() > Some(64 << 20), "{memory}");
    let trained = json(TRAIN);
    assert!(trained["peak_rss_bytes"].as_u64() > Some(1 << 20), "{}", trained["peak_rss_bytes"]);
    assert!(trained["plan"]["memory"]["host"].as_u64() > Some(0), "{}", trained["plan"]["memory"]);
    json(&TRAIN.replace("--run run", "--batching Batching_CPU+Disk_Neighbor"));
}

/// A file system without locks: a remark, and the run.
#[test]
fn a_file_system_without_locks() {
    let stage = Stage::new();
    let dir = stage.copy("no-locks");
    for line in [TRAIN, "train --resume run --epochs 3"] {
        let output = run(&stage, &dir, ("FAULTS_NO_LOCKS", "1"), ":", line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {stderr}");
        assert!(
            stderr.contains("run: its file system has no locks") && stderr.contains("one process at a time"),
            "{stderr}"
        );
    }
}

/// A file that grows beyond `ulimit -f` is an error of its write, and not a signal that kills.
#[test]
fn a_limit_of_file_sizes() {
    let stage = Stage::new();
    let dir = stage.copy("file-size");
    for line in [
        "generate sbm -o drawn --nodes 20000 --classes 3 --dim 4 --degree 6",
        "reorder small -o hot",
        "predict model.safetensors small -o old.npy",
    ] {
        let output = run(&stage, &dir, ("FAULTS_NONE", ""), "ulimit -f 0", line);
        assert!(is_refused(&output, line, &["ulimit -f"]), "{line}");
        assert_eq!(super::temporaries(&dir), [""; 0], "{line}");
    }
}
