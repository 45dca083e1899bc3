//! Mini-batches in order, as an iterator.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use morphgl_registry::{BatchingWorker, MiniBatch};

use crate::worker::{self, BatchWindow, Batched};
use crate::{Error, ErrorKind, Pool, Result, Stop};

/// Mini-batches of an epoch, in order, prepared ahead by the pool's workers.
///
/// Dropping it ends the workers' threads after their current mini-batches and waits for them.
/// After an error, and after a stop, it is exhausted.
pub struct Loader<'a> {
    pool: &'a mut Pool,
    epoch: u32,
    window: Arc<BatchWindow>,
    threads: Vec<JoinHandle<Option<Box<dyn BatchingWorker>>>>,
    stop: Stop,
    /// Whether the iterator has returned a mini-batch that is not released yet.
    outstanding: bool,
    ended: bool,
}

impl Pool {
    /// Starts batching mini-batches `batches` of an epoch, to be iterated over in order.
    ///
    /// # Errors
    ///
    /// There are fewer mini-batches, a thread cannot be started, or all workers panicked earlier.
    pub fn load(&mut self, epoch: u32, batches: Range<u32>, stop: &Stop) -> Result<Loader<'_>> {
        if batches.end > self.num_batches {
            let (end, n) = (batches.end, self.num_batches);
            let text = format!("mini-batches up to {end} are asked for, an epoch has {n}; ask for fewer");
            return Err(Error::setting(Some(&self.key), text));
        }
        if self.workers.is_empty() {
            let text = "all of its workers panicked earlier; make a new pool";
            return Err(Error::setting(Some(&self.key), text));
        }
        let count = self.settings.workers.min(self.workers.len()).min(batches.len());
        let spare = std::mem::take(&mut self.spare);
        let window = Arc::new(BatchWindow::new(batches, self.settings.window(), spare));
        let threads = Vec::new();
        let mut loader =
            Loader { pool: self, epoch, window, threads, stop: stop.clone(), outstanding: false, ended: false };
        for number in 0..count {
            // Workers are taken from the front, and returned in the same order: each keeps its number.
            let worker = loader.pool.workers.remove(0);
            let (key, window, stop) = (loader.pool.key.clone(), loader.window(), stop.clone());
            let thread = thread::Builder::new().name(format!("batching-{number}"));
            let thread = thread.spawn(move || worker::run(worker, &key, epoch, &window, &stop));
            let failed = |e| Error::new(Some(&loader.pool.key), None, ErrorKind::Thread(e));
            loader.threads.push(thread.map_err(failed)?);
        }
        Ok(loader)
    }
}

impl Loader<'_> {
    /// Returns a mini-batch's memory to the workers. A caller may keep mini-batches instead.
    pub fn recycle(&mut self, batch: MiniBatch) {
        // A spare that the window has no use for is dropped.
        drop(self.window.give(batch));
    }

    pub(crate) fn window(&self) -> Arc<BatchWindow> {
        Arc::clone(&self.window)
    }

    /// The next mini-batch, to be released by the caller.
    pub(crate) fn next_batched(&mut self) -> Option<Result<Batched>> {
        if self.ended || self.stop.is_requested() {
            self.ended = true;
            return None;
        }
        // Without threads, the caller's thread plays the worker's part in the window's protocol.
        if self.pool.settings.workers == 0 {
            let worker = self.pool.workers.first_mut().expect("a pool without workers loads nothing");
            if worker::prepare_next(worker.as_mut(), &self.pool.key, self.epoch, &self.window) == Some(true) {
                self.pool.workers.remove(0);
            }
        }
        let taken = self.window.take();
        self.ended = !matches!(taken, Some(Ok(_)));
        taken
    }

    /// Ends all threads, and returns workers and spares to the pool.
    pub(crate) fn finish(&mut self) {
        self.window.close();
        let workers = self.threads.drain(..).filter_map(|t| t.join().expect("a worker's panics are caught"));
        self.pool.workers.splice(0..0, workers);
        self.pool.spare.append(&mut self.window.spares());
    }
}

impl Iterator for Loader<'_> {
    type Item = Result<MiniBatch>;

    /// Waits for the next mini-batch, and releases the place of the one before in the window, whether it was recycled or not.
    fn next(&mut self) -> Option<Self::Item> {
        if std::mem::take(&mut self.outstanding) {
            self.window.release(None);
        }
        let taken = self.next_batched()?;
        self.outstanding = taken.is_ok();
        Some(taken.map(|batched| batched.batch))
    }
}

impl Drop for Loader<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl fmt::Debug for Loader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("pool", &self.pool).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}
