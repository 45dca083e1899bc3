//! The command line: parses it, runs one command, prints its outcome.

mod bench;
mod budget;
mod cache;
mod call;
mod completions;
mod evaluate;
mod generate;
mod import;
mod info;
mod interrupt;
mod last_words;
mod link_files;
mod node_files;
mod ops;
mod plan;
mod predict;
mod profile;
mod reorder;
mod reproduce;
mod screen;
mod show;
mod systems;
mod train;

use std::process::ExitCode;
use std::sync::Arc;

pub use call::{Call, Failure, call};
pub use last_words::out_of_memory;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use morphgl_graph_store::Dataset;
use morphgl_platform::SimdLevel;

use crate::usage::Usage;
use crate::{AllocatorHooks, Observer, Process, RunContext, Stop};

const ABOUT: &str = "Trains graph neural networks by mini-batches on graphs larger than an accelerator's memory, on \
whatever machine it finds.";

const EXAMPLES: &str = "Examples:
  morphgl train                                      generate a small learnable graph and train on it
  morphgl import planetoid data/ind.cora -o cora     read Cora's original files
  morphgl train cora --model gcn --epochs 200        train on them
  morphgl ops                                        what can run on this machine

stdout carries results, stderr logs and progress.
MORPHGL_ISA=portable|avx2|avx512|amx caps the SIMD level; `morphgl ops` says which one is in force.
Exit status: 0 done; 1 failed, or a training that was interrupted and wrote what it had; 2 wrong usage;
130 interrupted by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP: outputs are as they were.";

#[derive(Debug, Parser)]
#[command(name = "morphgl", version, about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Cli {
    /// Prints one JSON document on stdout instead of text
    #[arg(long, global = true)]
    json: bool,
    /// Shows no progress and no remarks on stderr
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the operators, whether they can run here, and the routes they form
    Ops(ops::Args),
    /// Generates a graph
    Generate(generate::Args),
    /// Imports a graph from another format
    Import(import::Args),
    /// Describes a dataset
    Info(info::Args),
    /// Copies a dataset with its hottest nodes first
    Reorder(reorder::Args),
    /// Measures every phase on this machine
    Profile(profile::Args),
    /// Computes the plan with the minimum predicted epoch time
    Plan(plan::Args),
    /// Trains a model
    Train(train::Args),
    /// Evaluates a trained model
    Evaluate(evaluate::Args),
    /// Predicts the classes of nodes with a trained model
    Predict(predict::Args),
    /// Compares cache policies: hit rates against cache size
    Cache(cache::Args),
    /// Runs the tables and figures of the papers beside ours
    Reproduce(reproduce::Args),
    /// Measures one part of the work, in the units of other systems' benchmarks
    Bench(bench::Args),
    /// Prints the script by which a shell completes commands and options
    Completions(completions::Args),
}

/// What a command is run with, besides its options.
struct Invocation<'a> {
    process: &'a Arc<Process>,
    stop: &'a Stop,
    /// The dataset in place of the default one or of the directory that the options name.
    dataset: Option<Arc<Dataset>>,
    show: show::Show,
    /// Who watches the run besides the terminal.
    observer: Option<Arc<dyn Observer>>,
}

impl Invocation<'_> {
    /// Who watches what the command does.
    fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(screen::Terminal::new(self.show, self.process.is_program(), self.observer.clone()))
    }
}

/// The result of a command, as text and as JSON.
struct Outcome {
    text: String,
    json: serde_json::Value,
    /// Whether the exit status is a failure although there is a result.
    failed: bool,
    /// Files that could not be written: a failure, with a line on stderr after the result.
    unwritten: Option<anyhow::Error>,
}

impl Outcome {
    fn new(text: String, json: serde_json::Value) -> Self {
        Self { text, json, failed: false, unwritten: None }
    }
}

/// Runs the command line of this process, for binaries linked with further operators.
pub fn main() -> ExitCode {
    run_in(Process::program(interrupt::is_requested))
}

/// As [`main`], in a process whose allocator has these hooks.
pub fn main_with(hooks: AllocatorHooks) -> ExitCode {
    run_in(Process::program(interrupt::is_requested).with_allocator(hooks))
}

fn run_in(process: Process) -> ExitCode {
    let process = Arc::new(process);
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let show = show::Show { quiet: cli.quiet, json: cli.json };
    last_words::name_refused_threads();
    if let Err(error) = interrupt::listen() {
        show.error(&error, None);
        return ExitCode::FAILURE;
    }
    let result = simd_level().and_then(|()| train::refuse_options(&matches)).and_then(|()| {
        let call = Invocation { process: &process, stop: &Stop::new(), dataset: None, show, observer: None };
        run(&cli.command, &call)
    });
    interrupt::wait_if_ending();
    let ranks = process.ranks();
    if let (Err(error), Some(ranks)) = (&result, ranks) {
        ranks.leave(&show::one_line(error));
    }
    let status = match (result, interrupt::status()) {
        (Ok(outcome), _) => show.result(&outcome, ranks),
        (Err(error), Some(status)) => {
            show.error(&error.context("interrupted"), ranks);
            status
        }
        (Err(error), None) => {
            show.error(&error, ranks);
            if error.is::<Usage>() { 2 } else { 1 }
        }
    };
    ranks.into_iter().for_each(|ranks| ranks.end(status));
    ExitCode::from(status)
}

/// Refuses a SIMD level in the environment that does not exist or that the processor lacks.
fn simd_level() -> anyhow::Result<()> {
    SimdLevel::requested().map(|_| ()).map_err(|error| Usage::error(error.to_string()))
}

fn run(command: &Command, call: &Invocation<'_>) -> anyhow::Result<Outcome> {
    // Commands without operators probe no devices.
    let (show, context) = (call.show, || RunContext::of(call.process, call.stop.clone(), call.observer()));
    match command {
        Command::Ops(args) => ops::run(args, &context()?),
        Command::Generate(args) => generate::run(args, show),
        Command::Import(args) => import::run(args, show),
        Command::Info(args) => info::run(args, call),
        Command::Reorder(args) => reorder::run(args, show),
        Command::Profile(args) => profile::run(args, context()?, call),
        Command::Plan(args) => plan::run(args, context()?, call),
        Command::Train(args) => train::run(args, call),
        Command::Evaluate(args) => evaluate::run(args, call),
        Command::Predict(args) => predict::run(args, call),
        Command::Cache(args) => cache::run(args, &context()?, call),
        Command::Reproduce(args) => reproduce::run(args, context, call),
        Command::Bench(args) => bench::run(args, call),
        Command::Completions(args) => completions::run(args),
    }
}
