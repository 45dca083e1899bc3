//! A batching worker that fills a window.

use std::panic::{AssertUnwindSafe, catch_unwind};

use morphgl_registry::{BatchId, BatchingWorker, Key, MiniBatch, Place};

use crate::error::{delivered, guarded};
use crate::window::Window;
use crate::{Error, Result, Stop};

/// A mini-batch after batching.
#[derive(Debug)]
pub(crate) struct Batched {
    pub(crate) batch: MiniBatch,
    /// Where batching put it: only a mini-batch that is still there can be used again by a worker.
    pub(crate) place: Place,
}

/// The window through which batched mini-batches are delivered, and spares return.
pub(crate) type BatchWindow = Window<Result<Batched>, MiniBatch>;

/// Prepares the next mini-batch of the window; returns whether the worker panicked, or `None` when no mini-batch is left.
pub(crate) fn prepare_next(
    worker: &mut dyn BatchingWorker,
    key: &Key,
    epoch: u32,
    window: &BatchWindow,
) -> Option<bool> {
    let (index, spare) = window.claim()?;
    let id = BatchId { epoch, index };
    let outcome = guarded(Some(key), Some(id), || worker.prepare(id, spare)?.wait());
    let outcome = outcome.and_then(|(batch, _)| delivered(key, id, batch));
    let panicked = outcome.as_ref().is_err_and(Error::is_panic);
    window.put(index, outcome.map(|batch| Batched { place: batch.place(), batch }));
    Some(panicked)
}

/// The thread of a worker: prepares mini-batches until none is left, and returns the worker unless it panicked.
pub(crate) fn run(
    mut worker: Box<dyn BatchingWorker>,
    key: &Key,
    epoch: u32,
    window: &BatchWindow,
    stop: &Stop,
) -> Option<Box<dyn BatchingWorker>> {
    while !stop.is_requested() {
        match prepare_next(worker.as_mut(), key, epoch, window) {
            Some(false) => {}
            Some(true) => {
                // The worker's state after a panic may panic again when it is dropped.
                drop(catch_unwind(AssertUnwindSafe(|| drop(worker))));
                return None;
            }
            None => return Some(worker),
        }
    }
    // The consumer may be asleep, waiting for a mini-batch that no worker will prepare.
    window.close();
    Some(worker)
}
