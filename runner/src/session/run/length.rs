//! Length and evaluation of a run, by the options and by the run whose configuration it takes.

use morphgl_model_core::{ScoreKind, Task};

use crate::session::Session;
use crate::{Evaluation, TrainOptions};

impl Session {
    /// The evaluation that is asked for. All neighbours in --config are what there was memory for.
    pub(super) fn evaluation(&self) -> Option<Evaluation> {
        let of_file = self.like.as_ref().map(|c| c.training.evaluation);
        self.config.training.evaluation.or(of_file.filter(|e| *e != Evaluation::Full)).or(self.batch().evaluation())
    }

    /// The length of training on epochs of `steps_per_epoch` steps, and when to evaluate.
    pub(super) fn options(
        &self,
        steps_per_epoch: usize,
        evaluation: Evaluation,
        (validated, task): (bool, Task),
    ) -> TrainOptions {
        if let Some(training) = self.like.as_ref().map(|configured| &configured.training) {
            let patience = training.patience.filter(|_| validated && self.config.training.epochs.is_none());
            let epochs = self.config.training.epochs.unwrap_or(training.epochs);
            return TrainOptions { epochs, patience, evaluation, evaluation_workers: None, ..training.clone() };
        }
        let mut options = match self.config.training.epochs {
            Some(epochs) => TrainOptions { evaluation, ..TrainOptions::epochs(epochs) },
            None => TrainOptions::until_best(steps_per_epoch, evaluation, validated),
        };
        if let Some(patience) = self.config.training.patience {
            options.evaluate_every = options.evaluate_every.min(patience.max(1));
            options.patience = Some(patience);
        }
        options.evaluate_every = self.config.training.evaluate_every.unwrap_or(options.evaluate_every);
        // Sampled evaluation keeps sums alone, but of links the embeddings of pairs' ends.
        let usual = match (ScoreKind::usual(task), evaluation) {
            (usual, Evaluation::Sampled) if !usual.is_of_sums() && task != Task::Link => ScoreKind::Loss,
            (usual, _) => usual,
        };
        options.score = self.config.training.score.unwrap_or(usual);
        options
    }
}
