//! Commands as functions, for programs that have a dataset in memory, or no terminal.

use std::sync::Arc;

use clap::{CommandFactory, FromArgMatches};
use morphgl_graph_store::Dataset;
use serde_json::Value;

use super::data::DataArgs;
use super::show::{Show, one_line};
use super::usage::Usage;
use super::{Cli, Command, run, simd_level, train};
use crate::{Process, Stop};

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
    /// Does what Ctrl-C does: training ends after the mini-batches under way. Signals are the program's affair.
    pub stop: &'a Stop,
}

/// Runs a command, and returns the document that `--json` prints.
///
/// # Errors
///
/// As the command line; a dataset for a command that reads none.
pub fn call(call: Call<'_>) -> Result<Value, Failure> {
    let Call { process, arguments, dataset, quiet, stop } = call;
    let failed = |error: anyhow::Error| Failure { message: one_line(&error), usage: error.is::<Usage>() };
    let matches = Cli::command().no_binary_name(true).try_get_matches_from(arguments).map_err(|error| {
        let text = error.render().to_string();
        let mut lines = text.trim_start_matches("error: ").lines();
        let mut message = lines.next().unwrap_or_default().to_string();
        if let Some(tip) = lines.find_map(|line| line.trim().strip_prefix("tip: ")) {
            message += &format!("; {tip}");
        }
        Failure { message, usage: true }
    })?;
    let parsed = Cli::from_arg_matches(&matches).map_err(anyhow::Error::from).and_then(|cli| {
        simd_level()?;
        train::refuse_options(&matches)?;
        Ok(cli)
    });
    let mut command = parsed.map_err(failed)?.command;
    if let Some(dataset) = dataset {
        let data = command.data_mut().ok_or_else(|| failed(Usage::error("this command reads no dataset")))?;
        data.given = Some(dataset);
    }
    let outcome = run(&mut command, (process, stop), Show { quiet, json: true }).map_err(failed)?;
    outcome.unwritten.map_or(Ok(outcome.json), |error| Err(failed(error)))
}

impl Command {
    /// The options of the dataset that the command reads.
    fn data_mut(&mut self) -> Option<&mut DataArgs> {
        match self {
            Command::Profile(args) => Some(&mut args.planned.data),
            Command::Plan(args) => Some(&mut args.planned.data),
            Command::Train(args) => Some(&mut args.planned.data),
            Command::Evaluate(args) => Some(&mut args.trained.data),
            Command::Predict(args) => Some(&mut args.trained.data),
            Command::Cache(args) => Some(&mut args.data),
            _ => None,
        }
    }
}
