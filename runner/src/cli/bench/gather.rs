//! `morphgl bench gather`: the features of sampled mini-batches' input nodes, into memory that is used again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Result, anyhow};
use clap::Parser;
use morphgl_graph_store::FeatureMatrix;
use morphgl_registry::{BatchFeatures, MiniBatch};
use serde_json::json;

use super::figures::{Report, fields, median};
use super::source::{self, MadeArgs, Numbered, Source};
use super::{Timed, go_on, stop, timed};
use crate::Stop;
use crate::cli::show::Show;

/// Mini-batches whose input nodes are gathered, unless another number is asked for.
const BATCHES: u32 = 16;

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl bench gather
  morphgl bench gather products --threads 1
  morphgl bench gather products --within               all threads on one mini-batch at a time")]
pub(super) struct Args {
    #[command(flatten)]
    made: MadeArgs,
    /// All threads gather one mini-batch at a time, instead of each thread its own
    #[arg(help_heading = "Measurement", long)]
    within: bool,
}

pub(super) fn run(args: &Args, show: Show) -> Result<Report> {
    let (dataset, config) = args.made.open(show)?;
    // Sampled without features: gathering is what is measured afterwards.
    let source = Source::new(&dataset, &config, false)?;
    let Some(matrix) = &dataset.features else {
        let name = source::name(&dataset);
        anyhow::bail!("{name}: the dataset has no features to gather; import it with --random-features DIM");
    };
    let stop = stop()?;
    let lists = lists(&source, args.made.amount.batches.unwrap_or(BATCHES), &stop)?;
    let rows: usize = lists.iter().map(Vec::len).sum();
    let most = lists.iter().map(Vec::len).max().unwrap_or(0);
    let (dim, dtype) = (matrix.dim(), matrix.dtype());
    let buffers = if args.within { 1 } else { source.threads };
    let mut buffers: Vec<BatchFeatures> = (0..buffers).map(|_| BatchFeatures::like(matrix)).collect();
    for buffer in &mut buffers {
        buffer.resize(most, dim, dtype).fill(1);
    }
    let mut gather = |lists: &[Vec<u32>]| {
        if let ([buffer], true) = (&mut buffers[..], args.within) {
            for nodes in lists {
                matrix.par_gather_rows(nodes, buffer.resize(nodes.len(), dim, dtype));
            }
            return Ok(());
        }
        each(matrix, lists, &mut buffers)
    };
    let warm_up = (args.made.amount.warm_up as usize).min(lists.len());
    gather(&lists[..warm_up])?;
    let Timed { runs, load } = timed(0..args.made.amount.repeats, show, &stop, |_| gather(&lists))?;
    let rates: Vec<f64> = runs.iter().map(|(s, ())| rows as f64 / s).collect();
    let row_bytes = matrix.row_bytes();
    let variant = if args.within { "threads inside a mini-batch" } else { "one mini-batch per thread" };
    let mut document = fields(json!({
        "variant": variant, "dtype": dtype.to_string(), "row_bytes": row_bytes, "batches": lists.len(),
        "rows_per_batch": rows as f64 / lists.len().max(1) as f64, "rows_per_s": median(&rates),
    }));
    document.extend(fields(source::settings(&config.sampler)));
    Ok(Report {
        what: "gather",
        data: dataset.name.clone(),
        threads: source.threads,
        unit: "GB/s",
        all: rates.iter().map(|rate| rate * row_bytes as f64 / 1e9).collect(),
        more: vec![("rows/s", rates)],
        with: format!("{variant}, rows of {dim} {dtype}, into memory used again"),
        load,
        fields: document,
    })
}

/// Input nodes of the first mini-batches.
fn lists(source: &Source, count: u32, stop: &Stop) -> Result<Vec<Vec<u32>>> {
    let mut worker = source.batching.worker(source.threads)?;
    let numbered = Numbered { epoch: 0, num_batches: source.num_batches() };
    let nodes = |number| {
        go_on(stop)?;
        let (batch, _) = worker.prepare(numbered.id(number), None)?.wait()?;
        Ok(match batch {
            MiniBatch::Host(batch) => batch.input_nodes,
            MiniBatch::Device(batch) => batch.to_host()?.input_nodes,
        })
    };
    (0..count).map(nodes).collect()
}

/// Gathers every list, each by the thread that is free; a single buffer is filled on the calling thread.
fn each(matrix: &FeatureMatrix, lists: &[Vec<u32>], buffers: &mut [BatchFeatures]) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = |buffer: &mut BatchFeatures| {
        while let Some(nodes) = lists.get(next.fetch_add(1, Ordering::Relaxed)) {
            matrix.gather_rows(nodes, buffer.resize(nodes.len(), matrix.dim(), matrix.dtype()));
        }
    };
    if let [buffer] = buffers {
        work(buffer);
        return Ok(());
    }
    thread::scope(|scope| {
        let threads: Vec<_> = buffers.iter_mut().map(|buffer| scope.spawn(|| work(buffer))).collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| anyhow!("gathering panicked, as said above")))
    })
}
