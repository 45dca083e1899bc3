//! Batching: the steady-state throughput of a pool of workers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use morphgl_registry::{BatchId, Batching, BatchingWorker, Key};

use crate::{Error, Result, Settings};

/// What the workers of a pool share while they are measured. None of them ever waits for another.
struct Shared<'a> {
    key: &'a Key,
    settings: &'a Settings,
    /// Mini-batches to choose from.
    usable: usize,
    /// No further samples are needed after this, once every worker has one.
    deadline: Instant,
    next: AtomicUsize,
    warm: AtomicUsize,
    done: AtomicBool,
    /// Seconds, worker by worker.
    samples: Mutex<Vec<Vec<f64>>>,
}

/// Seconds a mini-batch of a pool of `workers`, each of `threads` threads, sampled for about `time`.
///
/// Only mini-batches during which every worker was at work count: none that began before the last one was warm,
/// none that ended after the first one stopped. A worker's seconds divided by the workers are the pool's.
pub(crate) fn measure(
    batching: &dyn Batching,
    key: &Key,
    (workers, threads): (usize, usize),
    settings: &Settings,
    time: Duration,
) -> Result<Vec<f64>> {
    let made = (0..workers).map(|_| Error::catch(key, || batching.worker(threads)));
    let made = made.collect::<Result<Vec<_>>>()?;
    let shared = Shared {
        key,
        settings,
        usable: usable(batching),
        deadline: Instant::now() + time,
        next: AtomicUsize::new(0),
        warm: AtomicUsize::new(0),
        done: AtomicBool::new(false),
        samples: Mutex::new(vec![Vec::new(); workers]),
    };
    thread::scope(|scope| {
        let shared = &shared;
        let run = |(number, worker)| {
            let spawned = thread::Builder::new().spawn_scoped(scope, move || shared.run(number, worker));
            spawned.map_err(|e| {
                // Those that were started would wait for the others for ever.
                shared.done.store(true, Ordering::SeqCst);
                Error::thread(key, &e)
            })
        };
        let threads = made.into_iter().enumerate().map(run).collect::<Result<Vec<_>>>()?;
        // Every thread is joined, by the scope too; the first failure is told.
        threads.into_iter().try_for_each(|t| t.join().expect("panics of the operator are caught, there are no others"))
    })?;
    let samples = shared.samples.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(samples.into_iter().flatten().map(|seconds| seconds / workers as f64).collect())
}

/// Mini-batches of full size: all but the last, which takes what is left.
pub(crate) fn usable(batching: &dyn Batching) -> usize {
    batching.num_batches().saturating_sub(1).max(1)
}

impl Shared<'_> {
    fn run(&self, number: usize, mut worker: Box<dyn BatchingWorker>) -> Result<()> {
        let mut recycled = None;
        let mut prepared = 0;
        while !self.done.load(Ordering::SeqCst) {
            if prepared == self.settings.warm_up {
                self.warm.fetch_add(1, Ordering::SeqCst);
            }
            prepared += 1;
            let counts = self.warm.load(Ordering::SeqCst) == self.workers();
            let index = self.next.fetch_add(1, Ordering::Relaxed) % self.usable;
            let id = BatchId { epoch: self.settings.epoch, index: index as u32 };
            let start = Instant::now();
            let batch = Error::catch(self.key, || worker.prepare(id, recycled.take())?.wait());
            let seconds = start.elapsed().as_secs_f64();
            match batch {
                Ok((batch, _)) => recycled = Some(batch),
                Err(e) => {
                    self.done.store(true, Ordering::SeqCst);
                    return Err(e);
                }
            }
            if counts {
                self.count(number, seconds);
            }
        }
        Ok(())
    }

    fn samples(&self) -> MutexGuard<'_, Vec<Vec<f64>>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn workers(&self) -> usize {
        self.samples().len()
    }

    /// Takes a sample, and ends the measurement where it was the last one needed.
    fn count(&self, number: usize, seconds: f64) {
        let mut samples = self.samples();
        if self.done.load(Ordering::SeqCst) {
            return;
        }
        samples[number].push(seconds);
        let least = samples.iter().map(Vec::len).min().unwrap_or(0);
        if least >= self.settings.batches.max(1) || (least >= 1 && Instant::now() >= self.deadline) {
            self.done.store(true, Ordering::SeqCst);
        }
    }
}
