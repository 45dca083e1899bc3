//! The training loop: epochs, evaluation, early stopping, restoring the best model.

use std::time::Instant;

use anyhow::Result;
use morphgl_execute::{CountersByOperator, EpochRow, Event, Stop, add_counters};
use morphgl_registry::{NamedTensor, Score};
use serde::{Deserialize, Serialize};

use crate::stopping::{EarlyStopping, TrainOptions};
use crate::{Evaluation, Executor, evaluate};

/// The best model so far, by validation accuracy, then validation loss.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// Its epoch.
    pub epoch: u32,
    /// Its validation score.
    pub valid: Score,
    /// Its test score, where the dataset has test nodes.
    pub test: Option<Score>,
    /// Its parameters.
    pub parameters: Vec<NamedTensor>,
}

/// Why training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// All epochs are done.
    Epochs,
    /// Validation has not improved for the patience of early stopping.
    Patience,
    /// A stop was requested.
    Interrupted,
}

/// The result of training.
#[derive(Debug, Clone)]
pub struct TrainReport {
    /// The epochs.
    pub epochs: Vec<EpochRow>,
    /// The best model; `None` when nothing was evaluated.
    pub best: Option<Best>,
    /// Test score of the final model: the best one, or the last one without validation nodes.
    pub test: Option<Score>,
    /// Why training ended.
    pub stop_reason: StopReason,
}

impl TrainReport {
    /// Counters of the operators, summed over all epochs.
    pub fn counters(&self) -> CountersByOperator {
        let mut sums = CountersByOperator::new();
        self.epochs.iter().for_each(|e| add_counters(&mut sums, e.report.counters.clone()));
        sums
    }

    /// Median training seconds of the completed epochs, `None` without one.
    pub fn median_epoch_seconds(&self) -> Option<f64> {
        let seconds: Vec<f64> = self.epochs.iter().filter(|e| !e.report.stopped).map(|e| e.seconds).collect();
        (!seconds.is_empty()).then(|| median(&seconds))
    }
}

/// The middle value, or the mean of the middle two; NaN of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len().wrapping_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(low), Some(high)) => (low + high) / 2.0,
        _ => f64::NAN,
    }
}

/// Runs the training loop on an executor.
#[derive(Debug)]
pub struct Trainer {
    /// The executor.
    pub executor: Executor,
    /// Length of training, and evaluation.
    pub options: TrainOptions,
}

impl Trainer {
    /// Trains; the executor then has the best model, or the last one without evaluations.
    ///
    /// # Errors
    ///
    /// A failing operator, with its key and mini-batch.
    pub fn train(&mut self, stop: &Stop, observe: &mut dyn FnMut(&Event<'_>)) -> Result<TrainReport> {
        let mut report = TrainReport { epochs: Vec::new(), best: None, test: None, stop_reason: StopReason::Epochs };
        let mut stopping = EarlyStopping::new(self.options.patience);
        for epoch in 0..self.options.epochs {
            let mut replanned = 0;
            let plan = self.executor.plan_epoch()?;
            let predicted = plan.prediction.epoch_seconds;
            observe(&Event::Begins(plan));
            let done = self.executor.epoch(epoch, stop, &mut |event| {
                replanned += u32::from(matches!(event, Event::Replanned(_)));
                observe(event);
            })?;
            if done.stopped && done.batches == 0 {
                report.stop_reason = StopReason::Interrupted;
                break;
            }
            let start = Instant::now();
            let last = epoch + 1 == self.options.epochs;
            let due = last || (epoch + 1).is_multiple_of(self.options.evaluate_every.max(1));
            // A stop does not wait for a pass over the whole graph.
            let due = due && !done.stopped && !self.executor.dataset.splits.valid.is_empty();
            let scores = if due && self.options.evaluation != Evaluation::None {
                observe(&Event::Evaluating);
                let scores = self.evaluate()?;
                crate::memory::release();
                Some(scores)
            } else {
                None
            };
            let row = EpochRow {
                epoch,
                seconds: done.seconds,
                evaluation_seconds: start.elapsed().as_secs_f64(),
                loss: done.score.loss(),
                train_accuracy: done.score.accuracy(),
                valid_loss: scores.map(|(valid, _)| valid.loss()),
                valid_accuracy: scores.map(|(valid, _)| valid.accuracy()),
                predicted_seconds: predicted,
                replanned,
                report: done,
            };
            if let Some((valid, test)) = scores
                && stopping.is_best(epoch, &valid)
            {
                let parameters = self.executor.training_mut()?.parameters()?;
                report.best = Some(Best { epoch, valid, test, parameters });
            }
            observe(&Event::Epoch(&row));
            let stopped = row.report.stopped;
            report.epochs.push(row);
            if stopped {
                report.stop_reason = StopReason::Interrupted;
                break;
            }
            if scores.is_some() && stopping.is_due(epoch) {
                report.stop_reason = StopReason::Patience;
                break;
            }
        }
        let has_test = !self.executor.dataset.splits.test.is_empty();
        if let Some(best) = &report.best {
            self.executor.training_mut()?.set_parameters(&best.parameters)?;
            report.test = best.test;
        } else if has_test
            && self.options.evaluation != Evaluation::None
            && report.stop_reason != StopReason::Interrupted
        {
            observe(&Event::Evaluating);
            report.test = self.evaluate()?.1;
        }
        Ok(report)
    }

    /// Scores of the validation nodes and of the test nodes, `None` without test nodes.
    fn evaluate(&mut self) -> Result<(Score, Option<Score>)> {
        let dataset = std::sync::Arc::clone(&self.executor.dataset);
        let sets: [&[u32]; 2] = [&dataset.splits.valid, &dataset.splits.test];
        let scores = match self.options.evaluation {
            Evaluation::Sampled => self.executor.sampled(&sets, self.options.evaluation_workers)?,
            _ => {
                let num_classes = self.executor.config.spec.model.num_classes;
                self.executor.with_all_threads(|training| evaluate::full(training, &dataset, num_classes, &sets))?
            }
        };
        Ok((scores[0], (!sets[1].is_empty()).then_some(scores[1])))
    }
}
