//! What a new run does by its options and by --config: length, evaluation, and what is taken from that file.

use super::Args;
use crate::cli::run_dir::Configured;
use crate::cli::show::Show;
use crate::{Evaluation, TrainOptions};

impl Args {
    /// Reads --config, whose dataset, threads, initial parameters and sampler settings are used where none are given.
    pub(super) fn configure(&mut self, show: Show) -> anyhow::Result<()> {
        let Some(path) = &self.config else { return Ok(()) };
        let configured = Configured::read_file(path)?;
        let data = &mut self.planned.data;
        if data.dataset.is_none() && data.given.is_none() {
            data.dataset.clone_from(&configured.dataset);
            (data.mmap, data.no_verify) = (configured.mmap, configured.no_verify);
        }
        self.init = self.init.take().or_else(|| configured.init.clone());
        let threads = &mut self.planned.batch.threads;
        *threads = threads.or(configured.job.threads);
        let sampled_as = self.planned.batch.sample_as(&configured.job.sampler);
        sampled_as.iter().for_each(|how| show.say(how));
        self.configured = Some(Box::new(configured));
        Ok(())
    }

    /// The evaluation that is asked for. All neighbours in --config are what there was memory for.
    pub(super) fn evaluation(&self) -> Option<Evaluation> {
        let of_file = self.configured.as_ref().map(|c| c.training.evaluation);
        self.evaluation.or(of_file.filter(|e| *e != Evaluation::Full)).or(self.planned.batch.evaluation())
    }

    /// The length of training on epochs of `steps_per_epoch` steps, and when to evaluate.
    pub(super) fn options(&self, steps_per_epoch: usize, evaluation: Evaluation, validated: bool) -> TrainOptions {
        if let Some(training) = self.configured.as_ref().map(|configured| &configured.training) {
            let patience = training.patience.filter(|_| validated && self.epochs.is_none());
            let epochs = self.epochs.unwrap_or(training.epochs);
            return TrainOptions { epochs, patience, evaluation, evaluation_workers: None, ..training.clone() };
        }
        let mut options = match self.epochs {
            Some(epochs) => TrainOptions { evaluation, ..TrainOptions::epochs(epochs) },
            None => TrainOptions::until_best(steps_per_epoch, evaluation, validated),
        };
        if let Some(patience) = self.patience {
            options.evaluate_every = options.evaluate_every.min(patience.max(1));
            options.patience = Some(patience);
        }
        options.evaluate_every = self.evaluate_every.unwrap_or(options.evaluate_every);
        options
    }
}
