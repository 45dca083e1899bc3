//! Roles of devices: some sample, the others train (GNNLab, the survey §VI-B).

mod replay;
mod simulate;

use serde::{Deserialize, Serialize};

pub use replay::{RolesReplay, RolesSchedule, RolesStep, RolesWork};
pub use simulate::{RolesActivity, RolesTimeline};

use crate::numbers::{MAX_BUFFER, is_amount, within, wrong};
use crate::{Invalid, Linear, lp};

/// Maximum number of devices with roles.
const MAX_DEVICES: usize = 64;

/// A planning problem of identical devices, of which some sample and the others train.
///
/// Every mini-batch is one step of all trainer devices: it is divided by seeds into equal shares, one for each of them, and each
/// share is sampled on a sampler device. So gradients are those of a single trainer, whatever the number of devices in each role, unless
/// they may be stale: trainers then go on with the next shares during the all-reduce. (GNNLab's trainers take whole mini-batches, and add up gradients of several.)
///
/// One bounded global queue is between the roles: shares are sampled in the order of mini-batches and, within one, of trainers,
/// each by the sampler device that is free first. A trainer device gathers the features of its next shares while it trains.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RolesProblem {
    /// Mini-batches of the epoch.
    pub num_batches: usize,
    /// Number of devices, from 2.
    pub devices: usize,
    /// Sampling a share, on a sampler device.
    pub sampling: Linear,
    /// Moving a share to a trainer device, and gathering its features there.
    pub gathering: Linear,
    /// Moving and gathering on a device that changes its role: it holds the topology too, and so caches fewer feature rows.
    pub standby_gathering: Linear,
    /// Training on a share.
    pub training: Linear,
    /// Seconds of the all-reduce of gradients, after all trainers have trained their shares; 0 for one trainer.
    pub all_reduce: f64,
    /// Capacity of the global queue: mini-batches sampled or being sampled, and not yet being gathered by every trainer.
    pub queue: usize,
    /// Capacity of each trainer's buffer: shares gathered or being gathered, and not yet in training.
    pub ready: usize,
    /// Seconds in which a device changes its role.
    pub switching: f64,
    /// Maximum staleness of gradients, in steps ([`RolesSchedule::staleness`]); 0 trains synchronously.
    #[serde(default)]
    pub staleness: usize,
}

/// Mini-batches that the same trainer devices train.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The first mini-batch, by its position in the epoch. The segment ends where the next one begins.
    pub from: usize,
    /// Number of trainer devices, the first ones; the others sample.
    pub trainers: usize,
}

/// Roles of the devices in each part of an epoch, and the epoch they are predicted to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolesPlan {
    /// Roles by segment, the first from mini-batch 0 on. With more than one, some devices change their role.
    pub segments: Vec<Segment>,
    /// Seconds per epoch.
    pub epoch_seconds: f64,
    /// The best number of trainer devices without a change of roles.
    pub unswitched_trainers: usize,
    /// Seconds per epoch without a change of roles.
    pub unswitched_seconds: f64,
    /// Number of sampler devices by GNNLab's formula ([`RolesProblem::samplers_by_formula`]).
    pub samplers_by_formula: usize,
    /// Lower bound of the seconds per epoch by any roles, which may change between mini-batches at no cost.
    pub bound_seconds: f64,
}

/// The roles with the shortest predicted epoch.
///
/// Without a change of roles: every number of sampler devices, from that of GNNLab's formula outwards, but for those whose own
/// lower bound is not below the best so far; so the result is that of trying all.
/// With changes: two neighbouring numbers in turn, so often that sampling and training are balanced on average, and more
/// trainers for the last mini-batches, when everything is sampled. A change is planned only where it makes the predicted epoch
/// shorter, its own seconds included: GNNLab's rule of a positive profit, evaluated by the simulator.
///
/// # Errors
///
/// Fewer than 2 devices or too many, an empty buffer, or a number that is negative or not finite.
///
/// # Complexity
///
/// O(devices · log(mini-batches)) simulations.
pub fn roles(problem: &RolesProblem) -> Result<RolesPlan, Invalid> {
    problem.check()?;
    let samplers_by_formula = problem.samplers_by_formula();
    let constant = |trainers: usize| vec![Segment { from: 0, trainers }];
    let mut counts: Vec<usize> = (1..problem.devices).collect();
    counts.sort_by_key(|trainers| (problem.devices - trainers).abs_diff(samplers_by_formula));
    let mut search = Search { problem, best: (f64::INFINITY, Vec::new()) };
    for trainers in counts {
        if problem.bound_of(trainers) < search.best.0 {
            search.attempt(constant(trainers));
        }
    }
    let (unswitched_seconds, unswitched_trainers) = (search.best.0, search.best.1[0].trainers);
    for few in 1..problem.devices - 1 {
        search.turns(few);
    }
    search.tails();
    let (epoch_seconds, segments) = search.best;
    let bound_seconds = problem.bound();
    Ok(RolesPlan {
        segments,
        epoch_seconds,
        unswitched_trainers,
        unswitched_seconds,
        samplers_by_formula,
        bound_seconds,
    })
}

/// The best roles found so far.
struct Search<'a> {
    problem: &'a RolesProblem,
    best: (f64, Vec<Segment>),
}

impl Search<'_> {
    /// Simulates an epoch by these roles, and keeps them if they are the best so far.
    fn attempt(&mut self, segments: Vec<Segment>) {
        if let Some(seconds) = self.problem.simulate(&segments)
            && seconds < self.best.0
        {
            self.best = (seconds, segments);
        }
    }

    /// Tries `few` trainers and one more in turn: while there are few the queue fills up, then it is emptied.
    fn turns(&mut self, few: usize) {
        let problem = self.problem;
        let many = few + 1;
        // Device-seconds of sampling that a step leaves over, if positive, or lacks.
        let left = |trainers: usize| {
            let sampling = trainers as f64 * problem.sampling.at(1.0 / trainers as f64);
            problem.step(trainers) * (problem.devices - trainers) as f64 - sampling
        };
        let (spare, lack) = (left(few), -left(many));
        let steps = |trainers: usize| problem.step(trainers) * problem.num_batches as f64;
        if spare <= 0.0 || lack <= 0.0 || steps(many) >= self.best.0 {
            return;
        }
        let mut of_many = 1;
        while of_many < problem.num_batches {
            let of_few = (of_many as f64 * lack / spare).round().max(1.0);
            if of_few + of_many as f64 > problem.num_batches as f64 {
                return;
            }
            self.attempt(in_turn(problem.num_batches, (few, of_few as usize), (many, of_many)));
            of_many *= 2;
        }
    }

    /// Tries more trainers for the last mini-batches of the best roles without and with changes.
    fn tails(&mut self) {
        let problem = self.problem;
        let before = self.best.1.clone();
        let last = before.last().expect("roles were found").trainers;
        for trainers in last + 1..=problem.devices {
            let mut length = 1;
            while length <= problem.queue.min(problem.num_batches) {
                let from = problem.num_batches - length;
                let mut segments: Vec<Segment> = before.iter().copied().filter(|s| s.from < from).collect();
                segments.push(Segment { from, trainers });
                self.attempt(segments);
                length *= 2;
            }
        }
    }
}

/// Two numbers of trainers in turn, each for so many mini-batches.
fn in_turn(num_batches: usize, first: (usize, usize), second: (usize, usize)) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut from = 0;
    for (trainers, length) in [first, second].into_iter().cycle() {
        if from >= num_batches {
            return segments;
        }
        segments.push(Segment { from, trainers });
        from += length;
    }
    segments
}

impl RolesProblem {
    /// Number of sampler devices by GNNLab's formula: N_s = ⌈N_g / (K + 1)⌉ of N_g devices, where K = T_t / T_s, T_s is the time to
    /// sample a mini-batch, and T_t that of a trainer: the longer one of training and gathering, which overlap.
    /// At least one device is left for each role.
    pub fn samplers_by_formula(&self) -> usize {
        let trainer = self.training.at(1.0).max(self.gathering.at(1.0));
        let sampler = self.sampling.at(1.0);
        let all = self.devices as f64;
        // A whole number is not rounded up for the rounding of its terms.
        let samplers = if sampler > 0.0 { (all / (trainer / sampler + 1.0) - 1e-9).ceil() } else { 1.0 };
        (samplers as usize).clamp(1, self.devices - 1)
    }

    /// Seconds of an epoch by these roles; `None` where a share is left that no device can sample any more, as in segments in which
    /// all devices train and that are longer than the queue.
    ///
    /// A device that changes its role samples until the step before its first one begins, where all devices train then until all of their
    /// shares are being sampled, and completes the share it is at; it samples again when its last step has ended.
    ///
    /// # Panics
    ///
    /// When segments are not ascending from mini-batch 0, or have no trainer or more than there are devices.
    ///
    /// # Complexity
    ///
    /// O(mini-batches · devices²) time.
    pub fn simulate(&self, segments: &[Segment]) -> Option<f64> {
        simulate::run(self, segments, &mut |_| {})
    }

    /// The same epoch with what every device does and when; `None` as [`RolesProblem::simulate`].
    ///
    /// # Panics
    ///
    /// As [`RolesProblem::simulate`].
    pub fn timeline(&self, segments: &[Segment]) -> Option<RolesTimeline> {
        let mut activities = Vec::new();
        let seconds = simulate::run(self, segments, &mut |activity| activities.push(activity))?;
        Some(RolesTimeline { seconds, activities })
    }

    /// What an executor follows: these segments, and the sizes of queue and buffers.
    pub fn schedule(&self, segments: &[Segment]) -> RolesSchedule {
        let Self { num_batches, devices, queue, ready, switching, staleness, .. } = *self;
        RolesSchedule { num_batches, devices, segments: segments.to_vec(), queue, ready, switching, staleness }
    }

    /// Minimum seconds between two steps of so many trainers.
    fn step(&self, trainers: usize) -> f64 {
        self.trained(trainers).max(self.gathering.at(1.0 / trainers as f64))
    }

    /// Minimum seconds of training and all-reduce between two steps: one after the other, unless gradients may be stale.
    fn trained(&self, trainers: usize) -> f64 {
        let training = self.training.at(1.0 / trainers as f64);
        let all_reduce = if trainers > 1 { self.all_reduce } else { 0.0 };
        if self.staleness > 0 { training.max(all_reduce) } else { training + all_reduce }
    }

    /// Lower bound of an epoch with so many trainers throughout.
    fn bound_of(&self, trainers: usize) -> f64 {
        let sampling = trainers as f64 * self.sampling.at(1.0 / trainers as f64) / (self.devices - trainers) as f64;
        self.num_batches as f64 * sampling.max(self.step(trainers))
    }

    /// Lower bound of any epoch: a linear program over the number of mini-batches that each number of trainers trains. The steps
    /// follow each other, the last device gathers a share of every mini-batch, and a device that trains in a step does not sample
    /// during it.
    fn bound(&self) -> f64 {
        let counts = 1..=self.devices;
        let seconds = |trainers: usize| {
            let (share, step) = (1.0 / trainers as f64, self.trained(trainers));
            // A device that waits for the all-reduce does not sample meanwhile.
            let busy = if self.staleness > 0 { self.training.at(share) } else { step };
            let work = trainers as f64 * (busy + self.sampling.at(share)) / self.devices as f64;
            [step, self.gathering.at(share), work]
        };
        let columns: Vec<[f64; 3]> = counts.map(seconds).collect();
        if columns.iter().any(|column| column.iter().all(|&x| x <= 0.0)) {
            return 0.0;
        }
        // As many mini-batches as fit one second.
        let rows: Vec<(Vec<f64>, f64)> = (0..3).map(|row| (columns.iter().map(|c| c[row]).collect(), 1.0)).collect();
        let per_second = lp::maximize(&vec![1.0; self.devices], &rows).expect("no mini-batch is possible");
        self.num_batches as f64 / per_second.value
    }

    fn check(&self) -> Result<(), Invalid> {
        within("devices with roles", self.devices, 2, MAX_DEVICES)?;
        within("mini-batches of the global queue", self.queue, 1, MAX_BUFFER)?;
        within("shares of a trainer's buffer", self.ready, 1, MAX_BUFFER)?;
        within("steps of staleness", self.staleness, 0, MAX_BUFFER)?;
        if self.num_batches > u32::MAX as usize {
            return wrong(&"roles", "at most 2^32 - 1 mini-batches can be planned".to_string());
        }
        let lines = [self.sampling, self.gathering, self.standby_gathering, self.training];
        let numbers = lines.iter().flat_map(|line| [line.fixed, line.whole]);
        match numbers.chain([self.all_reduce, self.switching]).find(|&x| !is_amount(x)) {
            Some(odd) => wrong(&"roles", format!("{odd} s are no finite number of at least 0")),
            None => Ok(()),
        }
    }
}
