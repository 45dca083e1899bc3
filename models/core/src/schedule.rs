//! Learning rate as a function of the optimizer's step.

use morphgl_registry::{Error, Result};
use serde::{Deserialize, Serialize};

/// How the learning rate falls after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LrScheduleKind {
    /// It stays.
    #[default]
    Constant,
    /// Half a cosine to the minimum at the last step: torch's `CosineAnnealingLR`, advanced every optimizer step.
    Cosine,
    /// Times gamma every `step_size` epochs: torch's `StepLR`, advanced every epoch.
    Step,
    /// Times gamma where the validation score has not improved: torch's `ReduceLROnPlateau`. The caller counts the reductions
    /// ([`Steps::reductions`]).
    Plateau,
}

impl LrScheduleKind {
    /// Its name in a spec.
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Cosine => "cosine",
            Self::Step => "step",
            Self::Plateau => "plateau",
        }
    }
}

/// Learning-rate schedule. A function of the step alone, and of the reductions of a plateau, so that the optimizer's saved state is all
/// that training continues from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LrSchedule {
    /// How it falls. Default constant.
    pub kind: LrScheduleKind,
    /// Lowest learning rate of `cosine` and `plateau`. Default 0.
    pub min: f64,
    /// Epochs between reductions of `step`. Default 1.
    pub step_size: u32,
    /// Factor of a reduction. Default 0.1.
    pub gamma: f64,
    /// Epochs without a better score before `plateau` reduces. Default 10.
    pub patience: u32,
    /// Epochs of linear warm-up, one increment per optimizer step, before the schedule begins. Default 0.
    pub warmup: u32,
    /// Optimizer steps per epoch. Default 1.
    pub steps_per_epoch: u64,
    /// Epochs of training, warm-up included, after which `cosine` is at its minimum. Default 1.
    pub epochs: u32,
}

impl Default for LrSchedule {
    fn default() -> Self {
        Self {
            kind: LrScheduleKind::Constant,
            min: 0.0,
            step_size: 1,
            gamma: 0.1,
            patience: 10,
            warmup: 0,
            steps_per_epoch: 1,
            epochs: 1,
        }
    }
}

/// Position of an optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Steps {
    /// Steps done.
    pub done: u64,
    /// Reductions by [`LrScheduleKind::Plateau`].
    pub reductions: u32,
}

impl LrSchedule {
    /// Whether the learning rate is ever another one than the optimizer's.
    pub fn varies(&self) -> bool {
        self.kind != LrScheduleKind::Constant || self.warmup > 0
    }

    /// Optimizer steps of the warm-up.
    pub fn warmup_steps(&self) -> u64 {
        u64::from(self.warmup) * self.steps_per_epoch
    }

    /// Optimizer steps from the end of the warm-up to that of training, at least 1.
    pub fn falling_steps(&self) -> u64 {
        (u64::from(self.epochs) * self.steps_per_epoch).saturating_sub(self.warmup_steps()).max(1)
    }

    /// Learning rate of the last of `steps`, counted from 1, where the optimizer's is `lr`.
    pub fn lr(&self, lr: f64, steps: Steps) -> f64 {
        let (done, warmup) = (steps.done.saturating_sub(1), self.warmup_steps());
        if done < warmup {
            return lr * ((done + 1) as f64 / warmup as f64);
        }
        let done = done - warmup;
        match self.kind {
            LrScheduleKind::Constant => lr,
            LrScheduleKind::Cosine => {
                let all = self.falling_steps();
                let angle = std::f64::consts::PI * done.min(all) as f64 / all as f64;
                self.min + (lr - self.min) * (1.0 + angle.cos()) / 2.0
            }
            LrScheduleKind::Step => {
                let reductions = done / self.steps_per_epoch.max(1) / u64::from(self.step_size.max(1));
                lr * self.gamma.powf(reductions as f64)
            }
            LrScheduleKind::Plateau => (lr * self.gamma.powf(f64::from(steps.reductions))).max(self.min),
        }
    }

    /// Checks every field, beside the optimizer's learning rate.
    ///
    /// # Errors
    ///
    /// An invalid field: the message names it and the cure.
    pub(crate) fn validate(&self, lr: f64) -> Result<()> {
        let wrong = |field: &str, what: String| Err(Error::setting(format!("optimizer.schedule.{field}"), what));
        if !(0.0..=lr).contains(&self.min) {
            return wrong("min", format!("{} is not between 0 and the learning rate {lr}", self.min));
        }
        if !(self.gamma > 0.0 && self.gamma < 1.0) {
            return wrong(
                "gamma",
                format!("{} does not reduce; give a number between 0 and 1 such as 0.1", self.gamma),
            );
        }
        if self.step_size == 0 {
            return wrong("step_size", "0 epochs between reductions; give at least 1".to_string());
        }
        if self.steps_per_epoch == 0 {
            return wrong("steps_per_epoch", "an epoch has at least 1 step".to_string());
        }
        if self.kind == LrScheduleKind::Cosine && self.warmup >= self.epochs {
            let what = format!("{} epochs of {} leave none to the cosine; give fewer", self.warmup, self.epochs);
            return wrong("warmup", what);
        }
        Ok(())
    }
}

/// The decisions of [`LrScheduleKind::Plateau`], as torch's `ReduceLROnPlateau` takes them with its defaults `threshold=1e-4,
/// threshold_mode="rel", cooldown=0`, counted in epochs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Plateau {
    /// Best score so far.
    pub best: Option<f64>,
    /// Epochs done when the score was last better, or the learning rate last reduced.
    pub since: u32,
}

impl Plateau {
    /// Relative improvement that counts.
    const THRESHOLD: f64 = 1e-4;

    /// Records the score after `epochs` epochs, and returns whether the learning rate is reduced: not better for more than `patience`
    /// epochs. A score that is NaN is not better.
    pub fn reduces(&mut self, epochs: u32, score: f64, highest_is_best: bool, patience: u32) -> bool {
        let better = match self.best {
            None => !score.is_nan(),
            Some(best) if highest_is_best => score > best * (1.0 + Self::THRESHOLD),
            Some(best) => score < best * (1.0 - Self::THRESHOLD),
        };
        if better {
            (self.best, self.since) = (Some(score), epochs);
            return false;
        }
        let reduces = epochs - self.since > patience;
        if reduces {
            self.since = epochs;
        }
        reduces
    }
}
