//! The training loop: epochs, evaluation, early stopping, restoring the best model.

use std::time::Instant;

use anyhow::Result;
use morphgl_execute::{CountersByOperator, EpochReport, EpochRow, Event, Stop, TrainingState, add_counters};
use morphgl_model_core::{Confusion, LrScheduleKind, ModelSpec, Plateau};
use morphgl_registry::NamedTensor;
use serde::{Deserialize, Serialize};

use crate::median;
use crate::position::Position;
use crate::stopping::{EarlyStopping, TrainOptions};
use crate::task::Split;
use crate::watcher::Watcher;
use crate::{Evaluated, Evaluation, Executor, evaluate};

/// Classes up to which the confusion matrix of the best model is kept.
const MOST_CLASSES: usize = 256;

/// The best model so far, by the validation score of [`TrainOptions::score`], then validation loss.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// Its epoch.
    pub epoch: u32,
    /// Its validation score.
    pub valid: Evaluated,
    /// Its test score, where the dataset has test nodes.
    pub test: Option<Evaluated>,
    /// How the classes of the test nodes are predicted, of the validation nodes without; `None` of other tasks and of sampled evaluation,
    /// and of more than 256 classes.
    pub confusion: Option<Confusion>,
    /// Its parameters.
    pub parameters: Vec<NamedTensor>,
}

/// Why training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// All epochs are done.
    #[default]
    Epochs,
    /// Validation has not improved for the patience of early stopping.
    Patience,
    /// A stop was requested.
    Interrupted,
    /// The end after an epoch was requested.
    Requested,
}

/// The result of training.
#[derive(Debug, Clone, Default)]
pub struct TrainReport {
    /// The epochs.
    pub epochs: Vec<EpochRow>,
    /// The best model; `None` when nothing was evaluated.
    pub best: Option<Best>,
    /// Test score of the final model: the best one, or the last one without validation nodes.
    pub test: Option<Evaluated>,
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

/// How far training is.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// The next epoch, or the one under way.
    pub epoch: u32,
    /// Predicted seconds of the current epoch, by the plan it began with.
    pub predicted_seconds: f64,
    /// How often the rest of the current epoch was planned again.
    pub replanned: u32,
    /// Decisions of the learning rate's schedule by the validation score.
    pub plateau: Plateau,
    /// The report of the epochs done.
    pub report: TrainReport,
}

/// Writer of checkpoints. One that cannot be written does not stop training; the writer reports it.
pub trait Checkpointer {
    /// Whether a checkpoint is due: asked after every trained mini-batch, `within` an epoch, and after every epoch.
    fn is_due(&mut self, within: bool) -> bool;

    /// Keeps a checkpoint: where it is due, where training is interrupted, and at the end.
    fn keep(&mut self, progress: &Progress, position: &Position, training: &TrainingState);
}

/// Writer of no checkpoint.
struct NoCheckpoints;

impl Checkpointer for NoCheckpoints {
    fn is_due(&mut self, _within: bool) -> bool {
        false
    }

    fn keep(&mut self, _: &Progress, _: &Position, _: &TrainingState) {}
}

/// An epoch's events, and the checkpoints within it.
struct EpochWatcher<'a> {
    progress: &'a mut Progress,
    checkpointer: &'a mut dyn Checkpointer,
    observe: &'a mut dyn FnMut(&Event<'_>),
}

impl Watcher for EpochWatcher<'_> {
    fn observe(&mut self, event: &Event<'_>) {
        self.progress.replanned += u32::from(matches!(event, Event::Replanned(_)));
        (self.observe)(event);
    }

    fn is_due(&mut self) -> bool {
        self.checkpointer.is_due(true)
    }

    fn keep(&mut self, position: &Position, training: &TrainingState) {
        self.checkpointer.keep(self.progress, position, training);
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
        self.train_from(Progress::default(), &mut NoCheckpoints, stop, observe)
    }

    /// Continues training, by an executor that was restored to the position kept with `progress`, and keeps checkpoints. The
    /// result is that of training without interruption.
    ///
    /// # Errors
    ///
    /// As [`Trainer::train`].
    pub fn train_from(
        &mut self,
        mut progress: Progress,
        checkpointer: &mut dyn Checkpointer,
        stop: &Stop,
        observe: &mut dyn FnMut(&Event<'_>),
    ) -> Result<TrainReport> {
        let best = progress.report.best.as_ref().map(|best| (best.epoch, best.valid));
        let mut stopping = EarlyStopping::new(&self.options, best);
        if progress.report.stop_reason == StopReason::Interrupted {
            progress.report.stop_reason = StopReason::Epochs;
        }
        while progress.epoch < self.options.epochs && progress.report.stop_reason == StopReason::Epochs {
            self.epoch(&mut progress, &mut stopping, checkpointer, stop, observe)?;
        }
        let interrupted = progress.report.stop_reason == StopReason::Interrupted;
        let dataset = &self.executor.dataset;
        let has_test = Split::Test.is_known(dataset, self.model());
        if let Some(best) = &progress.report.best {
            progress.report.test = best.test;
        } else if has_test && self.options.evaluation != Evaluation::None && !interrupted {
            observe(&Event::Evaluating);
            progress.report.test = self.evaluate()?.test;
        }
        if !interrupted {
            self.keep(&progress, checkpointer)?;
        }
        if let Some(best) = &progress.report.best {
            self.executor.training_mut()?.set_parameters(&best.parameters)?;
        }
        Ok(progress.report)
    }

    /// Keeps a checkpoint between two calls of the executor.
    pub(crate) fn keep(&mut self, progress: &Progress, checkpointer: &mut dyn Checkpointer) -> Result<()> {
        let training = TrainingState::of(self.executor.training_mut()?)?;
        checkpointer.keep(progress, &self.executor.position(), &training);
        Ok(())
    }

    /// Trains and evaluates one epoch, or what is left of it.
    fn epoch(
        &mut self,
        progress: &mut Progress,
        stopping: &mut EarlyStopping,
        checkpointer: &mut dyn Checkpointer,
        stop: &Stop,
        observe: &mut dyn FnMut(&Event<'_>),
    ) -> Result<()> {
        let begins = !self.executor.is_within();
        let epoch = progress.epoch;
        let plan = self.executor.plan_epoch()?.clone();
        if let Some(changed) = self.executor.take_changed() {
            observe(&Event::Replanned(&changed));
        }
        observe(&Event::Begins(&plan));
        if begins {
            (progress.predicted_seconds, progress.replanned) = (self.executor.predicted_seconds(epoch), 0);
        }
        let done = {
            let mut watcher = EpochWatcher { progress, checkpointer, observe };
            self.executor.watched_epoch(epoch, stop, &mut watcher)?
        };
        if done.stopped {
            progress.report.stop_reason = StopReason::Interrupted;
            // A stop does not wait for a pass over the whole graph. The row of a part of an epoch is not part of the progress.
            self.keep(progress, checkpointer)?;
            if done.batches > 0 {
                let row = row(progress, done, 0.0, None);
                observe(&Event::Epoch(&row));
                progress.report.epochs.push(row);
            }
            return Ok(());
        }
        let start = Instant::now();
        let last = epoch + 1 == self.options.epochs;
        let due = last || (epoch + 1).is_multiple_of(self.options.evaluate_every.max(1));
        let dataset = &self.executor.dataset;
        let due = due && Split::Valid.is_known(dataset, self.model());
        let scores = if due && self.options.evaluation != Evaluation::None {
            observe(&Event::Evaluating);
            let scores = self.evaluate()?;
            self.executor.context.memory().release();
            Some(scores)
        } else {
            None
        };
        let valid = scores.as_ref().map(|scores| scores.valid);
        let row = row(progress, done, start.elapsed().as_secs_f64(), valid);
        let evaluated = scores.is_some();
        if let Some(EpochScores { valid, test, confusion }) = scores
            && stopping.is_best(epoch, &valid)
        {
            let parameters = self.executor.training_mut()?.parameters()?;
            progress.report.best = Some(Best { epoch, valid, test, confusion, parameters });
        }
        observe(&Event::Epoch(&row));
        progress.report.epochs.push(row);
        progress.epoch += 1;
        if let Some(valid) = valid {
            self.follow_score(progress, &valid)?;
        }
        if evaluated && stopping.is_due(epoch) {
            progress.report.stop_reason = StopReason::Patience;
        }
        if stop.is_requested_after_epoch() && progress.report.stop_reason == StopReason::Epochs && !last {
            progress.report.stop_reason = StopReason::Requested;
        }
        let is_last = last || progress.report.stop_reason != StopReason::Epochs;
        if !is_last && checkpointer.is_due(false) {
            self.keep(progress, checkpointer)?;
        }
        Ok(())
    }

    /// Reduces the learning rate where its schedule asks for it after the epochs done, whose validation score this is.
    fn follow_score(&mut self, progress: &mut Progress, valid: &Evaluated) -> Result<()> {
        let (schedule, kind) = (self.executor.config.spec.optimizer.schedule, self.options.score);
        let (epochs, score) = (progress.epoch, valid.score(kind));
        if schedule.kind == LrScheduleKind::Plateau
            && epochs > schedule.warmup
            && progress.plateau.reduces(epochs, score, kind.highest_is_best(), schedule.patience)
        {
            self.executor.reduce_learning_rate()?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<EpochScores> {
        let dataset = std::sync::Arc::clone(&self.executor.dataset);
        let (scores, confusion) = match self.options.evaluation {
            Evaluation::Sampled if Evaluation::Sampled.keeps_outputs(self.model(), &dataset) => {
                let TrainOptions { score, evaluation_workers, .. } = self.options;
                self.executor.sampled_outputs(score, evaluation_workers)?
            }
            Evaluation::Sampled => {
                let sets: [&[u32]; 2] = [&dataset.splits.valid, &dataset.splits.test];
                let scores = self.executor.sampled(&sets, self.options.evaluation_workers)?;
                (scores.into_iter().map(Evaluated::from).collect::<Vec<_>>(), None)
            }
            _ => {
                let model = self.executor.config.spec.model.clone();
                let (group, score) = (self.executor.group.clone(), self.options.score);
                self.executor
                    .with_all_threads(|training| evaluate::full(training, &dataset, &model, group.as_deref(), score))?
            }
        };
        let test = Split::Test.is_known(&dataset, self.model()).then_some(scores[1]);
        let confusion = confusion.filter(|confusion| confusion.rows().len() <= MOST_CLASSES);
        Ok(EpochScores { valid: scores[0], test, confusion })
    }

    fn model(&self) -> &ModelSpec {
        &self.executor.config.spec.model
    }
}

/// What an evaluation of the model of an epoch says.
struct EpochScores {
    valid: Evaluated,
    /// `None` without test nodes that have a label, or test pairs.
    test: Option<Evaluated>,
    confusion: Option<Confusion>,
}

/// The row of the epoch under way, or done.
fn row(progress: &Progress, done: EpochReport, evaluation_seconds: f64, valid: Option<Evaluated>) -> EpochRow {
    EpochRow {
        epoch: progress.epoch,
        seconds: done.seconds,
        evaluation_seconds,
        loss: done.score.loss(),
        train_accuracy: done.score.accuracy(),
        valid_loss: valid.map(|valid| valid.sums.loss()),
        valid_accuracy: valid.map(|valid| valid.sums.accuracy()),
        valid_score: valid.and_then(|valid| valid.value),
        predicted_seconds: progress.predicted_seconds,
        replanned: progress.replanned,
        report: done,
    }
}
