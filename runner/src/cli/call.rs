//! Commands as functions, for programs that have a dataset in memory, or no terminal.

use std::sync::Arc;

use clap::{CommandFactory, FromArgMatches};
use morphgl_graph_store::Dataset;
use serde_json::Value;

use super::show::{Show, one_line};
use super::{Cli, Command, Invocation, run, simd_level, train};
use crate::usage::Usage;
use crate::{Observer, Process, Stop};

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// One line, with the cure.
    pub message: String,
    /// Whether the options are wrong: exit status 2 of the command line.
    pub usage: bool,
}

/// A command to call as a function. Several may run beside each other: each has its own flag to stop it, and they share the threads
/// of the first outside of plans.
#[derive(Debug)]
pub struct Call<'a> {
    /// The process, which commands share.
    pub process: &'a Arc<Process>,
    /// The words of the command line, the name of the program left out.
    pub arguments: &'a [String],
    /// The dataset in place of the default one or of the directory that the words name.
    pub dataset: Option<Arc<Dataset>>,
    /// Whether progress and remarks are left out, which else go to stderr.
    pub quiet: bool,
    /// Does what Ctrl-C does: training ends after the mini-batches under way, or after the epoch. Signals are the program's affair.
    pub stop: &'a Stop,
    /// Who watches the run besides stderr, of several ranks each one's.
    pub observer: Option<Arc<dyn Observer>>,
}

/// Runs a command, and returns the document that `--json` prints.
///
/// # Errors
///
/// As the command line; a dataset for a command that reads none.
pub fn call(call: Call<'_>) -> Result<Value, Failure> {
    let Call { process, arguments, dataset, quiet, stop, observer } = call;
    let failed = |error: anyhow::Error| Failure { message: one_line(&error), usage: error.is::<Usage>() };
    let matches = Cli::command().no_binary_name(true).try_get_matches_from(arguments).map_err(|error| {
        let text = error.render().to_string();
        let mut lines = text.trim_start_matches("error: ").lines().map(str::trim);
        let mut message = lines.next().unwrap_or_default().to_string();
        let hint = |line: &str| {
            let values = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
            line.strip_prefix("tip: ").or(values).map(str::to_string)
        };
        message.extend(lines.find_map(hint).map(|hint| format!("; {hint}")));
        Failure { message, usage: true }
    })?;
    let parsed = Cli::from_arg_matches(&matches).map_err(anyhow::Error::from).and_then(|cli| {
        simd_level()?;
        train::refuse_options(&matches)?;
        Ok(cli)
    });
    let command = parsed.map_err(failed)?.command;
    if dataset.is_some() && !command.reads_dataset() {
        return Err(failed(Usage::error("this command reads no dataset")));
    }
    let outcome = run(&command, &Invocation { process, stop, dataset, show: Show { quiet, json: true }, observer });
    if let (Err(error), Some(ranks)) = (&outcome, process.ranks()) {
        ranks.leave(&one_line(error));
    }
    let outcome = outcome.map_err(failed)?;
    outcome.unwritten.map_or(Ok(outcome.json), |error| Err(failed(error)))
}

impl Command {
    /// Whether the command takes a dataset in memory.
    fn reads_dataset(&self) -> bool {
        use Command::{Cache, Evaluate, Info, Plan, Predict, Profile, Train};
        matches!(self, Info(_) | Profile(_) | Plan(_) | Train(_) | Evaluate(_) | Predict(_) | Cache(_))
    }
}
