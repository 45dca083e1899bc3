//! `morphgl bench`: measures one part of the work at a time, with the fields and units of other systems' benchmarks.

mod epoch;
mod gather;
mod ingest;
mod measurement;
mod prepare;
mod roofline;
mod sample;
mod source;
mod step;

use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use self::source::SourceArgs;
use super::show::Show;
use super::{Invocation, Outcome};
use crate::load::{Cores, Load};
use crate::{RunContext, Stop};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl bench sample --threads 1                     the embedded default graph, one worker
  morphgl bench gather products --threads 4            rows and bytes per second
  morphgl bench prepare products --expansion new       sampling and gathering, as PyG expands
  morphgl bench step arxiv --model gat                 forward, backward and Adam on the same mini-batches
  morphgl bench epoch products --batches 100 --json    planned and trained as `morphgl train` does
  morphgl bench ingest edges.csv.gz -- --symmetrise    an edge list, imported beside the file

`docs/benchmarks/compare.py` alternates these and other systems, and makes one table of both.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Sampling alone: mini-batches and edges per second
    #[command(after_help = sample::EXAMPLES)]
    Sample(SourceArgs),
    /// Gathering alone: rows and bytes per second of the input nodes of sampled mini-batches
    #[command(after_help = gather::EXAMPLES)]
    Gather(SourceArgs),
    /// Sampling and gathering by the pool of workers that training uses
    #[command(after_help = prepare::EXAMPLES)]
    Prepare(SourceArgs),
    /// Forward, backward and optimizer on mini-batches prepared beforehand
    Step(step::Args),
    /// Whole epochs, profiled and planned as training does
    Epoch(epoch::Args),
    /// Import of a file into a temporary directory beside it
    Ingest(ingest::Args),
}

/// How much is measured.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Measurement")]
struct Amount {
    /// Number of repeats; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// Mini-batches per repeat, from more than one epoch if need be [default: those of one epoch; gather 16, step 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    batches: Option<u32>,
    /// Mini-batches made beforehand, which are not measured
    #[arg(long, value_name = "N", default_value_t = 8)]
    warm_up: u32,
}

impl Amount {
    /// Mini-batches to warm up with, at least `min` unless none are wanted.
    fn warm_up(&self, min: usize) -> u32 {
        if self.warm_up == 0 { 0 } else { self.warm_up.max(min as u32) }
    }
}

pub(crate) fn run(args: &Args, call: &Invocation<'_>) -> Result<Outcome> {
    let (show, context) = (call.show, || RunContext::of(call.process, call.stop.clone(), call.observer()));
    let measurement = match &args.command {
        Command::Sample(args) => sample::run(args, &context()?, show),
        Command::Gather(args) => gather::run(args, &context()?, show),
        Command::Prepare(args) => prepare::run(args, &context()?, show),
        Command::Step(args) => step::run(args, &context()?, show),
        Command::Epoch(args) => epoch::run(args, &context()?, show),
        Command::Ingest(args) => ingest::run(args, call),
    }?;
    Ok(measurement.outcome(call.process.memory().peak()))
}

/// Seconds and result of every repeat, and the cores kept busy meanwhile.
struct Timed<T> {
    runs: Vec<(f64, T)>,
    load: Cores,
}

impl<T> Timed<T> {
    /// A figure of every repeat, from its seconds and its result.
    fn map(&self, figure: impl Fn(f64, &T) -> f64) -> Vec<f64> {
        self.runs.iter().map(|(seconds, result)| figure(*seconds, result)).collect()
    }
}

/// Times `run` on each item, with a progress bar.
fn timed<I, T>(
    items: impl ExactSizeIterator<Item = I>,
    show: Show,
    stop: &Stop,
    mut run: impl FnMut(I) -> Result<T>,
) -> Result<Timed<T>> {
    let bar = show.bar("measuring {bar:30} {pos}/{len}  ETA {eta}", items.len() as u64);
    let load = Load::now();
    let mut runs = Vec::new();
    for item in items {
        let start = Instant::now();
        let result = run(item)?;
        runs.push((start.elapsed().as_secs_f64(), result));
        check(stop)?;
        bar.inc(1);
    }
    let load = load.busy_cores();
    bar.finish_and_clear();
    Ok(Timed { runs, load })
}

/// Fails if a stop was requested.
fn check(stop: &Stop) -> Result<()> {
    if stop.is_requested() {
        bail!("an incomplete measurement is not reported");
    }
    Ok(())
}
