//! Commands as functions, for programs that have a dataset in memory, or no terminal.

use std::sync::{Arc, Mutex};

use clap::{CommandFactory, FromArgMatches};
use morphgl_graph_store::Dataset;
use serde_json::Value;

use super::data::DataArgs;
use super::show::{Show, one_line};
use super::usage::Usage;
use super::{Cli, Command, interrupt, run, simd_level, threads, train};

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// One line, with the cure.
    pub message: String,
    /// Whether the options are wrong: exit status 2 of the command line.
    pub usage: bool,
}

/// Held while a command runs: commands share their stop request.
static RUNNING: Mutex<()> = Mutex::new(());

/// Runs the command line `arguments`, the name of the program left out, on `dataset` in place of the default one or of the directory
/// that they name; returns the document that `--json` prints. Progress and remarks go to stderr, unless `quiet`. Signals are the
/// program's affair: [`stop`] does what Ctrl-C does.
///
/// # Errors
///
/// As the command line; a `dataset` for a command that reads none; another command that runs at the same time.
pub fn call(arguments: &[String], dataset: Option<Arc<Dataset>>, quiet: bool) -> Result<Value, Failure> {
    let Ok(_running) = RUNNING.try_lock() else {
        let message = "another command runs in this process; wait for its end".to_string();
        return Err(Failure { message, usage: false });
    };
    threads::share();
    interrupt::begin();
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
    let outcome = run(&mut command, Show { quiet, json: true }).map_err(failed)?;
    outcome.unwritten.map_or(Ok(outcome.json), |error| Err(failed(error)))
}

/// Asks the command that runs to stop, as Ctrl-C does: training ends after the mini-batches under way.
pub fn stop() {
    interrupt::request();
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
