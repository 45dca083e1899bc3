//! Mini-batches in order, as an iterator.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use morphgl_registry::{BatchId, BatchingWorker, Key, MiniBatch};

use crate::worker::{self, Delivery, Ready, Task};
use crate::{Error, ErrorKind, Pool, Result, Stop};

type Returned = (Option<Box<dyn BatchingWorker>>, f64);

/// Mini-batches of an epoch, in order, prepared ahead by the pool's workers.
///
/// Dropping it ends the workers' threads after their current mini-batches and waits for them.
/// After an error, and after a stop, it is exhausted.
pub struct Loader<'a> {
    pool: &'a mut Pool,
    epoch: u32,
    /// What is left, for a pool that prepares on the caller's thread.
    left: Range<u32>,
    window: Arc<Delivery>,
    threads: Vec<JoinHandle<Returned>>,
    stop: Stop,
    start: Instant,
    /// Whether the iterator gave out a mini-batch that was not released yet.
    outstanding: bool,
    ended: bool,
}

/// How the workers fared.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fared {
    pub(crate) waited: f64,
    pub(crate) peak: usize,
}

impl Pool {
    /// Starts batching mini-batches `batches` of an epoch, to be iterated over in order.
    ///
    /// # Errors
    ///
    /// There are fewer mini-batches, a thread cannot be started, or all workers panicked earlier.
    pub fn load(&mut self, epoch: u32, batches: Range<u32>, stop: &Stop) -> Result<Loader<'_>> {
        let wrong = |what: String| Error::setting(&self.key, what);
        if batches.end > self.num_batches {
            let (end, have) = (batches.end, self.num_batches);
            return Err(wrong(format!("mini-batches up to {end} are asked for, an epoch has {have}; ask for fewer")));
        }
        if self.workers.is_empty() {
            return Err(wrong("all of its workers panicked earlier; make a new pool".to_string()));
        }
        Loader::start(self, epoch, batches, stop)
    }
}

impl<'a> Loader<'a> {
    pub(crate) fn start(pool: &'a mut Pool, epoch: u32, batches: Range<u32>, stop: &Stop) -> Result<Self> {
        let (settings, spare) = (pool.settings, std::mem::take(&mut pool.spare));
        let window = Arc::new(Delivery::new(batches.clone(), settings.window(), spare));
        let start = Instant::now();
        let stop = stop.clone();
        let mut loader = Self {
            pool,
            epoch,
            left: batches,
            window,
            threads: Vec::new(),
            stop,
            start,
            outstanding: false,
            ended: false,
        };
        if settings.workers > 0 {
            loader.spawn()?;
        }
        Ok(loader)
    }

    /// Starts as many workers as there is something to do for.
    fn spawn(&mut self) -> Result<()> {
        let count = self.pool.workers.len().min(self.left.len());
        for number in 0..count {
            let task = Task {
                key: self.pool.key.clone(),
                number,
                epoch: self.epoch,
                window: Arc::clone(&self.window),
                stop: self.stop.clone(),
                start: self.start,
            };
            // From the front, so that a worker keeps its number; `finish` puts them back in the same order.
            let worker = self.pool.workers.remove(0);
            let thread = thread::Builder::new().name(format!("batching-{number}"));
            match thread.spawn(move || worker::run(worker, &task)) {
                Ok(thread) => self.threads.push(thread),
                Err(e) => {
                    let what = format!("cannot start the thread of worker {number}: {e}; use fewer workers");
                    let kind = ErrorKind::Thread(what);
                    return Err(Error { operator: Some(Box::new(self.pool.key.clone())), batch: None, kind });
                }
            }
        }
        Ok(())
    }

    /// Gives a mini-batch's buffers back to the workers. Those of a mini-batch that is kept are not missed.
    pub fn recycle(&mut self, batch: MiniBatch) {
        // What the window has no use for is dropped.
        drop(self.window.give(batch));
    }

    pub(crate) fn key(&self) -> &Key {
        &self.pool.key
    }

    pub(crate) fn window(&self) -> Arc<Delivery> {
        Arc::clone(&self.window)
    }

    pub(crate) fn started(&self) -> Instant {
        self.start
    }

    /// The next mini-batch, to be released by the caller.
    pub(crate) fn take(&mut self) -> Option<Result<Ready>> {
        if self.ended || self.stop.is_requested() {
            self.ended = true;
            return None;
        }
        let taken = if self.pool.settings.workers == 0 { self.take_here() } else { self.window.take() };
        self.ended = !matches!(taken, Some(Ok(_)));
        taken
    }

    /// Prepares the next mini-batch on the caller's thread.
    fn take_here(&mut self) -> Option<Result<Ready>> {
        // The window's protocol is kept, though nobody else takes part: it counts, and holds the spares.
        let (index, spare) = self.window.claim()?;
        let id = BatchId { epoch: self.epoch, index };
        let worker = self.pool.workers.first_mut().expect("a pool without workers loads nothing");
        match worker::prepare(&self.pool.key, (0, worker.as_mut()), id, spare, self.start) {
            Ok(ready) => self.window.put(index, Ok(ready)),
            Err(failure) => {
                if failure.lost {
                    self.pool.workers.remove(0);
                }
                self.window.put(index, Err(failure.error));
            }
        }
        self.window.take()
    }

    /// Ends all threads, and puts workers and spares back into the pool.
    pub(crate) fn finish(&mut self) -> Result<Fared> {
        self.window.close();
        let mut fared = Fared { waited: 0.0, peak: self.window.peak() };
        let mut kept = Vec::new();
        let mut silent = None;
        for (number, thread) in self.threads.drain(..).enumerate() {
            match thread.join() {
                Ok((worker, waited)) => {
                    kept.extend(worker);
                    fared.waited += waited;
                }
                Err(payload) => silent = Some((number, payload)),
            }
        }
        kept.append(&mut self.pool.workers);
        self.pool.workers = kept;
        self.pool.spare.append(&mut self.window.spares());
        match silent {
            None => Ok(fared),
            Some((number, payload)) => {
                let mut error = Error::panicked(Some(&self.pool.key), None, payload.as_ref());
                if let ErrorKind::Panicked(what) = &error.kind {
                    error.kind = ErrorKind::Thread(format!("the thread of worker {number} ended by a panic: {what}"));
                }
                Err(error)
            }
        }
    }
}

impl Iterator for Loader<'_> {
    type Item = Result<MiniBatch>;

    /// Waits for the next mini-batch. The one before no longer counts against the window, whether it was recycled or not.
    fn next(&mut self) -> Option<Self::Item> {
        if std::mem::take(&mut self.outstanding) {
            self.window.release(None);
        }
        let taken = self.take()?;
        self.outstanding = taken.is_ok();
        Some(taken.map(|ready| ready.batch))
    }
}

impl Drop for Loader<'_> {
    fn drop(&mut self) {
        // Whoever drops a loader early does not ask how its workers fared, and a failure was delivered in its place.
        drop(self.finish());
    }
}

impl fmt::Debug for Loader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Loader");
        f.field("pool", &self.pool).field("epoch", &self.epoch).field("window", &self.window).finish_non_exhaustive()
    }
}
