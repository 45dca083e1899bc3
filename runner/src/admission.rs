//! Admission of mini-batches that may not fit in memory: growing shares of one are tried, until the whole one is known
//! to fit or the next share is known not to.

use anyhow::Result;
use morphgl_profile::MemoryLimit;
use morphgl_registry::{BatchId, Batching, MiniBatch, Place, Transferring};

use crate::{Job, task};

/// A share of a mini-batch that would exceed the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Excess {
    /// Seeds of the share.
    pub(crate) seeds: usize,
    /// Bytes that the process would hold with it.
    pub(crate) bytes: u64,
    /// Bytes with which the whole mini-batch is planned, at most.
    pub(crate) whole: u64,
}

/// Mini-batches that profile and plan hold besides the one of a step, with a quarter for larger ones.
const OTHERS: u64 = 5;

/// Prepares, moves and uses growing shares of the first mini-batch, of at most `batch_size` seeds. The whole one is left out where
/// it is known to fit, with a quarter for larger ones.
///
/// A mini-batch grows by fewer nodes the more seeds it has: the next share adds at most as much per seed as the last one did.
pub(crate) fn admit(
    batching: &dyn Batching,
    transferring: &mut dyn Transferring,
    batch_size: usize,
    memory: MemoryLimit<'_>,
    mut work: impl FnMut(&MiniBatch) -> Result<()>,
) -> Result<Option<Excess>> {
    let mut worker = batching.worker(1)?;
    let peak = memory.peak;
    let mut recycled = None;
    peak();
    // Seeds of the share before and of this one, and the peak memory before this one.
    let (mut before, mut seeds, mut last) = (0, 1, peak());
    loop {
        let (batch, _) = worker.prepare_share(BatchId::default(), 0..seeds, recycled.take())?.wait()?;
        let (batch, _) = transferring.transfer(batch)?.wait()?;
        work(&batch)?;
        let whole = batch.num_seeds() < seeds || seeds >= batch_size;
        let others = OTHERS * batch.to_host()?.num_bytes() as u64;
        recycled = Some(batch);
        let now = peak().max(last);
        if before == 0 && !whole {
            // The first share also starts threads and fills tables, which no other does.
            (before, seeds, last) = (seeds, 2 * seeds, now);
            continue;
        }
        let with = |seeds_then: usize| now + (now - last) * (seeds_then - seeds) as u64 / (seeds - before) as u64;
        if whole || now + (with(batch_size.max(seeds)) - now) / 4 * 5 <= memory.limit {
            return Ok(None);
        }
        let larger = [4, 2].map(|factor| (factor * seeds).min(batch_size));
        let Some(next) = larger.into_iter().find(|&next| with(next) <= memory.limit) else {
            let whole = with(batch_size) + others / seeds as u64 * batch_size as u64;
            return Ok(Some(Excess { seeds: larger[1], bytes: with(larger[1]), whole }));
        };
        (before, seeds, last) = (seeds, next, now);
    }
}

impl Job {
    /// Leaves out the training operators of the host whose steps on a mini-batch exceed the memory; one that fails is left to the
    /// measurements, which name the reason. Parameters and optimizer state are as before.
    ///
    /// # Errors
    ///
    /// State that cannot be restored.
    pub(crate) fn admit(&mut self, memory: MemoryLimit<'_>) -> Result<Option<Excess>> {
        let batch_size = self.config.sampler.batch_size.min(task::num_examples(&self.dataset, &self.config));
        let mut exceeding: Option<Excess> = None;
        let mut i = 0;
        while i < self.operators.routes.len() {
            let route = self.operators.routes[i].route.clone();
            let trainer = self.operators.trainer(&route);
            let on_host = (&route.batched_at, &route.trained_at) == (&Place::Host, &Place::Host);
            let Some(trainer) = trainer.filter(|_| on_host) else {
                i += 1;
                continue;
            };
            let training = &mut self.operators.trainers[trainer].operator;
            let operators = &mut self.operators.routes[i];
            let model = &self.config.spec.model;
            let before = (training.parameters()?, training.optimizer_state()?);
            let excess =
                admit(operators.batching.as_ref(), operators.transferring.as_mut(), batch_size, memory, |batch| {
                    // A step needs a seed with a target.
                    match task::has_examples(model, batch.host()?) {
                        true => training.train(batch)?.wait()?,
                        false => training.accumulate(batch)?.wait()?,
                    };
                    Ok(())
                });
            training.set_parameters(&before.0)?;
            training.set_optimizer_state(&before.1)?;
            match excess {
                Ok(None) | Err(_) => i += 1,
                Ok(Some(excess)) => {
                    // The route with the smallest step says what is missing.
                    exceeding = Some(exceeding.filter(|e| e.bytes <= excess.bytes).unwrap_or(excess));
                    let unable = (route.training, route.trained_at, "a step does not fit in memory".to_string());
                    if !self.unable.contains(&unable) {
                        self.unable.push(unable);
                    }
                    self.operators.routes.remove(i);
                }
            }
        }
        let operators = &mut self.operators;
        operators
            .trainers
            .retain(|t| operators.routes.iter().any(|r| r.route.training == t.key && r.route.trained_at == t.place));
        Ok(exceeding.filter(|_| self.operators.routes.is_empty()))
    }
}
