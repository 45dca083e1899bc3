//! Early stopping, and the length of a run without `--epochs`.

use morphgl_model_core::ScoreKind;
use serde::{Deserialize, Serialize};

use crate::{Evaluated, Evaluation};

/// How long to train, and when to evaluate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainOptions {
    /// Maximum number of epochs.
    pub epochs: u32,
    /// What the best model and early stopping go by.
    #[serde(default, skip_serializing_if = "is_default")]
    pub score: ScoreKind,
    /// Epochs without a better validation score after which training stops, checked at evaluations;
    /// `None` never stops early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u32>,
    /// How to evaluate.
    pub evaluation: Evaluation,
    /// Epochs between evaluations.
    pub evaluate_every: u32,
    /// Maximum number of batching workers in sampled evaluation, `None` for the plan's; with 0 the scoring thread batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation_workers: Option<usize>,
}

impl TrainOptions {
    /// A fixed number of epochs, each evaluated with all neighbours.
    pub fn epochs(epochs: u32) -> Self {
        let score = ScoreKind::default();
        Self {
            epochs,
            score,
            patience: None,
            evaluation: Evaluation::Full,
            evaluate_every: 1,
            evaluation_workers: None,
        }
    }

    /// Training until validation stops improving, with epochs of `steps_per_epoch` optimizer steps: [`Bound::PATIENCE`],
    /// [`Bound::MOST`], [`Bound::EVALUATION`]; [`Bound::UNVALIDATED`] without validation.
    pub fn until_best(steps_per_epoch: usize, evaluation: Evaluation, validated: bool) -> Self {
        let options = |most: Bound| Self { evaluation, ..Self::epochs(most.in_epochs(steps_per_epoch)) };
        if !validated || evaluation == Evaluation::None {
            return options(Bound::UNVALIDATED);
        }
        Self {
            patience: Some(Bound::PATIENCE.in_epochs(steps_per_epoch)),
            evaluate_every: Bound::EVALUATION.in_epochs(steps_per_epoch),
            ..options(Bound::MOST)
        }
    }

    /// Epochs that are run at least, unless the run is interrupted.
    pub(crate) fn least_epochs(&self) -> u32 {
        self.patience.map_or(self.epochs, |patience| patience.min(self.epochs))
    }
}

fn is_default(score: &ScoreKind) -> bool {
    *score == ScoreKind::default()
}

/// A number of optimizer steps, rounded up to whole epochs, and a minimum number of epochs.
///
/// The unit is steps because an epoch of a small graph has few: five epochs of two mini-batches are ten steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Optimizer steps.
    pub steps: u32,
    /// Minimum number of epochs.
    pub epochs: u32,
}

impl Bound {
    /// Patience of early stopping.
    pub const PATIENCE: Self = Self { steps: 100, epochs: 4 };
    /// The longest run with validation.
    pub const MOST: Self = Self { steps: 2000, epochs: 10 };
    /// The length of a run without validation.
    pub const UNVALIDATED: Self = Self { steps: 300, epochs: 5 };
    /// Interval between evaluations: on the smallest graphs, one takes as long as an epoch.
    pub const EVALUATION: Self = Self { steps: 5, epochs: 1 };

    /// The bound in epochs of `steps_per_epoch` steps.
    pub fn in_epochs(self, steps_per_epoch: usize) -> u32 {
        let steps_per_epoch = u32::try_from(steps_per_epoch).unwrap_or(u32::MAX).max(1);
        self.steps.div_ceil(steps_per_epoch).max(self.epochs)
    }
}

/// Early stopping: the best validation score so far, and its epoch.
#[derive(Debug)]
pub(crate) struct EarlyStopping {
    score: ScoreKind,
    patience: Option<u32>,
    best: Option<(u32, Evaluated)>,
}

impl EarlyStopping {
    /// Stops the patience of `options` after the best epoch by their score; without a patience never. `best` is the best one so far.
    pub(crate) fn new(options: &TrainOptions, best: Option<(u32, Evaluated)>) -> Self {
        Self { score: options.score, patience: options.patience, best }
    }

    /// Records an epoch's validation score, and returns whether it is the best so far by the score, then by loss. A score that is
    /// not defined is worse than any other.
    pub(crate) fn is_best(&mut self, epoch: u32, valid: &Evaluated) -> bool {
        let sign = if self.score.highest_is_best() { 1.0 } else { -1.0 };
        let value = |e: &Evaluated| Some(sign * e.score(self.score)).filter(|value| !value.is_nan());
        let key = |e: &Evaluated| (value(e).unwrap_or(f64::NEG_INFINITY), -e.sums.loss());
        let better = self.best.as_ref().is_none_or(|(_, best)| key(valid) > key(best));
        if better {
            self.best = Some((epoch, *valid));
        }
        better
    }

    /// Whether training stops after this epoch.
    pub(crate) fn is_due(&self, epoch: u32) -> bool {
        let since_best = self.best.as_ref().map_or(0, |(best, _)| epoch - best);
        self.patience.is_some_and(|patience| since_best >= patience.max(1))
    }
}

#[cfg(test)]
mod tests;
