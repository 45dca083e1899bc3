//! All phases at once, where a device queues the work of several.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Instant;

use morphgl_registry::{BatchId, MiniBatch, RouteOperators, TrainingOperator};

use crate::budget::{Sampling, check_stop};
use crate::pool::full_batches;
use crate::training::{Steps, unchanged};
use crate::{Error, Result};

/// Seconds between the ends of steps, at least one sample, with batching and transferring in threads of their own, each one mini-batch
/// ahead of the next: as the executor overlaps them with the smallest buffers.
pub(crate) fn measure(
    operators: &mut RouteOperators,
    trainer: &mut TrainingOperator,
    sampling: Sampling<'_>,
) -> Result<Vec<f64>> {
    let RouteOperators { route, batching, transferring } = operators;
    let (route, full) = (&*route, full_batches(batching.as_ref()));
    let mut worker = Error::catch(&route.batching, || batching.worker(1))?;
    // Channels without slots: each thread holds the mini-batch it has made until the next thread takes it.
    let (to_transfer, batched) = sync_channel::<MiniBatch>(0);
    let (to_train, ready) = sync_channel::<MiniBatch>(0);
    // Each thread owns its ends of the channels and drops them when it ends, which ends the threads on their other side.
    let batch = move || -> Result<()> {
        for index in (0..full as u32).cycle() {
            let id = BatchId { epoch: sampling.epoch, index };
            let (batch, _) = Error::catch(&route.batching, || worker.prepare(id, None)?.wait())?;
            if to_transfer.send(batch).is_err() {
                break;
            }
        }
        Ok(())
    };
    let transfer = move || -> Result<()> {
        for batch in batched {
            let (moved, _) = Error::catch(&route.transferring, || transferring.transfer(batch)?.wait())?;
            if to_train.send(moved).is_err() {
                break;
            }
        }
        Ok(())
    };
    unchanged(trainer, 1, |steps| {
        thread::scope(|scope| {
            let batching = scope.spawn(batch);
            let transferring = scope.spawn(transfer);
            let trained = train(steps, ready, sampling);
            // The receivers are gone, so both threads end. Without a failure of theirs there are samples.
            let failed = [batching, transferring].map(|t| t.join().expect("an operator's panics are caught"));
            failed.into_iter().collect::<Result<()>>().and(trained)
        })
    })
}

/// Trains what is ready, with as many mini-batches queued as the operator takes, until there are enough samples or no mini-batch
/// comes any more.
fn train(steps: Steps<'_>, ready: Receiver<MiniBatch>, sampling: Sampling<'_>) -> Result<Vec<f64>> {
    let Steps { training, key, .. } = steps;
    let mut queued = VecDeque::new();
    let (mut samples, mut before) = (Vec::new(), None);
    for i in 0.. {
        check_stop(sampling.stop)?;
        while queued.len() < training.queue_depth().max(1) {
            let Ok(batch) = ready.recv() else { return Ok(samples) };
            let handle = Error::catch(key, || training.train(&batch))?;
            queued.push_back((handle, batch));
        }
        let (handle, batch) = queued.pop_front().expect("one was queued");
        Error::catch(key, || handle.wait())?;
        drop(batch);
        let end = Instant::now();
        // The first mini-batches of each phase found the device idle.
        if let Some(before) = before.replace(end).filter(|_| i > sampling.warm_up + 2) {
            samples.push((end - before).as_secs_f64());
        }
        if !samples.is_empty() && (samples.len() >= sampling.batches || end >= sampling.deadline) {
            break;
        }
    }
    Ok(samples)
}
