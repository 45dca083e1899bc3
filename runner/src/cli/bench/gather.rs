//! `morphgl bench gather`: the features of sampled mini-batches' input nodes, into reused memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Result, anyhow};
use morphgl_graph_store::FeatureMatrix;
use morphgl_registry::BatchFeatures;
use serde_json::json;

use super::measurement::Measurement;
use super::source::{self, BatchSequence, Source, SourceArgs};
use super::{check, timed};
use crate::cli::show::Show;
use crate::{RunContext, Stop, build, median};

/// Default number of mini-batches whose input nodes are gathered.
const BATCHES: u32 = 16;

pub(super) const EXAMPLES: &str = "Examples:
  morphgl bench gather
  morphgl bench gather products --threads 1
  morphgl bench gather products --within               all threads on one mini-batch at a time";

pub(super) fn run(args: &SourceArgs, context: &RunContext, show: Show) -> Result<Measurement> {
    let source = Source::open(args, false, context)?;
    let matrix = build::features(&source.dataset)?;
    let stop = context.heed_stop();
    let batches = input_nodes(&source, args.amount.batches.unwrap_or(BATCHES), &stop)?;
    let rows: usize = batches.iter().map(Vec::len).sum();
    let max_rows = batches.iter().map(Vec::len).max().unwrap_or(0);
    let (dim, dtype) = (matrix.dim(), matrix.dtype());
    let num_buffers = if args.within { 1 } else { source.threads };
    let mut buffers: Vec<BatchFeatures> = (0..num_buffers).map(|_| BatchFeatures::like(matrix)).collect();
    for buffer in &mut buffers {
        buffer.resize(max_rows, dim, dtype).fill(1);
    }
    let mut gather = |batches: &[Vec<u32>]| {
        if let ([buffer], true) = (&mut buffers[..], args.within) {
            for nodes in batches {
                matrix.par_gather_rows(nodes, buffer.resize(nodes.len(), dim, dtype));
            }
            return Ok(());
        }
        gather_each(matrix, batches, &mut buffers)
    };
    gather(&batches[..batches.len().min(args.amount.warm_up as usize)])?;
    let timed = timed(0..args.amount.repeats, show, &stop, |_| gather(&batches))?;
    let (row_bytes, rows_per_s) = (matrix.row_bytes(), timed.map(|seconds, ()| rows as f64 / seconds));
    let variant = if args.within { "threads inside a mini-batch" } else { "one mini-batch per thread" };
    Ok(Measurement {
        what: "gather",
        data: source.dataset.name.clone(),
        threads: source.threads,
        unit: "GB/s",
        values: rows_per_s.iter().map(|rate| rate * row_bytes as f64 / 1e9).collect(),
        load: timed.load,
        details: String::new(),
        fields: vec![
            json!({
                "variant": variant, "dtype": dtype.to_string(), "row_bytes": row_bytes, "batches": batches.len(),
                "rows_per_batch": rows as f64 / batches.len().max(1) as f64, "rows_per_s": median(&rows_per_s),
            }),
            source::settings(&source.config),
        ],
        settings: format!("{variant}, rows of {dim} {dtype}, into reused memory"),
        other_units: vec![("rows/s", rows_per_s)],
    })
}

/// Input nodes of the first mini-batches.
fn input_nodes(source: &Source, count: u32, stop: &Stop) -> Result<Vec<Vec<u32>>> {
    let mut worker = source.batching.worker(source.threads)?;
    let sequence = BatchSequence { first_epoch: 0, batches_per_epoch: source.num_batches() };
    let nodes = |number| {
        check(stop)?;
        let (batch, _) = worker.prepare(sequence.id(number), None)?.wait()?;
        Ok(batch.to_host()?.input_nodes.clone())
    };
    (0..count).map(nodes).collect()
}

/// Gathers each mini-batch by an idle thread; a single buffer is filled on the calling thread.
fn gather_each(matrix: &FeatureMatrix, batches: &[Vec<u32>], buffers: &mut [BatchFeatures]) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = |buffer: &mut BatchFeatures| {
        while let Some(nodes) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
            matrix.gather_rows(nodes, buffer.resize(nodes.len(), matrix.dim(), matrix.dtype()));
        }
    };
    if let [buffer] = buffers {
        work(buffer);
        return Ok(());
    }
    thread::scope(|scope| {
        let threads: Vec<_> = buffers.iter_mut().map(|buffer| scope.spawn(|| work(buffer))).collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| anyhow!("gathering panicked, see above")))
    })
}
