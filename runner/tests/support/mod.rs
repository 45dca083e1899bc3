//! Runs the binary in a temporary directory.
#![allow(dead_code, reason = "each test file uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Reports what is not tested for want of a device; a failure where `MORPHGL_TEST_DEVICES` is set, as `.ci/run` does.
#[allow(clippy::print_stderr, reason = "reports what was not tested")]
pub(crate) fn not_tested(what: &str) {
    assert!(std::env::var_os("MORPHGL_TEST_DEVICES").is_none(), "{what} not tested");
    eprintln!("{what} not tested");
}

/// The arguments of a command line that has no quotes.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[track_caller]
pub(crate) fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// A temporary directory to run the binary in.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    emulated_devices: bool,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory"), emulated_devices: false }
    }

    /// A bench whose programs see one emulated device, if they are built with the feature `emulate`.
    pub(crate) fn with_emulated_devices() -> Self {
        Self { emulated_devices: true, ..Self::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_morphgl"));
        command.args(args).current_dir(self.dir.path());
        match self.emulated_devices {
            true => command.env("MORPHGL_EMULATION", "devices=1"),
            false => command.env_remove("MORPHGL_EMULATION"),
        };
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary starts")
    }

    /// Runs a command that succeeds, and returns its stdout.
    #[track_caller]
    pub(crate) fn text(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs a command with `--json`, and returns the document on its stdout.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let text = self.text(&[args, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: stdout is not one JSON document: {e}\n{text}"))
    }

    /// Runs a command that fails with exit status 1 and one line of error that contains all of `words`.
    #[track_caller]
    pub(crate) fn refused(&self, args: &[&str], words: &[&str]) {
        fails(&self.run(args), args, words);
    }

    /// Runs a wrong command: exit status 2 and one line of error that contains all of `words`.
    #[track_caller]
    pub(crate) fn misused(&self, args: &[&str], words: &[&str]) {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        let errors: Vec<&str> = stderr.lines().filter(|l| l.starts_with("error:")).collect();
        let [line] = errors[..] else { panic!("{args:?}: not one line of error:\n{stderr}") };
        words.iter().for_each(|w| assert!(line.contains(w), "{args:?}: {line:?} does not say {w:?}"));
    }

    /// Names in the directory, hidden files included.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).expect("readable");
        let name =
            |e: std::io::Result<std::fs::DirEntry>| e.expect("readable").file_name().to_string_lossy().into_owned();
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    /// A small generated dataset at `small`.
    pub(crate) fn small(&self) -> PathBuf {
        let args =
            ["generate", "sbm", "-o", "small", "--nodes", "300", "--classes", "3", "--dim", "8", "--degree", "6"];
        self.text(&args);
        self.path().join("small")
    }
}

/// Runs a command; returns its output, and the peak of its resident memory in bytes, polled every millisecond: a process may reset
/// its own.
pub(crate) fn peak(command: &mut Command) -> (Output, u64) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().expect("a child of ours").is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) << 10);
        std::thread::sleep(Duration::from_millis(1));
    }
    (child.wait_with_output().expect("it has ended"), peak)
}

/// Asserts exit status 1 and one line of error that contains all of `words`.
#[track_caller]
pub(crate) fn fails(output: &Output, args: &[&str], words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    let errors: Vec<&str> = stderr.lines().filter(|l| l.starts_with("error:")).collect();
    let [line] = errors[..] else { panic!("{args:?}: not one line of error:\n{stderr}") };
    assert_eq!(stderr.lines().last(), Some(line), "{args:?}: the error is the last line:\n{stderr}");
    words.iter().for_each(|w| assert!(line.contains(w), "{args:?}: {line:?} does not say {w:?}"));
}
