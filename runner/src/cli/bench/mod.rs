//! `morphgl bench`: one part of the work at a time, with the fields and units that other systems are measured in.

mod epoch;
mod figures;
mod gather;
mod ingest;
mod load;
mod prepare;
mod sample;
mod source;
mod step;

use std::ops::Range;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use super::Outcome;
use super::interrupt;
use super::model::ModelArgs;
use super::show::Show;
use crate::{ModelKind, Stop};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl bench sample --threads 1                     the embedded default graph, one worker
  morphgl bench gather products --threads 4            rows and bytes a second
  morphgl bench prepare products --expansion new       sampling and gathering, as PyG expands
  morphgl bench step arxiv --model gat                 forward, backward and Adam on the same mini-batches
  morphgl bench epoch products --batches 100 --json    planned and trained as `morphgl train` does
  morphgl bench ingest edges.csv.gz -- --symmetrise    an edge list, imported beside the file

`docs/benchmarks/compare.py` runs these and other systems in turns, and makes one table of both.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Sampling alone: mini-batches and edges a second
    Sample(sample::Args),
    /// Gathering alone: rows and bytes a second of the input nodes of sampled mini-batches
    Gather(gather::Args),
    /// Sampling and gathering by the pool of workers that training uses
    Prepare(prepare::Args),
    /// Forward, backward and optimizer on mini-batches prepared before
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
    /// How often it is measured; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// Mini-batches a repeat, from more than one epoch if need be [default: those of one epoch; gather 16, step 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    batches: Option<u32>,
    /// Mini-batches made beforehand, which are not measured
    #[arg(long, value_name = "N", default_value_t = 8)]
    warm_up: u32,
}

pub(crate) fn run(args: &Args, show: Show) -> Result<Outcome> {
    let report = match &args.what {
        What::Sample(args) => sample::run(args, show),
        What::Gather(args) => gather::run(args, show),
        What::Prepare(args) => prepare::run(args, show),
        What::Step(args) => step::run(args, show),
        What::Epoch(args) => epoch::run(args, show),
        What::Ingest(args) => ingest::run(args, show),
    }?;
    Ok(report.outcome())
}

/// What every repeat gave, its seconds, and what the machine did meanwhile.
struct Timed<T> {
    runs: Vec<(f64, T)>,
    load: load::Measured,
}

/// Times `once` for each repeat, with a progress bar.
fn timed<T>(repeats: Range<u32>, show: Show, stop: &Stop, mut once: impl FnMut(u32) -> Result<T>) -> Result<Timed<T>> {
    let bar = show.bar("measuring {bar:30} {pos}/{len}  ETA {eta}", u64::from(repeats.end - repeats.start));
    let load = load::Load::start();
    let mut runs = Vec::new();
    for repeat in repeats {
        let start = Instant::now();
        let value = once(repeat)?;
        runs.push((start.elapsed().as_secs_f64(), value));
        go_on(stop)?;
        bar.inc(1);
    }
    let load = load.end();
    bar.finish_and_clear();
    Ok(Timed { runs, load })
}

/// The model options with the widths that other systems are measured with, where none were asked for.
fn peers_widths(model: &ModelArgs) -> ModelArgs {
    let mut model = model.clone();
    let hidden = |kind| match kind {
        ModelKind::Gcn => 16,
        ModelKind::Gat => 64,
        _ => 256,
    };
    model.default_to(hidden, 1);
    model
}

/// The flag that Ctrl-C and its like set.
fn stop() -> Result<Stop> {
    interrupt::stop()
}

/// # Errors
///
/// A stop was asked for: half a measurement is none.
fn go_on(stop: &Stop) -> Result<()> {
    if stop.is_requested() {
        bail!("interrupted: nothing is reported of a measurement that did not end");
    }
    Ok(())
}
