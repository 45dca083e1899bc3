//! Length and evaluation of a run, by the options and by the run whose configuration it takes.

use morphgl_graph_store::Dataset;
use morphgl_model_core::{ModelSpec, ScoreKind};

use crate::session::Session;
use crate::{Evaluation, TrainOptions};

impl Session {
    /// The evaluation that is asked for. All neighbours in --config are what there was memory for.
    pub(super) fn evaluation(&self, dataset: &Dataset) -> Option<Evaluation> {
        let of_file = self.like.as_ref().map(|c| c.training.evaluation);
        let of_batch = || self.batch().of(dataset).evaluation();
        self.config.training.evaluation.or(of_file.filter(|e| *e != Evaluation::Full)).or_else(of_batch)
    }

    /// The length of training on epochs of `steps_per_epoch` steps, and when to evaluate.
    pub(super) fn options(
        &self,
        steps_per_epoch: usize,
        evaluation: Evaluation,
        (validated, model, dataset): (bool, &ModelSpec, &Dataset),
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
        // Sampled evaluation mostly keeps sums alone.
        let usual = match (ScoreKind::usual(model.task), evaluation) {
            (usual, Evaluation::Sampled) if !usual.is_of_sums() && !evaluation.keeps_outputs(model, dataset) => {
                ScoreKind::Loss
            }
            (usual, _) => usual,
        };
        options.score = self.config.training.score.unwrap_or(usual);
        options
    }
}
