//! A group of trainers: shares of a mini-batch, and the prediction of an epoch.

use serde::{Deserialize, Serialize};

use crate::numbers::{is_amount, wrong};
use crate::{Invalid, Problem, Schedule, assemble, simulate};

/// Halvings of the interval in which the shortest step is looked for: below the rounding of the sums.
const HALVINGS: usize = 100;

/// Seconds by a trainer's share of a mini-batch: `fixed + whole · share`, and 0 for an empty share.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Linear {
    /// Fixed seconds of any share that is not empty.
    pub fixed: f64,
    /// Further seconds of a whole mini-batch.
    pub whole: f64,
}

impl Linear {
    /// Seconds of a share.
    pub fn at(self, share: f64) -> f64 {
        self.fixed + self.whole * share
    }

    /// The line through the seconds of whole mini-batches and of a share below 1, neither falling nor below 0 anywhere.
    pub fn through(whole: f64, share: f64, seconds: f64) -> Self {
        let fixed = ((seconds - whole * share) / (1.0 - share)).clamp(0.0, whole);
        Self { fixed, whole: whole - fixed }
    }
}

/// One trainer of a group.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Seconds between two steps in the steady state of its own plan.
    pub step: Linear,
    /// Seconds until its first mini-batch is trained.
    pub first: Linear,
}

impl Member {
    /// A trainer with its schedule of whole mini-batches; `part` has the durations of `share` of a mini-batch.
    ///
    /// `None` where `part` lacks a route of the schedule.
    ///
    /// # Panics
    ///
    /// When the share is not between 0 and 1.
    ///
    /// # Complexity
    ///
    /// Four times that of [`simulate`].
    pub fn of(schedule: &Schedule, part: &Problem, share: f64) -> Option<Self> {
        assert!(share > 0.0 && share < 1.0, "a share is between 0 and 1, not {share}");
        let of_part = assemble::with_durations(schedule, part)?;
        let [(first, step), (part_first, part_step)] = [schedule, &of_part].map(first_and_step);
        Some(Self { step: Linear::through(step, share, part_step), first: Linear::through(first, share, part_first) })
    }
}

/// Seconds of a schedule's first mini-batch, and of each further one.
fn first_and_step(schedule: &Schedule) -> (f64, f64) {
    let seconds = |batches: usize| {
        let mut schedule = schedule.clone();
        // Where there are several routes, their mini-batches take turns.
        schedule.shares.iter_mut().for_each(|share| share.batches = share.batches.min(batches));
        simulate(&schedule).seconds
    };
    let (n, first) = (schedule.num_batches(), seconds(1));
    if n < 2 {
        return (first, first);
    }
    (first, (seconds(n) - first).max(0.0) / (n - 1) as f64)
}

/// Trainers that could share every step. Their durations include interference: what two of them lose on a link or on
/// cores that both use is in the seconds of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupProblem {
    /// Mini-batches of the epoch.
    pub num_batches: usize,
    /// The trainers.
    pub members: Vec<Member>,
    /// Seconds of the all-reduce of gradients, after each trainer has trained its share.
    pub all_reduce: f64,
}

/// Shares of a mini-batch, and the epoch they are predicted to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// The trainers' parts of each mini-batch, by member; they add up to 1. A trainer of no use has 0.
    pub shares: Vec<f64>,
    /// Seconds between two steps in the steady state.
    pub step_seconds: f64,
    /// Seconds per epoch.
    pub epoch_seconds: f64,
    /// Lower bound of the seconds per epoch of any division, even one that changes from step to step.
    pub bound_seconds: f64,
}

impl GroupPlan {
    /// Trainers with a share.
    pub fn num_trainers(&self) -> usize {
        self.shares.iter().filter(|&&share| share > 0.0).count()
    }
}

/// The shares with the shortest predicted epoch: of all trainers that are worth their fixed costs, or of the best one alone.
///
/// A step waits for all trainers, and then all-reduces the gradients. The epoch is the steps, and before them the
/// slowest trainer's first mini-batch.
///
/// # Errors
///
/// No trainer, or a number that is negative or not finite.
///
/// # Complexity
///
/// O(100 · trainers).
pub fn group(problem: &GroupProblem) -> Result<GroupPlan, Invalid> {
    problem.check()?;
    let alone = |member: usize| {
        let shares = (0..problem.members.len()).map(|m| if m == member { 1.0 } else { 0.0 }).collect();
        problem.predicted(shares)
    };
    let singles = (0..problem.members.len()).map(alone);
    let together = (problem.members.len() > 1).then(|| problem.predicted(problem.best_shares()));
    let fastest = |a: GroupPlan, b: GroupPlan| if b.epoch_seconds < a.epoch_seconds { b } else { a };
    Ok(singles.chain(together).reduce(fastest).expect("checked: there is a trainer"))
}

impl GroupProblem {
    /// Predicts an epoch with these shares, one per member, which add up to 1.
    ///
    /// # Panics
    ///
    /// When there are not as many shares as members.
    pub fn predicted(&self, shares: Vec<f64>) -> GroupPlan {
        assert_eq!(shares.len(), self.members.len(), "one share per trainer");
        let used = || self.members.iter().zip(&shares).filter(|(_, share)| **share > 0.0);
        let all_reduce = if used().count() > 1 { self.all_reduce } else { 0.0 };
        let slowest = |line: fn(&Member) -> Linear| {
            used().map(|(member, &share)| line(member).at(share)).fold(0.0, f64::max) + all_reduce
        };
        let step_seconds = slowest(|member| member.step);
        let first = slowest(|member| member.first).max(step_seconds);
        let seconds = match self.num_batches {
            0 => 0.0,
            n => first + (n - 1) as f64 * step_seconds,
        };
        GroupPlan { shares, step_seconds, epoch_seconds: seconds, bound_seconds: self.bound() }
    }

    /// The shares of the shortest step of all trainers that are of use.
    fn best_shares(&self) -> Vec<f64> {
        let share = |line: Linear, seconds: f64| match seconds - line.fixed {
            left if left <= 0.0 => 0.0,
            left if left >= line.whole => 1.0,
            left => left / line.whole,
        };
        let shares = |seconds: f64| -> Vec<f64> { self.members.iter().map(|m| share(m.step, seconds)).collect() };
        let (mut low, mut high) = (0.0, self.members.iter().map(|m| m.step.at(1.0)).fold(f64::INFINITY, f64::min));
        // A step of 0 seconds takes a whole mini-batch in any time above 0.
        high = high.next_up();
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if shares(middle).iter().sum::<f64>() >= 1.0 { high = middle } else { low = middle }
        }
        let shares = shares(high);
        let sum: f64 = shares.iter().sum();
        shares.iter().map(|share| share / sum).collect()
    }

    /// Whole mini-batches in turn by each trainer, as fast as it can alone, without an all-reduce.
    fn bound(&self) -> f64 {
        let rate: f64 = self.members.iter().map(|member| 1.0 / member.step.at(1.0)).sum();
        self.num_batches as f64 / rate
    }

    fn check(&self) -> Result<(), Invalid> {
        if self.members.is_empty() {
            return wrong(&"a group", "no trainer; give one at least".to_string());
        }
        if self.num_batches > u32::MAX as usize {
            return wrong(&"a group", "at most 2^32 - 1 mini-batches can be planned".to_string());
        }
        if !is_amount(self.all_reduce) {
            return wrong(&"the all-reduce", format!("{} s are no finite number of at least 0", self.all_reduce));
        }
        for (i, Member { step, first }) in self.members.iter().enumerate() {
            let numbers = [step.fixed, step.whole, first.fixed, first.whole];
            if let Some(odd) = numbers.into_iter().find(|&x| !is_amount(x)) {
                return wrong(&format!("trainer {i}"), format!("{odd} s are no finite number of at least 0"));
            }
        }
        Ok(())
    }
}
