//! `morphgl bench sample`: workers that sample and gather nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use anyhow::{Result, anyhow};
use morphgl_registry::{BatchingWorker, MiniBatch};

use super::check;
use super::measurement::Measurement;
use super::source::{BatchCounts, BatchSequence, Source, SourceArgs};
use crate::cli::show::Show;
use crate::{RunContext, Stop};

pub(super) const EXAMPLES: &str = "Examples:
  morphgl bench sample
  morphgl bench sample products --threads 4 --batches 24
  morphgl bench sample products --expansion new        as PyG expands
  morphgl bench sample products --within               all threads on one mini-batch at a time
  morphgl bench sample products --task link --negatives 5 --fanouts 15,10    mini-batches of pairs";

/// A worker and the mini-batch whose memory it reuses.
type Worker = (Box<dyn BatchingWorker>, Option<MiniBatch>);

pub(super) fn run(args: &SourceArgs, context: &RunContext, show: Show) -> Result<Measurement> {
    let source = Source::open(args, false, context)?;
    let (num_workers, threads) = if args.within { (1, source.threads) } else { (source.threads, 1) };
    let mut workers: Vec<Worker> =
        (0..num_workers).map(|_| Ok((source.batching.worker(threads)?, None))).collect::<Result<_>>()?;
    let make = |sequence, count, stop: &_| sample(&mut workers, sequence, count, stop);
    let (mut measurement, timed) = source.measure("sample", args, num_workers, show, make)?;
    let nodes_per_s = timed.map(|seconds, counts| counts.nodes as f64 / seconds);
    measurement.other_units.push(("input nodes/s", nodes_per_s));
    Ok(measurement)
}

/// Samples the first `count` mini-batches, each by an idle worker; a single worker runs on the calling thread.
fn sample(workers: &mut [Worker], sequence: BatchSequence, count: u32, stop: &Stop) -> Result<BatchCounts> {
    let next = AtomicU32::new(0);
    let work = |(worker, recycled): &mut Worker| -> Result<BatchCounts> {
        let mut counts = BatchCounts::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(counts);
            }
            check(stop)?;
            let (batch, _) = worker.prepare(sequence.id(number), recycled.take())?.wait()?;
            counts.add(&batch)?;
            *recycled = Some(batch);
        }
    };
    if let [worker] = workers {
        return work(worker);
    }
    thread::scope(|scope| {
        let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| work(worker))).collect();
        let mut sum = BatchCounts::default();
        for thread in threads {
            sum += thread.join().map_err(|_| anyhow!("a batching worker panicked, see above"))??;
        }
        Ok(sum)
    })
}
