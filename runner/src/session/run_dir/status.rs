//! The status of a run directory.

use std::fmt;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use morphgl_platform::{read_text, replace_file};
use serde::{Deserialize, Serialize};

use crate::unwritten::unwritten;

/// Maximum bytes of a `status.json`.
const MAX_STATUS: u64 = 1 << 16;

/// What has become of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It trains, or its process was killed.
    Running,
    /// It was stopped by a signal.
    Interrupted,
    /// All epochs are trained, or early stopping ended it, and its files are written.
    Done,
    /// It ended with an error.
    Failed,
}

/// The content of `status.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) status: State,
    /// The last process that trained.
    process: u32,
    /// When that process started, in the system's clock ticks since boot; `None` where the system does not tell.
    #[serde(default)]
    started: Option<u64>,
}

/// When a process started, in clock ticks since boot, by Linux's /proc; `None` if there is no such process.
fn started(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field, the program's name, stands in parentheses and may contain spaces; this is the 22nd.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // A process that has ended and that its parent has not waited for.
    let ended = matches!(state, "Z" | "X");
    fields.nth(18).filter(|_| !ended)?.parse().ok()
}

impl Status {
    /// The status of a run by this process.
    fn of_this_process(status: State) -> Self {
        let process = std::process::id();
        Self { status, process, started: started(process) }
    }

    /// Reads a run's status; `None` where the file is missing or unreadable.
    pub(crate) fn read(dir: &Path) -> Option<Self> {
        serde_json::from_str(&read_text(&dir.join("status.json"), MAX_STATUS).ok()?).ok()
    }

    /// Writes a run's status.
    pub(crate) fn write(dir: &Path, status: State) -> Result<()> {
        let path = dir.join("status.json");
        let text = serde_json::to_string(&Self::of_this_process(status))?;
        replace_file(&path, |out| writeln!(out, "{text}"))
            .map_err(|e| unwritten(&path, e, "check the directory's permissions and its disk"))
    }

    /// The process that trains now. A later process with the same number started at another time.
    pub(crate) fn running(&self) -> Option<u32> {
        let runs = self.status == State::Running && self.started.is_some() && started(self.process) == self.started;
        runs.then_some(self.process)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, self.running()) {
            (State::Running, Some(process)) => write!(f, "running, process {process}"),
            (State::Running, None) => f.write_str("killed"),
            (State::Interrupted, _) => f.write_str("interrupted"),
            (State::Done, _) => f.write_str("done"),
            (State::Failed, _) => f.write_str("failed"),
        }
    }
}
