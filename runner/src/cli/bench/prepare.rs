//! `morphgl bench prepare`: sampling and gathering by the pool of workers that training uses.

use anyhow::Result;
use morphgl_execute::{Pool, PoolSettings};
use serde_json::json;

use super::check;
use super::measurement::Measurement;
use super::source::{BatchCounts, BatchSequence, Source, SourceArgs};
use crate::cli::show::Show;
use crate::{RunContext, Stop, build, median};

pub(super) const EXAMPLES: &str = "Examples:
  morphgl bench prepare
  morphgl bench prepare products --threads 4 --batches 24
  morphgl bench prepare products --within              all threads on one mini-batch at a time";

pub(super) fn run(args: &SourceArgs, context: &RunContext, show: Show) -> Result<Measurement> {
    let source = Source::open(args, true, context)?;
    let matrix = build::features(&source.dataset)?;
    let settings = if args.within { PoolSettings::here(source.threads) } else { PoolSettings::ahead(source.threads) };
    let mut pool = Pool::new(&source.route.batching, source.batching.as_ref(), settings)?;
    let make = |sequence, count, stop: &_| prepare(&mut pool, sequence, count, stop);
    // The warm-up fills every buffer of the window once.
    let (mut measurement, timed) = source.measure("prepare", args, settings.window(), show, make)?;
    let (row_bytes, dtype) = (matrix.row_bytes() as f64, matrix.dtype());
    let gathered = timed.map(|seconds, counts| counts.nodes as f64 * row_bytes / 1e9 / seconds);
    measurement.fields.push(json!({ "dtype": dtype.to_string(), "gather_gb_per_s_inside": median(&gathered) }));
    measurement.other_units.push(("GB/s gathered", gathered));
    measurement.settings += &format!(", {} {dtype} features", matrix.dim());
    Ok(measurement)
}

/// Prepares the first `count` mini-batches.
fn prepare(pool: &mut Pool, sequence: BatchSequence, count: u32, stop: &Stop) -> Result<BatchCounts> {
    let mut counts = BatchCounts::default();
    let mut done = 0;
    while done < count {
        let part = sequence.batches_per_epoch.min(count - done);
        let mut loader = pool.load(sequence.id(done).epoch, 0..part, stop)?;
        while let Some(batch) = loader.next() {
            let batch = batch?;
            counts.add(&batch)?;
            loader.recycle(batch);
        }
        check(stop)?;
        done += part;
    }
    Ok(counts)
}
