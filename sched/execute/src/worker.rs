//! What a batching worker does with one mini-batch, and with all of them in its thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use morphgl_registry::{BatchId, BatchingWorker, Key, MiniBatch, Place};

use crate::error::{delivered, guarded};
use crate::report::span_ending;
use crate::window::Window;
use crate::{Error, ErrorKind, Result, Span, Stop};

/// A mini-batch after batching.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) batch: MiniBatch,
    /// Where batching put it: only such mini-batches are given back to the workers.
    pub(crate) place: Place,
    pub(crate) edges: usize,
    pub(crate) worker: usize,
    pub(crate) span: Span,
}

pub(crate) type Delivery = Window<Result<Ready>, MiniBatch>;

/// A worker's failure, and whether the worker can be used again.
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) lost: bool,
}

/// Prepares one mini-batch; a panic is an error.
pub(crate) fn prepare(
    key: &Key,
    worker: (usize, &mut dyn BatchingWorker),
    id: BatchId,
    recycled: Option<MiniBatch>,
    start: Instant,
) -> std::result::Result<Ready, Failure> {
    let (number, worker) = worker;
    let outcome = guarded(Some(key), Some(id), || worker.prepare(id, recycled)?.wait());
    let end = start.elapsed().as_secs_f64();
    let failure = |error: Error| Failure { lost: matches!(error.kind, ErrorKind::Panicked(_)), error };
    let (batch, took) = outcome.map_err(failure)?;
    let batch = delivered(key, id, batch).map_err(failure)?;
    let edges = edges(&batch);
    let span = span_ending(end, took, 0.0);
    Ok(Ready { place: batch.place(), batch, edges, worker: number, span })
}

/// Edges of a mini-batch; 0 on a device.
pub(crate) fn edges(batch: &MiniBatch) -> usize {
    match batch {
        MiniBatch::Host(batch) => batch.num_edges(),
        MiniBatch::Device(_) => 0,
    }
}

/// What a worker's thread needs.
pub(crate) struct Task {
    pub(crate) key: Key,
    pub(crate) number: usize,
    pub(crate) epoch: u32,
    pub(crate) window: Arc<Delivery>,
    pub(crate) stop: Stop,
    pub(crate) start: Instant,
}

/// Prepares mini-batches until there are none left; gives the worker back, unless it panicked, and the seconds it waited.
pub(crate) fn run(mut worker: Box<dyn BatchingWorker>, task: &Task) -> (Option<Box<dyn BatchingWorker>>, f64) {
    let mut waited = 0.0;
    loop {
        if task.stop.is_requested() {
            // The consumer may be asleep, waiting for a mini-batch that nobody will prepare.
            task.window.close();
            return (Some(worker), waited);
        }
        let asked = Instant::now();
        let Some((index, spare)) = task.window.claim() else { return (Some(worker), waited) };
        waited += asked.elapsed().as_secs_f64();
        let id = BatchId { epoch: task.epoch, index };
        match prepare(&task.key, (task.number, worker.as_mut()), id, spare, task.start) {
            Ok(ready) => task.window.put(index, Ok(ready)),
            Err(Failure { error, lost }) => {
                task.window.put(index, Err(error));
                if lost {
                    // What a panic left behind may panic again when it is dropped.
                    drop(catch_unwind(AssertUnwindSafe(|| drop(worker))));
                    return (None, waited);
                }
            }
        }
    }
}
