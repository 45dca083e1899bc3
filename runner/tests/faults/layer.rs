//! Programs with the library of faults preloaded.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What happens at a point; `layer.c` says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The operation fails once.
    Fail,
    /// The disk is full from there on.
    Full,
    /// SIGKILL before the operation, or in the middle of a write.
    Kill,
    /// SIGKILL after it.
    Killed,
    /// SIGINT before it.
    Signal,
}

impl Fault {
    pub(crate) const ALL: [Self; 5] = [Self::Fail, Self::Full, Self::Kill, Self::Killed, Self::Signal];

    pub(crate) fn kills(self) -> bool {
        matches!(self, Self::Kill | Self::Killed)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Full => "full",
            Self::Kill => "kill",
            Self::Killed => "killed",
            Self::Signal => "signal",
        }
    }
}

/// An operation on a file: the n-th of its kind on it, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) kind: String,
    /// Relative to the directory of the command, with PID for the number of the process.
    pub(crate) file: String,
    n: String,
}

impl Point {
    fn parse(line: &str) -> Self {
        let mut parts = line.split('\t').map(str::to_string);
        let mut part = || parts.next().unwrap_or_else(|| panic!("{line:?}: a kind, a file and a number"));
        Self { kind: part(), file: part(), n: part() }
    }

    /// Whether the fault can happen to it.
    pub(crate) fn takes(&self, fault: Fault) -> bool {
        fault != Fault::Full || matches!(&self.kind[..], "write" | "create" | "mkdir" | "allocate" | "link")
    }

    fn name(&self) -> String {
        format!("{}\t{}\t{}", self.kind, self.file, self.n)
    }
}

/// The compiled library.
pub(crate) struct Layer {
    library: PathBuf,
}

/// The result of a command.
pub(crate) struct Ran {
    pub(crate) output: Output,
    pub(crate) points: Vec<Point>,
    /// Whether the fault happened.
    pub(crate) hit: bool,
}

impl Ran {
    pub(crate) fn was_killed(&self) -> bool {
        // `timeout` tells of its child's signal by its status, or dies by the same one.
        self.output.status.code() == Some(128 + 9) || self.output.status.signal() == Some(9)
    }
}

impl Layer {
    /// Compiles the library in `dir`.
    pub(crate) fn new(dir: &Path) -> Self {
        let library = dir.join("layer.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/layer.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&library).arg(source);
        let output =
            compiler.args(["-ldl", "-lpthread"]).output().expect("a C compiler, which the build needs as well");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { library }
    }

    /// The library's path.
    pub(crate) fn library(&self) -> &Path {
        &self.library
    }

    /// Runs the binary in `dir` with a fault; `exchanges` says whether two files can be exchanged in one step.
    pub(crate) fn run<A: AsRef<OsStr>>(
        &self,
        dir: &Path,
        args: &[A],
        fault: Option<(&Point, Fault)>,
        exchanges: bool,
    ) -> Ran {
        let log = dir.with_extension("log");
        let mut command = Command::new("timeout");
        command.arg("120").arg(env!("CARGO_BIN_EXE_morphgl")).args(args).current_dir(dir);
        command.env("LD_PRELOAD", &self.library).env("FAULTS_ROOT", dir).env("FAULTS_LOG", &log);
        // `bench ingest` writes there.
        command.env("TMPDIR", dir);
        if let Some((point, fault)) = fault {
            command.env("FAULTS_AT", point.name()).env("FAULTS_HOW", fault.name());
        }
        if !exchanges {
            command.env("FAULTS_NO_EXCHANGE", "1");
        }
        let output = command.output().expect("timeout starts");
        assert_ne!(output.status.code(), Some(124), "a command hangs");
        // A file that was never created has no points.
        let text = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(&log);
        let hit = text.lines().any(|line| line.ends_with("\thit"));
        Ran { output, points: text.lines().map(Point::parse).collect(), hit }
    }
}
