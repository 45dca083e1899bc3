//! A group of trainers: shares of a mini-batch, and the prediction of an epoch.

use morphgl_registry::Phase;
use serde::{Deserialize, Serialize};

use crate::numbers::{is_amount, wrong};
use crate::{Hardware, Invalid, PerPhase, Plan, Resource};

/// Halvings of the interval in which the shortest step is looked for: below the rounding of the sums.
const HALVINGS: usize = 100;

/// Seconds of a phase: `fixed + whole · share`, and 0 for an empty share.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Linear {
    /// Seconds whatever the share.
    pub fixed: f64,
    /// Further seconds of a whole mini-batch.
    pub whole: f64,
}

impl Linear {
    /// Seconds of a share.
    pub fn at(self, share: f64) -> f64 {
        self.fixed + self.whole * share
    }

    fn scaled(self, factor: f64) -> Self {
        Self { fixed: self.fixed * factor, whole: self.whole * factor }
    }

    fn plus(self, other: Self) -> Self {
        Self { fixed: self.fixed + other.fixed, whole: self.whole + other.whole }
    }
}

/// One trainer of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Seconds a mini-batch of its phases, by its share: of batching, in the steady state of its pool of workers.
    pub phases: PerPhase<Linear>,
    /// Seconds in which one worker makes a mini-batch.
    pub latency: Linear,
    /// Resources of its phases.
    pub hardware: Hardware,
    /// Threads of its phases, where these run on cores: of batching, those of all workers.
    pub threads: PerPhase<usize>,
}

/// Trainers that could take each step together. Their durations are those beside one another: a link or cores that two of them
/// use at once are in the seconds of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupProblem {
    /// Mini-batches of the epoch.
    pub num_batches: usize,
    /// The trainers' resources.
    pub resources: Vec<Resource>,
    /// The trainers.
    pub members: Vec<Member>,
    /// Seconds of adding up the gradients of all, after each has trained its share.
    pub addition: f64,
}

/// Shares of a mini-batch, and the epoch they are predicted to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// The trainers' parts of each mini-batch, by member; they add up to 1. A trainer of no use has 0.
    pub shares: Vec<f64>,
    /// Seconds between two steps in the steady state.
    pub step_seconds: f64,
    /// Seconds an epoch.
    pub epoch_seconds: f64,
    /// Lower bound of the seconds an epoch of any division, even one that changes from step to step.
    pub bound_seconds: f64,
}

impl GroupPlan {
    /// Trainers with a share.
    pub fn num_trainers(&self) -> usize {
        self.shares.iter().filter(|&&share| share > 0.0).count()
    }

    /// Whether several trainers are predicted to be faster than the best plan of a single one.
    pub fn is_chosen_over(&self, single: &Plan) -> bool {
        self.num_trainers() > 1 && self.epoch_seconds < single.prediction.epoch_seconds
    }
}

/// The shares with the shortest predicted epoch: of all trainers that are worth their fixed costs, or of the best one alone.
///
/// Batching, transferring and training of a trainer overlap, so between two steps it needs as long as its longest phase, or as
/// the phases that hold one resource one after the other; phases on cores share these in proportion to their threads. The step
/// waits for all trainers, and then adds up the gradients. The epoch is the steps, and before them the slowest trainer's first
/// mini-batch. The simulator has the same seconds for one trainer whose phases have a resource each; where two phases share
/// one, it may take up to a quarter longer, as a transfer between them is waited for.
///
/// # Errors
///
/// No trainer, a number that is negative or not finite, or a resource that is not among the resources.
///
/// # Complexity
///
/// O(100 · trainers · (3 + resources)).
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
    /// Predicts an epoch with these shares, one a member, which add up to 1.
    ///
    /// # Panics
    ///
    /// When there are not as many shares as members.
    pub fn predicted(&self, shares: Vec<f64>) -> GroupPlan {
        assert_eq!(shares.len(), self.members.len(), "a share a trainer");
        let used = || self.members.iter().zip(&shares).filter(|(_, share)| **share > 0.0);
        let addition = if used().count() > 1 { self.addition } else { 0.0 };
        let step =
            used().map(|(member, &share)| self.lines(member, addition).map(|line| line.at(share)).fold(0.0, f64::max));
        let step_seconds = step.fold(0.0, f64::max);
        let first = used().map(|(member, &share)| {
            let (transferring, training) = (member.phases.transferring, member.phases.training);
            member.latency.at(share) + transferring.at(share) + training.at(share)
        });
        let first = (first.fold(0.0, f64::max) + addition).max(step_seconds);
        let bound = self.bound();
        let seconds = match self.num_batches {
            0 => 0.0,
            n => first + (n - 1) as f64 * step_seconds,
        };
        GroupPlan { shares, step_seconds, epoch_seconds: seconds, bound_seconds: bound }
    }

    /// Whole mini-batches in turn by each trainer, as fast as it can alone, without an addition.
    fn bound(&self) -> f64 {
        let whole = |member: &Member| self.lines(member, 0.0).map(|line| line.at(1.0)).fold(0.0, f64::max);
        let rate: f64 = self.members.iter().map(|member| 1.0 / whole(member)).sum();
        self.num_batches as f64 / rate
    }

    /// Seconds between two steps: none of these may be exceeded.
    fn lines<'a>(&'a self, member: &'a Member, addition: f64) -> impl Iterator<Item = Linear> + 'a {
        let phase = move |phase: Phase| {
            let added = if phase == Phase::Training { addition } else { 0.0 };
            Linear { fixed: member.phases[phase].fixed + added, ..member.phases[phase] }
        };
        let of_resource = move |resource: &Resource| {
            let held = Phase::ALL.into_iter().filter(|&p| member.hardware[p].contains(&resource.name));
            held.fold(Linear::default(), |sum, p| {
                // The addition leaves cores to batching, and devices to their next phases.
                let factor = resource.cores.map_or(1.0, |cores| member.threads[p] as f64 / cores as f64);
                sum.plus(member.phases[p].scaled(factor))
            })
        };
        Phase::ALL.into_iter().map(phase).chain(self.resources.iter().map(of_resource))
    }

    /// The shares of the shortest step with an addition.
    fn best_shares(&self) -> Vec<f64> {
        let most = |seconds: f64, member: &Member| {
            let share = |line: Linear| match seconds - line.fixed {
                left if left <= 0.0 => 0.0,
                left if left >= line.whole => 1.0,
                left => left / line.whole,
            };
            self.lines(member, self.addition).map(share).fold(1.0, f64::min)
        };
        let shares = |seconds: f64| -> Vec<f64> { self.members.iter().map(|member| most(seconds, member)).collect() };
        let whole = |member: &Member| self.lines(member, self.addition).map(|line| line.at(1.0)).fold(0.0, f64::max);
        let (mut low, mut high) = (0.0, self.members.iter().map(whole).fold(f64::INFINITY, f64::min));
        // A phase of 0 seconds takes a whole mini-batch in any time above 0.
        high = high.next_up();
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if shares(middle).iter().sum::<f64>() >= 1.0 { high = middle } else { low = middle }
        }
        let shares = shares(high);
        let sum: f64 = shares.iter().sum();
        shares.iter().map(|share| share / sum).collect()
    }

    fn check(&self) -> Result<(), Invalid> {
        if self.members.is_empty() {
            return wrong(&"a group", "no trainer; give one at least".to_string());
        }
        if self.num_batches > u32::MAX as usize {
            return wrong(&"a group", "at most 2^32 - 1 mini-batches can be planned".to_string());
        }
        crate::problem::check_resources(&self.resources)?;
        if !is_amount(self.addition) {
            return wrong(&"the addition", format!("{} s are no finite number of at least 0", self.addition));
        }
        for (i, member) in self.members.iter().enumerate() {
            let what = format!("trainer {i}");
            let phases = Phase::ALL.map(|p| member.phases[p]);
            let numbers = phases.into_iter().chain([member.latency]).flat_map(|line| [line.fixed, line.whole]);
            if let Some(odd) = numbers.into_iter().find(|&x| !is_amount(x)) {
                return wrong(&what, format!("{odd} s are no finite number of at least 0"));
            }
            let mut names = Phase::ALL.into_iter().flat_map(|p| &member.hardware[p]);
            if let Some(name) = names.find(|n| self.resources.iter().all(|r| r.name != **n)) {
                return wrong(&what, format!("it holds {name}, which is not among the resources"));
            }
        }
        Ok(())
    }
}
