//! Batching: the steady-state throughput of a pool of workers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use morphgl_registry::{BatchId, Batching, BatchingWorker, Key};

use crate::course::Sampling;
use crate::{Error, Result};

/// What the workers of a pool share while they are measured. None of them ever waits for another.
pub(crate) struct Pool<'a> {
    key: &'a Key,
    sampling: Sampling<'a>,
    /// Mini-batches to choose from.
    usable: usize,
    workers: usize,
    next: AtomicUsize,
    warm: AtomicUsize,
    /// Whether somebody else says when samples count, and when there are enough.
    beside: bool,
    /// Beside training: whether what begins now counts.
    open: AtomicBool,
    done: AtomicBool,
    /// Seconds, worker by worker.
    samples: Mutex<Vec<Vec<f64>>>,
}

/// Seconds a mini-batch of a pool of `workers`, each of `threads` threads.
///
/// Only mini-batches during which every worker was at work count: none that began before the last one was warm,
/// none that ended after the first one stopped. A worker's seconds divided by the workers are the pool's.
pub(crate) fn measure(
    batching: &dyn Batching,
    key: &Key,
    pool: (usize, usize),
    sampling: Sampling<'_>,
) -> Result<Vec<f64>> {
    let (samples, ()) = run(batching, key, pool, sampling, None::<fn(&Pool<'_>) -> Result<()>>)?;
    Ok(samples)
}

/// The same while `meanwhile` runs on this thread, from when it opens the pool to when it returns.
pub(crate) fn measure_beside<T: Default>(
    batching: &dyn Batching,
    key: &Key,
    pool: (usize, usize),
    sampling: Sampling<'_>,
    meanwhile: impl FnOnce(&Pool<'_>) -> Result<T>,
) -> Result<(Vec<f64>, T)> {
    run(batching, key, pool, sampling, Some(meanwhile))
}

fn run<T: Default, F: FnOnce(&Pool<'_>) -> Result<T>>(
    batching: &dyn Batching,
    key: &Key,
    (workers, threads): (usize, usize),
    sampling: Sampling<'_>,
    meanwhile: Option<F>,
) -> Result<(Vec<f64>, T)> {
    let made = (0..workers).map(|_| Error::catch(key, || batching.worker(threads)));
    let made = made.collect::<Result<Vec<_>>>()?;
    let pool = Pool {
        key,
        sampling,
        usable: usable(batching),
        workers,
        next: AtomicUsize::new(0),
        warm: AtomicUsize::new(0),
        beside: meanwhile.is_some(),
        open: AtomicBool::new(false),
        done: AtomicBool::new(false),
        samples: Mutex::new(vec![Vec::new(); workers]),
    };
    let value = thread::scope(|scope| {
        let pool = &pool;
        let spawn = |(number, worker)| {
            let spawned = thread::Builder::new().spawn_scoped(scope, move || pool.work(number, worker));
            spawned.map_err(|e| {
                // Those that were started would wait for the others for ever.
                pool.done.store(true, Ordering::SeqCst);
                Error::thread(key, &e)
            })
        };
        let threads = made.into_iter().enumerate().map(spawn).collect::<Result<Vec<_>>>()?;
        let value = meanwhile.map(|meanwhile| {
            let value = meanwhile(pool);
            pool.done.store(true, Ordering::SeqCst);
            value
        });
        // Every thread is joined, by the scope too; the first failure is told.
        let joined = threads.into_iter().try_for_each(|t| t.join().expect("an operator's panics are caught"));
        let value = value.transpose()?;
        joined.map(|()| value.unwrap_or_default())
    })?;
    let samples = pool.samples.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((samples.into_iter().flatten().map(|seconds| seconds / workers as f64).collect(), value))
}

/// Mini-batches of full size: all but the last, which takes what is left.
pub(crate) fn usable(batching: &dyn Batching) -> usize {
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

    /// Mini-batches count that begin from now on.
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    /// Samples of the worker that has the fewest.
    pub(crate) fn least(&self) -> usize {
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
            let counts = if self.beside { self.open.load(Ordering::SeqCst) } else { self.is_warm() };
            let index = self.next.fetch_add(1, Ordering::Relaxed) % self.usable;
            let id = BatchId { epoch: self.sampling.epoch, index: index as u32 };
            let batch = self.sampling.go_on();
            let batch = batch.and_then(|()| Error::catch(self.key, || worker.prepare(id, recycled.take())?.wait()));
            let took = match batch {
                Ok((batch, took)) => {
                    recycled = Some(batch);
                    took
                }
                Err(e) => {
                    self.done.store(true, Ordering::SeqCst);
                    return Err(e);
                }
            };
            if counts {
                self.count(number, took.as_secs_f64());
            }
        }
        Ok(())
    }

    fn samples(&self) -> MutexGuard<'_, Vec<Vec<f64>>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a sample, and ends the measurement where it was the last one needed.
    fn count(&self, number: usize, seconds: f64) {
        let mut samples = self.samples();
        if self.is_done() {
            return;
        }
        samples[number].push(seconds);
        let least = samples.iter().map(Vec::len).min().unwrap_or(0);
        let enough = least >= self.sampling.batches || (least >= 1 && Instant::now() >= self.sampling.deadline);
        if !self.beside && enough {
            self.done.store(true, Ordering::SeqCst);
        }
    }
}
