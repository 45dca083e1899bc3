//! Batching: the steady-state throughput of a pool of workers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use morphgl_platform::limit_cure;
use morphgl_registry::{BatchId, Batching, BatchingWorker, Key};

use crate::budget::{Sampling, check_stop};
use crate::{Error, Result};

/// The state that a pool's workers share. No worker ever waits for another.
pub(crate) struct Pool<'a> {
    key: &'a Key,
    sampling: Sampling<'a>,
    /// Number of mini-batches to choose from.
    full: usize,
    workers: usize,
    next: AtomicUsize,
    warm: AtomicUsize,
    /// Whether another function opens the pool and ends the measurement.
    controlled: bool,
    /// Of a controlled pool, whether mini-batches that begin now are samples.
    open: AtomicBool,
    done: AtomicBool,
    /// Seconds, worker by worker.
    samples: Mutex<Vec<Vec<f64>>>,
}

/// A function that opens a pool, and ends its measurement when it returns.
type Control<'a> = &'a mut dyn FnMut(&Pool<'_>) -> Result<()>;

/// Seconds per mini-batch of a pool of `workers`, each of `threads` threads.
///
/// Only mini-batches during which every worker was at work are samples: none that began before the last one was warm,
/// none that ended after the first one stopped. A worker's seconds divided by the workers are the pool's.
///
/// With `control`, samples begin when it opens the pool, and end when it returns.
pub(crate) fn measure(
    batching: &dyn Batching,
    key: &Key,
    (workers, threads): (usize, usize),
    sampling: Sampling<'_>,
    control: Option<Control<'_>>,
) -> Result<Vec<f64>> {
    let made = (0..workers).map(|_| Error::catch(key, || batching.worker(threads)));
    let made = made.collect::<Result<Vec<_>>>()?;
    let pool = Pool {
        key,
        sampling,
        full: full_batches(batching),
        workers,
        next: AtomicUsize::new(0),
        warm: AtomicUsize::new(0),
        controlled: control.is_some(),
        open: AtomicBool::new(false),
        done: AtomicBool::new(false),
        samples: Mutex::new(vec![Vec::new(); workers]),
    };
    thread::scope(|scope| {
        let pool = &pool;
        let spawn = |(number, worker)| {
            let spawned = thread::Builder::new().spawn_scoped(scope, move || pool.work(number, worker));
            spawned.map_err(|e| {
                // The workers that were started would otherwise run for ever.
                pool.done.store(true, Ordering::SeqCst);
                let cure = limit_cure(&e).unwrap_or("use fewer threads");
                Error::operators(key, format!("a thread could not be started: {e}; {cure}"))
            })
        };
        let threads = made.into_iter().enumerate().map(spawn).collect::<Result<Vec<_>>>()?;
        let controlled = control.map_or(Ok(()), |control| {
            let outcome = control(pool);
            pool.done.store(true, Ordering::SeqCst);
            outcome
        });
        // The scope joins every thread; of several failures, the first is reported.
        let joined = threads.into_iter().try_for_each(|t| t.join().expect("an operator's panics are caught"));
        controlled.and(joined)
    })?;
    let samples = pool.samples.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(samples.into_iter().flatten().map(|seconds| seconds / workers as f64).collect())
}

/// Number of mini-batches of full size: all but the last, which has the rest of the seeds.
pub(crate) fn full_batches(batching: &dyn Batching) -> usize {
    batching.num_batches().saturating_sub(1).max(1)
}

impl Pool<'_> {
    /// Whether every worker is at work, past its warm-up.
    pub(crate) fn is_warm(&self) -> bool {
        self.warm.load(Ordering::SeqCst) == self.workers
    }

    /// Whether a worker failed, or the pool is no longer needed.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }

    /// Makes the mini-batches that begin from now on samples.
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    /// Minimum number of samples of a worker.
    pub(crate) fn min_samples(&self) -> usize {
        self.samples().iter().map(Vec::len).min().unwrap_or(0)
    }

    fn work(&self, number: usize, mut worker: Box<dyn BatchingWorker>) -> Result<()> {
        let mut recycled = None;
        let mut prepared = 0;
        while !self.is_done() {
            if prepared == self.sampling.warm_up {
                self.warm.fetch_add(1, Ordering::SeqCst);
            }
            prepared += 1;
            let is_sample = if self.controlled { self.open.load(Ordering::SeqCst) } else { self.is_warm() };
            let index = self.next.fetch_add(1, Ordering::Relaxed) % self.full;
            let id = BatchId { epoch: self.sampling.epoch, index: index as u32 };
            let batch = check_stop(self.sampling.stop);
            let batch = batch.and_then(|()| Error::catch(self.key, || worker.prepare(id, recycled.take())?.wait()));
            let (batch, took) = batch.inspect_err(|_| self.done.store(true, Ordering::SeqCst))?;
            recycled = Some(batch);
            if is_sample {
                self.add_sample(number, took.as_secs_f64());
            }
        }
        Ok(())
    }

    fn samples(&self) -> MutexGuard<'_, Vec<Vec<f64>>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sample, and ends the measurement where it was the last one needed.
    fn add_sample(&self, number: usize, seconds: f64) {
        let mut samples = self.samples();
        if self.is_done() {
            return;
        }
        samples[number].push(seconds);
        let least = samples.iter().map(Vec::len).min().unwrap_or(0);
        let enough = least >= self.sampling.batches || (least >= 1 && Instant::now() >= self.sampling.deadline);
        if !self.controlled && enough {
            self.done.store(true, Ordering::SeqCst);
        }
    }
}
