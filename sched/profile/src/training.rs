//! Training: seconds a mini-batch, alone or beside a pool that batches, without changing the model.

use std::collections::VecDeque;
use std::time::Instant;

use morphgl_registry::{Batching, Gradients, Handle, Key, MiniBatch, NamedTensor, Score, Training};

use crate::course::Sampling;
use crate::pool;
use crate::{Error, Result, TrainingOperator};

/// Samples kept of each worker beside training: it may be much faster.
const KEPT: usize = 64;

/// Seconds of accumulate and step with `threads` threads.
pub(crate) fn measure(
    trainer: &mut TrainingOperator<'_>,
    threads: usize,
    batches: &[MiniBatch],
    sampling: Sampling<'_>,
) -> Result<Vec<f64>> {
    let key = trainer.key;
    unchanged(trainer.operator, key, |training| {
        Error::catch(key, || training.set_threads(threads))?;
        let mut samples = Vec::new();
        let mut steps = Steps::new(training, key, batches);
        for i in 0.. {
            sampling.go_on()?;
            let (seconds, end) = steps.next()?;
            if i >= sampling.warm_up {
                samples.push(seconds);
                if samples.len() >= sampling.batches || end >= sampling.deadline {
                    break;
                }
            }
        }
        Ok(samples)
    })
}

/// Seconds of accumulate and step, and of a mini-batch of the pool, while training and all workers are at work on threads of
/// their own. Workers never wait: a mini-batch they made is thrown away, its memory used for the next one.
pub(crate) fn measure_beside(
    (batching, key): (&dyn Batching, &Key),
    trainer: &mut TrainingOperator<'_>,
    (workers, threads, training_threads): (usize, usize, usize),
    batches: &[MiniBatch],
    sampling: Sampling<'_>,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let trained_by = trainer.key;
    unchanged(trainer.operator, trained_by, |training| {
        Error::catch(trained_by, || training.set_threads(training_threads))?;
        let (pooled, trained) = pool::measure_beside(batching, key, (workers, threads), sampling, |pool| {
            let mut samples = Vec::new();
            let mut steps = Steps::new(training, trained_by, batches);
            for i in 0.. {
                sampling.go_on()?;
                let counts = i >= sampling.warm_up && pool.is_warm();
                if counts {
                    pool.open();
                }
                let (seconds, end) = steps.next()?;
                if pool.is_done() {
                    break;
                }
                if counts && samples.len() < sampling.batches {
                    samples.push(seconds);
                }
                let enough = samples.len() >= sampling.batches || end >= sampling.deadline;
                // Training goes on until every worker has made a whole mini-batch beside it.
                if enough && !samples.is_empty() && pool.least() >= 1 {
                    break;
                }
            }
            Ok(samples)
        })?;
        let every = pooled.len().div_ceil(KEPT * workers).max(1);
        Ok((pooled.into_iter().step_by(every).collect(), trained))
    })
}

/// Steps one after the other, of as many mini-batches at once as the operator takes: as an executor has it.
struct Steps<'a> {
    training: &'a mut dyn Training,
    key: &'a Key,
    batches: std::iter::Cycle<std::slice::Iter<'a, MiniBatch>>,
    given: VecDeque<Handle<Score>>,
}

impl<'a> Steps<'a> {
    fn new(training: &'a mut dyn Training, key: &'a Key, batches: &'a [MiniBatch]) -> Self {
        Self { training, key, batches: batches.iter().cycle(), given: VecDeque::new() }
    }

    /// Seconds of the next step, as its handle measured them, and when it was seen to end.
    fn next(&mut self) -> Result<(f64, Instant)> {
        let Self { training, key, batches, given } = self;
        let (_, took) = Error::catch(key, || {
            while given.len() < training.queue_depth().max(1) {
                let batch = batches.next().expect("there is a mini-batch to measure");
                given.push_back(training.train(batch)?);
            }
            given.pop_front().expect("one was given").wait()
        })?;
        Ok((took.as_secs_f64(), Instant::now()))
    }
}

/// Does `work`, and puts parameters and optimizer state back to what they were, whether it failed or not.
fn unchanged<T>(
    training: &mut dyn Training,
    key: &Key,
    work: impl FnOnce(&mut dyn Training) -> Result<T>,
) -> Result<T> {
    let before = Error::catch(key, || Snapshot::of(training))?;
    let outcome = work(training);
    let restored = before.put_back(training, key, outcome.is_err());
    let value = outcome?;
    restored?;
    Ok(value)
}

/// What a training operator held before it was measured.
pub(crate) struct Snapshot {
    parameters: Vec<NamedTensor>,
    optimizer: Vec<NamedTensor>,
}

impl Snapshot {
    pub(crate) fn of(training: &dyn Training) -> morphgl_registry::Result<Self> {
        Ok(Self { parameters: training.parameters()?, optimizer: training.optimizer_state()? })
    }

    /// Puts parameters and optimizer state back; after a step that did not happen, gradients are cleared, too.
    pub(crate) fn put_back(&self, training: &mut dyn Training, key: &Key, failed: bool) -> Result<()> {
        let restored = Error::catch(key, || {
            training.set_parameters(&self.parameters)?;
            training.set_optimizer_state(&self.optimizer)
        });
        if failed {
            // Of two failures the first is told, and that one was before.
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
