//! Training: seconds per mini-batch, alone or during batching, without changing the model.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use morphgl_registry::{
    Gradients, Handle, Key, MiniBatch, NamedTensor, RouteOperators, Score, Training, TrainingOperator,
};

use crate::budget::{Sampling, check_stop};
use crate::pool::{self, Pool};
use crate::{Error, Result};

/// Samples kept of each worker during training: it may be much faster.
const KEPT: usize = 64;

/// Seconds of accumulate and step with `threads` threads.
pub(crate) fn measure(
    trainer: &mut TrainingOperator,
    threads: usize,
    batches: &[MiniBatch],
    sampling: Sampling<'_>,
) -> Result<Vec<f64>> {
    let settle = if threads > 1 { sampling.settle } else { Duration::ZERO };
    unchanged(trainer, threads, |mut steps| steps.sample(batches, Sampling { settle, ..sampling }, None))
}

/// Seconds of a mini-batch of the pool, and of accumulate and step, while training and all workers are at work on threads of
/// their own. Workers never wait: a mini-batch they made is discarded, its memory used for the next one.
pub(crate) fn measure_interference(
    RouteOperators { route, batching, .. }: &RouteOperators,
    trainer: &mut TrainingOperator,
    (workers, threads, training_threads): (usize, usize, usize),
    batches: &[MiniBatch],
    sampling: Sampling<'_>,
) -> Result<(Vec<f64>, Vec<f64>)> {
    unchanged(trainer, training_threads, |mut steps| {
        let mut trained = Vec::new();
        let mut train = |pool: &Pool<'_>| {
            trained = steps.sample(batches, Sampling { settle: Duration::ZERO, ..sampling }, Some(pool))?;
            Ok(())
        };
        let size = (workers, threads);
        let batched = pool::measure(batching.as_ref(), &route.batching, size, sampling, Some(&mut train))?;
        let every = batched.len().div_ceil(KEPT * workers).max(1);
        Ok((batched.into_iter().step_by(every).collect(), trained))
    })
}

/// Steps one after another, with as many mini-batches queued as the operator takes: as the executor trains.
pub(crate) struct Steps<'a> {
    pub(crate) training: &'a mut dyn Training,
    pub(crate) key: &'a Key,
    queued: VecDeque<Handle<Score>>,
    /// Mini-batches given to the operator.
    given: usize,
}

impl Steps<'_> {
    /// Seconds of steps after the warm-up; with a pool, of those during which all its workers are at work.
    fn sample(&mut self, batches: &[MiniBatch], sampling: Sampling<'_>, pool: Option<&Pool<'_>>) -> Result<Vec<f64>> {
        let settled = Instant::now() + sampling.settle;
        let mut samples = Vec::new();
        for i in 0.. {
            check_stop(sampling.stop)?;
            let is_warm = i >= sampling.warm_up && Instant::now() >= settled;
            let is_sample = is_warm && pool.is_none_or(Pool::is_warm);
            if is_sample && let Some(pool) = pool {
                pool.open();
            }
            let (seconds, end) = self.next(batches)?;
            if pool.is_some_and(Pool::is_done) {
                break;
            }
            if is_sample && samples.len() < sampling.batches {
                samples.push(seconds);
            }
            let enough = samples.len() >= sampling.batches || end >= sampling.deadline;
            // Training continues until every worker has made a whole mini-batch during it.
            if enough && !samples.is_empty() && pool.is_none_or(|pool| pool.min_samples() >= 1) {
                break;
            }
        }
        Ok(samples)
    }

    /// Seconds of the next step, as its handle measured them, and the time of its end.
    fn next(&mut self, batches: &[MiniBatch]) -> Result<(f64, Instant)> {
        let Self { training, key, queued, given } = self;
        let (_, took) = Error::catch(key, || {
            while queued.len() < training.queue_depth().max(1) {
                queued.push_back(training.train(&batches[*given % batches.len()])?);
                *given += 1;
            }
            queued.pop_front().expect("one was queued").wait()
        })?;
        Ok((took.as_secs_f64(), Instant::now()))
    }
}

/// Runs `work` with `threads` training threads, and restores parameters and optimizer state, whether it failed or not.
pub(crate) fn unchanged<T>(
    TrainingOperator { key, operator, .. }: &mut TrainingOperator,
    threads: usize,
    work: impl FnOnce(Steps<'_>) -> Result<T>,
) -> Result<T> {
    let before = Error::catch(key, || Snapshot::of(operator.as_ref()))?;
    let outcome = Error::catch(key, || operator.set_threads(threads))
        .and_then(|()| work(Steps { training: operator.as_mut(), key, queued: VecDeque::new(), given: 0 }));
    let restored = before.restore(operator.as_mut(), key, outcome.is_err());
    let value = outcome?;
    restored?;
    Ok(value)
}

/// The state of a training operator before it was measured.
pub(crate) struct Snapshot {
    parameters: Vec<NamedTensor>,
    optimizer: Vec<NamedTensor>,
}

impl Snapshot {
    pub(crate) fn of(training: &dyn Training) -> morphgl_registry::Result<Self> {
        Ok(Self { parameters: training.parameters()?, optimizer: training.optimizer_state()? })
    }

    /// Restores parameters and optimizer state; after a failed step, also clears the gradients.
    pub(crate) fn restore(&self, training: &mut dyn Training, key: &Key, failed: bool) -> Result<()> {
        let restored = Error::catch(key, || {
            training.set_parameters(&self.parameters)?;
            training.set_optimizer_state(&self.optimizer)
        });
        if failed {
            // Of two failures the first is reported, and that is the step's.
            drop(Error::catch(key, || {
                let mut gradients: Gradients = training.gradients()?;
                gradients.tensors.iter_mut().for_each(|t| t.values.fill(0.0));
                gradients.count = 0;
                training.set_gradients(&gradients)
            }));
        }
        restored
    }
}
