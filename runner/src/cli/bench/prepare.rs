//! `morphgl bench prepare`: sampling and gathering by the pool of workers that training uses.

use anyhow::Result;
use clap::Parser;
use morphgl_execute::{Pool, PoolSettings};
use serde_json::json;

use super::figures::{Report, fields, median};
use super::source::{self, Counts, MadeArgs, Numbered, Source};
use super::{Timed, go_on, stop, timed};
use crate::Stop;
use crate::cli::show::Show;

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl bench prepare
  morphgl bench prepare products --threads 4 --batches 24
  morphgl bench prepare products --within              all threads on one mini-batch at a time")]
pub(super) struct Args {
    #[command(flatten)]
    made: MadeArgs,
    /// One worker that spreads each mini-batch over all threads, instead of a worker a thread
    #[arg(help_heading = "Measurement", long)]
    within: bool,
}

pub(super) fn run(args: &Args, show: Show) -> Result<Report> {
    let (dataset, config) = args.made.open(show)?;
    let source = Source::new(&dataset, &config, true)?;
    let settings = if args.within { PoolSettings::here(source.threads) } else { PoolSettings::ahead(source.threads) };
    let mut pool = Pool::new(&source.route.batching, source.batching.as_ref(), settings)?;
    let (num_batches, stop) = (source.num_batches(), stop()?);
    let count = args.made.amount.batches.unwrap_or(num_batches);
    let repeats = args.made.amount.repeats;
    // Enough that every buffer of the window has been filled once.
    let warm_up =
        if args.made.amount.warm_up == 0 { 0 } else { args.made.amount.warm_up.max(settings.window() as u32) };
    prepare(&mut pool, Numbered::of_repeat(num_batches, repeats, count), warm_up, &stop)?;
    let Timed { runs, load } = timed(0..repeats, show, &stop, |repeat| {
        prepare(&mut pool, Numbered::of_repeat(num_batches, repeat, count), count, &stop)
    })?;
    let matrix = dataset.features.as_ref().expect("checked when the operator was built");
    let row_bytes = matrix.row_bytes() as f64;
    let rates = |of: fn(&Counts) -> u64| runs.iter().map(|(s, c)| of(c) as f64 / s).collect::<Vec<f64>>();
    let edges = rates(|c| c.edges);
    let gathered: Vec<f64> = rates(|c| c.nodes).iter().map(|rate| rate * row_bytes / 1e9).collect();
    let counts = runs[0].1;
    let mode = if args.within { "one worker, threads inside" } else { "a worker a thread" };
    let mut document = fields(json!({
        "mode": mode, "batching": source.route.batching.to_string(), "batches": counts.batches,
        "edges_per_s": median(&edges),
        "edges_per_batch": counts.mean(counts.edges), "input_nodes_per_batch": counts.mean(counts.nodes),
        "dtype": matrix.dtype().to_string(), "gather_gb_per_s_inside": median(&gathered),
    }));
    document.extend(fields(source::settings(&config.sampler)));
    Ok(Report {
        what: "prepare",
        data: dataset.name.clone(),
        threads: source.threads,
        unit: "batches/s",
        all: rates(|c| c.batches),
        more: vec![("edges/s", edges), ("GB/s gathered", gathered)],
        with: format!("{mode}, {}, {} {} features", source::in_words(&config.sampler), matrix.dim(), matrix.dtype()),
        load,
        fields: document,
    })
}

/// Prepares mini-batches `0..count`; whoever asked for them counts them and gives them back.
fn prepare(pool: &mut Pool, numbered: Numbered, count: u32, stop: &Stop) -> Result<Counts> {
    let mut counts = Counts::default();
    let mut done = 0;
    while done < count {
        let first = numbered.id(done);
        let part = numbered.num_batches.min(count - done);
        let mut loader = pool.load(first.epoch, 0..part, stop)?;
        while let Some(batch) = loader.next() {
            let batch = batch?;
            counts.add(&batch)?;
            loader.recycle(batch);
        }
        go_on(stop)?;
        done += part;
    }
    Ok(counts)
}
