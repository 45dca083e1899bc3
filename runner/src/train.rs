//! The training loop: epochs, evaluation, early stopping, the best model kept.

use std::time::Instant;

use anyhow::Result;
use morphgl_execute::{CountersByOperator, EpochRow, Event, Stop, add_counters};
use morphgl_registry::{NamedTensor, Score};
use serde::{Deserialize, Serialize};

use crate::stopping::{EarlyStopping, TrainOptions};
use crate::{Evaluation, Executor, Scores, evaluate};

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
pub enum Why {
    /// All epochs are done.
    Epochs,
    /// Validation did not get better for long enough.
    Patience,
    /// The stop was requested.
    Interrupted,
}

/// What training came to.
#[derive(Debug, Clone)]
pub struct TrainReport {
    /// The epochs.
    pub epochs: Vec<EpochRow>,
    /// The best model; `None` when nothing was evaluated.
    pub best: Option<Best>,
    /// Test score of the model at the end: the best one, or without validation nodes the last one.
    pub test: Option<Score>,
    /// Why training ended.
    pub why: Why,
}

impl TrainReport {
    /// What operators counted over all epochs.
    pub fn counters(&self) -> CountersByOperator {
        let mut sums = CountersByOperator::new();
        self.epochs.iter().for_each(|e| add_counters(&mut sums, e.report.counters.clone()));
        sums
    }

    /// Median of the whole epochs' training seconds, `None` without one.
    pub fn median_epoch_seconds(&self) -> Option<f64> {
        let mut seconds: Vec<f64> = self.epochs.iter().filter(|e| !e.report.stopped).map(|e| e.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let (low, high) = (seconds.get(seconds.len().wrapping_sub(1) / 2)?, seconds.get(seconds.len() / 2)?);
        Some((low + high) / 2.0)
    }
}

/// Runs the training loop on an executor.
#[derive(Debug)]
pub struct Trainer {
    /// The executor.
    pub executor: Executor,
    /// How long, and when to evaluate.
    pub options: TrainOptions,
}

impl Trainer {
    /// Trains; at the end the executor's model is the best one, where any was evaluated.
    ///
    /// # Errors
    ///
    /// A failing operator, with its key and mini-batch.
    pub fn train(&mut self, stop: &Stop, observe: &mut dyn FnMut(&Event<'_>)) -> Result<TrainReport> {
        let mut report = TrainReport { epochs: Vec::new(), best: None, test: None, why: Why::Epochs };
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
                report.why = Why::Interrupted;
                break;
            }
            let start = Instant::now();
            let last = epoch + 1 == self.options.epochs;
            let due = last || (epoch + 1).is_multiple_of(self.options.evaluate_every.max(1));
            // Whoever asked to stop does not want to wait for a pass over the whole graph.
            let due = due && !done.stopped && !self.executor.dataset().splits.valid.is_empty();
            let scores = if due && self.options.evaluation != Evaluation::None {
                observe(&Event::Evaluating);
                let scores = self.evaluate()?;
                crate::memory::give_back();
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
                report.why = Why::Interrupted;
                break;
            }
            if scores.is_some() && stopping.is_due(epoch) {
                report.why = Why::Patience;
                break;
            }
        }
        let has_test = !self.executor.dataset().splits.test.is_empty();
        if let Some(best) = &report.best {
            self.executor.training_mut()?.set_parameters(&best.parameters)?;
            report.test = best.test;
        } else if has_test && self.options.evaluation != Evaluation::None && report.why != Why::Interrupted {
            observe(&Event::Evaluating);
            report.test = self.evaluate()?.1;
        }
        Ok(report)
    }

    /// Scores of validation and test nodes; the latter `None` where there are none.
    fn evaluate(&mut self) -> Result<(Score, Option<Score>)> {
        let dataset = std::sync::Arc::clone(self.executor.dataset());
        let sets: [&[u32]; 2] = [&dataset.splits.valid, &dataset.splits.test];
        let Scores(scores) = match self.options.evaluation {
            Evaluation::Sampled => self.executor.sampled(&sets, self.options.evaluation_workers)?,
            _ => {
                let num_classes = self.executor.config().spec.model.num_classes;
                self.executor.with_all_threads(|training| evaluate::full(training, &dataset, num_classes, &sets))?
            }
        };
        Ok((scores[0], (!sets[1].is_empty()).then_some(scores[1])))
    }
}
