//! Groups: trainers that take every optimizer step together, each with a plan of its own, and the links that they share.

mod fluid;
mod knapsack;
mod search;
mod simulate;

use serde::{Deserialize, Serialize};

use crate::numbers::{check_name, is_amount, wrong};
use crate::problem::alike;
use crate::{Invalid, Limits, Plan, Problem};

pub use search::{group, group_of};
pub use simulate::GroupSimulation;

/// Maximum number of trainers of a group.
const MAX_TRAINERS: usize = 64;

/// A trainer that could share every step: the problem of its own routes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupTrainer {
    /// Its routes, to one training operator, with the durations of whole mini-batches. A resource with cores stands for the
    /// host's cores, which the trainers divide; all other resources are its own.
    pub whole: Problem,
    /// The same routes with the durations of a part of each mini-batch ([`GroupProblem::part`]).
    pub part: Problem,
}

/// A resource of a trainer that is connected by a shared link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkUser {
    /// The trainer, by its index.
    pub trainer: usize,
    /// Its resource: whatever phase holds it uses the link.
    pub resource: String,
    /// The part of the link's bandwidth that the phase takes while nobody else uses the link, from 0 to 1.
    pub fraction: f64,
}

/// A link that several trainers share: a PCIe switch, or the bandwidth of the host's memory.
///
/// While its users together want more than all of its bandwidth, each is slowed down by the same factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedLink {
    /// Its name.
    pub name: String,
    /// What it connects.
    pub users: Vec<LinkUser>,
}

/// Trainers that could share every step.
///
/// Each mini-batch is divided among them by seeds; every phase of a trainer takes seconds that are linear in its share. A step
/// ends when all trainers have trained their shares and added up the gradients. Meanwhile the device of one that waits is idle,
/// but for one that queues work ([`Resource::queued`](crate::Resource::queued)), which goes on with the phases of later mini-batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupProblem {
    /// The trainers.
    pub trainers: Vec<GroupTrainer>,
    /// The share of a mini-batch that the trainers' `part` was measured with, above 0 and below 1.
    pub part: f64,
    /// Links that trainers share.
    pub links: Vec<SharedLink>,
    /// Seconds of the all-reduce of gradients, after each trainer has trained its share.
    pub all_reduce: f64,
    /// Whether each trainer is planned with one of its routes.
    #[serde(default)]
    pub single_routes: bool,
}

/// A trainer's part in a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainerPlan {
    /// The trainer, by its index in the problem.
    pub trainer: usize,
    /// Its share of each mini-batch.
    pub share: f64,
    /// Cores of the host that its plan is for; 0 where no route of it uses them.
    pub cores: usize,
    /// Its own plan, with the durations of its share; predicted as if it waited for others only
    /// [after its steps](crate::Schedule::after_step).
    pub plan: Plan,
}

/// A plan for each trainer of a group, and the epoch they are predicted to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// The trainers with a share, in the order of the problem.
    pub trainers: Vec<TrainerPlan>,
    /// Seconds per epoch.
    pub epoch_seconds: f64,
    /// Lower bound of the seconds per epoch, by [`GroupProblem::bound`].
    pub bound_seconds: f64,
}

impl GroupPlan {
    /// Predicted seconds as a multiple of the bound, from 1; 1 when both are 0.
    pub fn ratio(&self) -> f64 {
        if self.bound_seconds > 0.0 { self.epoch_seconds / self.bound_seconds } else { 1.0 }
    }
}

impl GroupProblem {
    /// Lower bound of the seconds per epoch of any shares, one for all mini-batches, or of one trainer alone.
    ///
    /// The larger of two. The first is the least seconds for which a linear program gives shares that make up whole mini-batches. For
    /// given seconds the program maximizes the sum of the shares of a choice of trainers, which branch and bound finds; a trainer's
    /// routes are divided fractionally, its resources are busy as in [`bound`](crate::bound()), and cores and links have no more work
    /// than they can do. The second gives every trainer whole cores, one share for all of its routes and steps in common, by a knapsack
    /// of the cores in which loads on links cost their dual values. Durations are the minimum over all counts of workers and threads.
    ///
    /// # Errors
    ///
    /// As [`group`].
    ///
    /// # Complexity
    ///
    /// At most 200 choices of trainers, for each of which up to 30 linear programs of O(trainers · routes) rows and columns are solved;
    /// and at most 49 intervals of step times, each with some ten knapsacks of O(trainers · cores²).
    pub fn bound(&self) -> Result<f64, Invalid> {
        self.check()?;
        Ok(fluid::bound(self).seconds)
    }

    /// Simulates an epoch of these trainers: each follows the order of its own schedule, slowed down by what shares its links and
    /// cores, and waits for the others at the end of every step.
    ///
    /// # Panics
    ///
    /// When the schedules have different numbers of mini-batches.
    ///
    /// # Complexity
    ///
    /// O(mini-batches · (trainers + workers)) events, each of O(trainers + workers).
    pub fn simulate(&self, trainers: &[TrainerPlan]) -> GroupSimulation {
        simulate::run(self, trainers)
    }

    /// Mini-batches of the epoch.
    pub fn num_batches(&self) -> usize {
        self.trainers.first().map_or(0, |trainer| trainer.whole.num_batches)
    }

    /// The host's cores, which the trainers divide; 0 where none uses them.
    pub fn cores(&self) -> usize {
        self.trainers.iter().map(|trainer| trainer.own_cores()).max().unwrap_or(0)
    }

    /// The problem of a trainer with the durations of a share, on so many cores.
    pub(crate) fn of_share(&self, trainer: usize, share: f64, cores: usize) -> Problem {
        let GroupTrainer { whole, part } = &self.trainers[trainer];
        whole.of_share(part, self.part, share).with_cores(cores)
    }

    /// The same in a group, with so many seconds from the end of a step to the next one.
    pub(crate) fn of_step(&self, trainer: usize, share: f64, cores: usize, after_step: f64) -> Problem {
        let problem = self.of_share(trainer, share, cores);
        let limits = Limits { after_step, ..problem.limits };
        problem.with_limits(limits)
    }

    /// For each trainer the first one that is like it but for the names of resources.
    pub(crate) fn kinds(&self) -> Vec<usize> {
        let like = |a: usize, b: usize| {
            let [a, b] = [a, b].map(|i| &self.trainers[i]);
            alike(&a.whole, &b.whole) && alike(&a.part, &b.part)
        };
        (0..self.trainers.len()).map(|t| (0..t).find(|&other| like(other, t)).unwrap_or(t)).collect()
    }

    /// The part of each link's bandwidth that a phase of a trainer takes which holds these resources.
    pub(crate) fn fractions(&self, trainer: usize, held: &[String]) -> Vec<f64> {
        let of = |link: &SharedLink| {
            let users = link.users.iter().filter(|user| user.trainer == trainer && held.contains(&user.resource));
            users.map(|user| user.fraction).fold(0.0, f64::max)
        };
        self.links.iter().map(of).collect()
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let error = |what: String| wrong(&"a group", what);
        if self.trainers.is_empty() || self.trainers.len() > MAX_TRAINERS {
            return error(format!("{} trainers; give 1 to {MAX_TRAINERS}", self.trainers.len()));
        }
        if !(self.part > 0.0 && self.part < 1.0) {
            return error(format!("durations of a share of {}; give one above 0 and below 1", self.part));
        }
        if !is_amount(self.all_reduce) {
            return wrong(&"the all-reduce", format!("{} s are no finite number of at least 0", self.all_reduce));
        }
        for (i, GroupTrainer { whole, part }) in self.trainers.iter().enumerate() {
            if whole.num_batches != self.num_batches() {
                return error(format!(
                    "trainer {i} has {} mini-batches, trainer 0 has {}",
                    whole.num_batches,
                    self.num_batches()
                ));
            }
            let training = &whole.routes[0].keys.training;
            if whole.routes.iter().any(|route| route.keys.training != *training) {
                return error(format!("trainer {i} has several training operators; make each a trainer"));
            }
            let lacks = whole.routes.iter().find(|r| part.route_like(r).is_none());
            if let Some(route) = lacks {
                return error(format!("trainer {i}: {}: shares of this route were not measured", route.keys));
            }
        }
        for SharedLink { name, users } in &self.links {
            check_name(name)?;
            for LinkUser { trainer, resource, fraction } in users {
                let known =
                    self.trainers.get(*trainer).is_some_and(|t| t.whole.resources.iter().any(|r| r.name == *resource));
                if !known {
                    check_name(resource)?;
                    return error(format!(
                        "link {name} connects {resource} of trainer {trainer}, which does not exist"
                    ));
                }
                if !(0.0..=1.0).contains(fraction) {
                    return error(format!("{resource} takes {fraction} of link {name}; fractions are from 0 to 1"));
                }
            }
        }
        Ok(())
    }
}

impl GroupTrainer {
    /// Cores of its resource with cores; 0 where it has none.
    pub(crate) fn own_cores(&self) -> usize {
        self.whole.resources.iter().find_map(|r| r.cores).unwrap_or(0)
    }
}
