//! What a short epoch takes besides its phases, measured on whole epochs before the run: the phases were measured one by one.

use anyhow::Result;
use morphgl_execute::{Control, Executor, Settings, Stop};
use morphgl_plan::Plan;
use morphgl_registry::Place;

use crate::{Job, median};

/// Epochs that take longer than this by their phases are not rehearsed: what they take besides is a small part of them.
const SHORT: f64 = 0.05;
/// Epochs measured, after one that warms up.
const EPOCHS: usize = 5;
/// The epoch whose mini-batches are trained on, that of the profile.
const EPOCH: u32 = 0;

impl Job {
    /// Seconds by which epochs by this plan take longer than it predicts, where they are short and all of their operators are the
    /// host's; 0 elsewhere. Parameters and optimizer state are the same afterwards as before.
    ///
    /// # Errors
    ///
    /// A failing operator, with its key and mini-batch.
    pub fn rehearse(&mut self, plan: &Plan, stop: &Stop) -> Result<f64> {
        let predicted = plan.prediction.epoch_seconds;
        let host = |r: &morphgl_registry::RouteOperators| {
            let simulated = self.context.registry().get(&r.route.batching).is_ok_and(|batching| batching.simulated);
            !simulated && r.route.batched_at == Place::Host && r.route.trained_at == Place::Host
        };
        if predicted > SHORT || self.operators.trainers.len() != 1 || !self.operators.routes.iter().all(host) {
            return Ok(0.0);
        }
        let mut executor = Executor::new(std::mem::take(&mut self.operators), &plan.schedule, Settings::default())?;
        let batches: Vec<u32> = (0..executor.num_batches()).collect();
        let training = executor.training_mut()?;
        let before = (training.parameters()?, training.optimizer_state()?);
        let mut seconds = Vec::new();
        for _ in 0..=EPOCHS {
            let report = executor.train(EPOCH, &batches, stop, &mut |_| Control::Continue)?;
            seconds.push(report.seconds);
        }
        let training = executor.training_mut()?;
        training.set_parameters(&before.0)?;
        training.set_optimizer_state(&before.1)?;
        self.operators = executor.into_operators()?;
        Ok((median(&seconds[1..]) - predicted).max(0.0))
    }
}
