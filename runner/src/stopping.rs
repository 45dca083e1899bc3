//! Early stopping, and the length of a run without `--epochs`.

use morphgl_registry::Score;
use serde::{Deserialize, Serialize};

use crate::Evaluation;

/// How long to train, and when to evaluate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainOptions {
    /// Maximum number of epochs.
    pub epochs: u32,
    /// Epochs without a better validation accuracy after which training stops, checked at evaluations;
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
        Self { epochs, patience: None, evaluation: Evaluation::Full, evaluate_every: 1, evaluation_workers: None }
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
    patience: Option<u32>,
    best: Option<(u32, Score)>,
}

impl EarlyStopping {
    /// Stops `patience` epochs after the best one; `None` never stops. `best` is the best one so far.
    pub(crate) fn new(patience: Option<u32>, best: Option<(u32, Score)>) -> Self {
        Self { patience, best }
    }

    /// Records an epoch's validation score, and returns whether it is the best so far by accuracy, then by loss.
    pub(crate) fn is_best(&mut self, epoch: u32, valid: &Score) -> bool {
        let key = |s: &Score| (s.accuracy(), -s.loss());
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
