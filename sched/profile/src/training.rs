//! Training: seconds a mini-batch, without changing the model.

use std::time::{Duration, Instant};

use morphgl_registry::{Gradients, Key, MiniBatch, Training};

use crate::{Error, Result, Settings};

/// Seconds of accumulate and step with `threads` threads, sampled for about `time`.
pub(crate) fn measure(
    training: &mut dyn Training,
    key: &Key,
    threads: usize,
    batches: &[MiniBatch],
    settings: &Settings,
    time: Duration,
) -> Result<Vec<f64>> {
    let deadline = Instant::now() + time;
    Error::catch(key, || training.set_threads(threads))?;
    let mut samples = Vec::new();
    for (i, batch) in batches.iter().cycle().enumerate() {
        let start = Instant::now();
        Error::catch(key, || {
            training.accumulate(batch)?.wait()?;
            training.step()?.wait()
        })?;
        let end = Instant::now();
        if i >= settings.warm_up {
            samples.push((end - start).as_secs_f64());
            if samples.len() >= settings.batches.max(1) || end >= deadline {
                break;
            }
        }
    }
    Ok(samples)
}

/// Does `work`, and puts parameters and optimizer state back to what they were, whether it failed or not.
pub(crate) fn unchanged<T>(
    training: &mut dyn Training,
    key: &Key,
    work: impl FnOnce(&mut dyn Training) -> Result<T>,
) -> Result<T> {
    let (parameters, state) = Error::catch(key, || Ok((training.parameters()?, training.optimizer_state()?)))?;
    let outcome = work(training);
    let restored = Error::catch(key, || {
        training.set_parameters(&parameters)?;
        training.set_optimizer_state(&state)
    });
    if outcome.is_err() {
        // A step that did not happen left gradients behind. Of two failures the first is told.
        drop(Error::catch(key, || training.set_gradients(&Gradients::default())));
    }
    let value = outcome?;
    restored?;
    Ok(value)
}
