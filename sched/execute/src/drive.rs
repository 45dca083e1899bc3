//! Batching, transferring and the caller's function, brought together.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, bounded};
use morphgl_registry::{Key, MiniBatch, Score, Transferring};

use crate::error::{delivered, guarded};
use crate::loader::Fared;
use crate::report::span_ending;
use crate::window::CloseOnDrop;
use crate::worker::{Delivery, Ready};
use crate::{BatchDone, Error, ErrorKind, Loader, Pool, Prepared, Result, Span, Stop};

/// A transferring operator and its key.
#[derive(Debug)]
pub struct Transfer<'a> {
    /// Its key, for errors.
    pub key: &'a Key,
    /// The operator.
    pub operator: &'a mut dyn Transferring,
}

/// What is to be done with every mini-batch; returns its score and how long that kept its resource busy.
pub(crate) type Consume<'a> = &'a mut dyn FnMut(&MiniBatch) -> morphgl_registry::Result<(Score, Duration)>;

/// Which mini-batches, for whom, until when.
pub(crate) struct Job<'a> {
    pub(crate) epoch: u32,
    pub(crate) batches: Range<u32>,
    pub(crate) stop: &'a Stop,
}

/// A mini-batch that can be consumed.
struct Moved {
    ready: Ready,
    transferring: Span,
}

/// Where the consumer's loop gets mini-batches from, and gives them back to.
trait Source {
    fn next(&mut self) -> Option<Result<Moved>>;
    fn waiting(&self) -> usize;
    fn release(&mut self, spare: Option<MiniBatch>);
}

/// Transferring on the consumer's thread, or none at all.
struct Here<'a, 'p, 't> {
    loader: &'a mut Loader<'p>,
    window: Arc<Delivery>,
    transfer: Option<Transfer<'t>>,
}

/// Transferring on a thread of its own.
struct There {
    window: Arc<Delivery>,
    moved: Receiver<Result<Moved>>,
}

impl Source for Here<'_, '_, '_> {
    fn next(&mut self) -> Option<Result<Moved>> {
        let ready = self.loader.take()?;
        let start = self.loader.started();
        Some(ready.and_then(|ready| transfer(self.transfer.as_mut(), ready, start)))
    }

    fn waiting(&self) -> usize {
        self.window.waiting()
    }

    fn release(&mut self, spare: Option<MiniBatch>) {
        self.window.release(spare);
    }
}

impl Source for There {
    fn next(&mut self) -> Option<Result<Moved>> {
        // An error says that the transferring thread has ended, as it does after the last mini-batch.
        self.moved.recv().ok()
    }

    fn waiting(&self) -> usize {
        // In this order: one that is moved on meanwhile is counted once at most.
        let moved = self.moved.len();
        moved + self.window.waiting()
    }

    fn release(&mut self, spare: Option<MiniBatch>) {
        self.window.release(spare);
    }
}

/// Runs `job`: all threads it starts have ended when it returns, whatever happens.
pub(crate) fn drive(
    pool: &mut Pool,
    transfer_by: Option<Transfer<'_>>,
    job: &Job<'_>,
    consume: Consume<'_>,
    observe: &mut dyn FnMut(&BatchDone),
) -> Result<Prepared> {
    let pipeline = pool.settings.workers > 0;
    let mut loader = pool.load(job.epoch, job.batches.clone(), job.stop)?;
    let (start, window) = (loader.started(), loader.window());
    let outcome = match transfer_by {
        Some(by) if pipeline => apart(&mut loader, by, job, consume, observe),
        by => {
            let mut source = Here { loader: &mut loader, window, transfer: by };
            run(&mut source, job, start, consume, observe)
        }
    };
    let key = loader.key().clone();
    let fared = loader.finish();
    let mut report = outcome?;
    let Fared { waited, peak } = fared?;
    (report.workers_waited, report.peak_in_flight) = (waited, peak);
    report.seconds = start.elapsed().as_secs_f64();
    if report.stopped && !job.stop.is_requested() {
        let what = format!("delivery ended before mini-batch {}; this is a fault of the executor", report.next);
        return Err(Error { operator: Some(Box::new(key)), batch: None, kind: ErrorKind::Thread(what) });
    }
    Ok(report)
}

/// Runs with transferring on a thread of its own.
fn apart(
    loader: &mut Loader<'_>,
    mut by: Transfer<'_>,
    job: &Job<'_>,
    consume: Consume<'_>,
    observe: &mut dyn FnMut(&BatchDone),
) -> Result<Prepared> {
    let (start, window) = (loader.started(), loader.window());
    let key = by.key.clone();
    thread::scope(|scope| {
        // One mini-batch is consumed, one waits here, one is being moved.
        let (send, moved) = bounded(1);
        let mut source = There { window: Arc::clone(&window), moved };
        // Dropped first, by a panic too: else the scope would wait for a thread that sleeps in the window.
        let _close = CloseOnDrop(&window);
        let thread = thread::Builder::new().name("transferring".to_string()).spawn_scoped(scope, move || {
            while let Some(ready) = loader.take() {
                let moved = ready.and_then(|ready| transfer(Some(&mut by), ready, start));
                let failed = moved.is_err();
                // Nobody receives any more once the consumer has failed or was stopped.
                if send.send(moved).is_err() || failed {
                    return;
                }
            }
        });
        if let Err(e) = thread {
            let kind = ErrorKind::Thread(format!("cannot start its thread: {e}; use fewer workers"));
            return Err(Error { operator: Some(Box::new(key)), batch: None, kind });
        }
        run(&mut source, job, start, consume, observe)
    })
}

fn transfer(by: Option<&mut Transfer<'_>>, ready: Ready, start: Instant) -> Result<Moved> {
    let Some(Transfer { key, operator }) = by else { return Ok(Moved { ready, transferring: Span::default() }) };
    let Ready { batch, place, edges, worker, span } = ready;
    let id = batch.id();
    let (batch, took) = guarded(Some(key), Some(id), || operator.transfer(batch)?.wait())?;
    let end = start.elapsed().as_secs_f64();
    let batch = delivered(key, id, batch)?;
    Ok(Moved { ready: Ready { batch, place, edges, worker, span }, transferring: span_ending(end, took, 0.0) })
}

/// The consumer's loop: ends with the first failure, or after the mini-batch during which a stop was asked for.
fn run(
    source: &mut dyn Source,
    job: &Job<'_>,
    start: Instant,
    consume: Consume<'_>,
    observe: &mut dyn FnMut(&BatchDone),
) -> Result<Prepared> {
    let mut report = Prepared::new(job.epoch, job.batches.start);
    while report.next < job.batches.end && !job.stop.is_requested() {
        let asked = start.elapsed().as_secs_f64();
        let Some(moved) = source.next() else { break };
        let Moved { ready: Ready { batch, place, edges, worker, span }, transferring } = moved?;
        let begun = start.elapsed().as_secs_f64();
        let (id, waiting) = (batch.id(), source.waiting());
        let (score, busy) = guarded(None, Some(id), || consume(&batch))?;
        let training = span_ending(start.elapsed().as_secs_f64(), busy, begun);
        let seeds = batch.num_seeds();
        let waited = begun - asked;
        let done = BatchDone {
            id,
            share: 0,
            seeds,
            edges,
            score,
            worker,
            batching: span,
            transferring,
            training,
            waited,
            ready: waiting,
            left: (job.batches.end - id.index - 1) as usize,
        };
        source.release((batch.place() == place).then_some(batch));
        report.add(&done);
        observe(&done);
    }
    report.stopped = report.next < job.batches.end;
    Ok(report)
}
