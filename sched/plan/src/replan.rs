//! Replanning while training, when measured durations drift from those that were planned with.

use std::fmt;

use morphgl_registry::{Key, Phase};

use crate::simulate::{simulate, timeline};
use crate::{Plan, Problem, Schedule, plan};

/// When to replan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// Relative deviation of a phase's mean over an overlap that counts as drift. Default 0.2.
    pub threshold: f64,
    /// Overlaps in a row that must show the drift. Default 2.
    pub overlaps: usize,
    /// Minimum relevant drift, as a fraction of the time between two mini-batches. Default 0.02.
    pub least: f64,
    /// Fraction of the remaining time that a new plan must save. Default 0.03.
    pub gain: f64,
}

impl Default for Drift {
    fn default() -> Self {
        Self { threshold: 0.2, overlaps: 2, least: 0.02, gain: 0.03 }
    }
}

/// Samples a phase needs before it is judged.
const SAMPLES: usize = 5;

/// Measurements of one phase of one share.
#[derive(Debug, Clone, Copy, Default)]
struct Samples {
    sum: f64,
    count: usize,
    /// Number of consecutive overlaps that were judged alike: positive if too slow, negative if too fast.
    streak: i32,
    /// Measured over expected, at the last judgement; 0 where the difference does not matter.
    ratio: f64,
}

impl Samples {
    fn add(&mut self, seconds: f64) {
        self.sum += seconds;
        self.count += 1;
    }

    /// The mean; 0 without samples.
    fn mean(&self) -> f64 {
        if self.count > 0 { self.sum / self.count as f64 } else { 0.0 }
    }
}

/// A phase whose duration has changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// The operator.
    pub operator: Key,
    /// Its phase.
    pub phase: Phase,
    /// Measured over planned.
    pub ratio: f64,
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} takes {:.2} times as long as planned", self.operator, self.ratio)
    }
}

/// A better plan for the rest of the epoch or for the next one, and what led to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Replanned {
    /// The new plan of the remaining mini-batches.
    pub plan: Plan,
    /// The phases whose durations changed within the epoch.
    pub changed: Vec<Changed>,
    /// For a change between epochs, the pace of the plan that was left
    /// ([`PaceHistory::better`](crate::PaceHistory::better)).
    pub pace: Option<f64>,
}

impl fmt::Display for Replanned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = self.changed.iter().map(ToString::to_string);
        let pace = self.pace.map(|pace| format!("epochs take {pace:.2} times as long as planned"));
        let why: Vec<String> = changed.chain(pace).collect();
        write!(f, "planned again: {}; {}", why.join(", "), self.plan.schedule)
    }
}

/// The phases that share a queueing resource with other phases: their measured durations include each other's work.
fn queued_phases(schedule: &Schedule) -> Vec<(usize, Phase)> {
    let phases = || (0..schedule.shares.len()).flat_map(|share| Phase::ALL.map(|phase| (share, phase)));
    let holds = |(share, phase): (usize, Phase), name: &String| schedule.shares[share].hardware[phase].contains(name);
    let queued = schedule.resources.iter().filter(|r| r.queued).map(|r| &r.name);
    let shared: Vec<&String> = queued.filter(|name| phases().filter(|&p| holds(p, name)).count() > 1).collect();
    phases().filter(|&phase| shared.iter().any(|name| holds(phase, name))).collect()
}

/// Compares measured with planned durations, overlap by overlap, and replans when that pays.
///
/// Phases that share a resource which queues their work are not judged: their durations contain each other's.
///
/// Measured durations replace planned ones only together with a new plan: variation around the means never accumulates, and one
/// change leads to one new plan.
#[derive(Debug, Clone)]
pub struct Replanner {
    problem: Problem,
    drift: Drift,
    schedule: Schedule,
    /// Expected seconds of each share's phases; 0 where they are not judged.
    expected: Vec<[f64; 3]>,
    /// Expected seconds between two mini-batches.
    period: f64,
    /// Measured seconds of each share's phases; empty after a new plan.
    measured: Vec<[Samples; 3]>,
    overlap: usize,
    trained: usize,
}

impl Replanner {
    /// Watches `schedule`, a schedule of `problem`.
    pub fn new(problem: Problem, schedule: &Schedule, drift: Drift) -> Self {
        // Expected durations include interference, so they come from a simulation of a few overlaps.
        let few = with_batches(schedule, schedule.num_batches().min(64));
        let mut simulated = vec![[Samples::default(); 3]; schedule.shares.len()];
        let simulation = timeline(&few);
        for a in simulation.activities {
            simulated[a.share][a.phase as usize].add(a.span.seconds());
        }
        let mut expected: Vec<_> = simulated.iter().map(|phases| phases.map(|s| s.mean())).collect();
        for (share, phase) in queued_phases(schedule) {
            expected[share][phase as usize] = 0.0;
        }
        let in_place: usize = schedule.shares.iter().filter(|s| s.in_place).map(|s| s.batches).sum();
        let min = schedule.ready.max(8);
        let overlap = match schedule.shares.len() {
            1 => min,
            _ => (schedule.ready * schedule.num_batches() / in_place.max(1)).clamp(min, 4 * min),
        };
        Self {
            problem,
            drift,
            schedule: schedule.clone(),
            expected,
            period: simulation.seconds / few.num_batches().max(1) as f64,
            measured: vec![[Samples::default(); 3]; schedule.shares.len()],
            overlap,
            trained: 0,
        }
    }

    /// The problem with the durations assumed now.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Mini-batches of an overlap, in which each buffer fills and empties once.
    pub fn overlap(&self) -> usize {
        self.overlap
    }

    /// Records the duration of a phase of one of the share's mini-batches. After a new plan nothing more is recorded: phases under
    /// way end by the old one.
    ///
    /// # Panics
    ///
    /// The schedule has no such share.
    pub fn observe(&mut self, share: usize, phase: Phase, seconds: f64) {
        if self.measured.is_empty() {
            return;
        }
        self.measured[share][phase as usize].add(seconds);
        self.trained += usize::from(phase == Phase::Training);
    }

    /// Whether an overlap has just ended and [`Replanner::judge`] is due.
    pub fn is_due(&self) -> bool {
        self.trained >= self.overlap
    }

    /// Judges an overlap that ended with `left` mini-batches not yet begun; returns a better plan for them, if there is one. The new
    /// plan needs a new `Replanner`.
    pub fn judge(&mut self, left: usize) -> Option<Replanned> {
        self.trained = 0;
        let slow = 1.0 + self.drift.threshold;
        for (samples, expected) in self.measured.iter_mut().flatten().zip(self.expected.iter().flatten()) {
            if samples.count < SAMPLES || *expected <= 0.0 {
                continue;
            }
            // A shorter difference is too little time for any plan to depend on it.
            let matters = (samples.mean() - expected).abs() >= self.drift.least * self.period;
            let ratio = if matters { samples.mean() / expected } else { 0.0 };
            let streak = match ratio {
                r if r > slow => samples.streak.max(0) + 1,
                r if matters && r < 1.0 / slow => samples.streak.min(0) - 1,
                _ => 0,
            };
            *samples = Samples { sum: 0.0, count: 0, streak, ratio };
        }
        let streak = self.measured.iter().flatten().map(|s| s.streak.unsigned_abs()).max();
        if left == 0 || streak < Some(self.drift.overlaps.max(1) as u32) {
            return None;
        }
        let changed = self.adopt();
        let kept_seconds = simulate(&with_batches(&self.schedule, left)).seconds;
        let best = plan(&self.problem.clone().with_batches(left)).ok().map(|plans| plans.best().clone());
        let better = best.filter(|plan| {
            // Changing plans empties the pipeline once.
            let p = &plan.prediction;
            p.epoch_seconds + p.first_fill_seconds < kept_seconds * (1.0 - self.drift.gain)
        });
        match better {
            Some(_) => self.measured.clear(),
            // The plan stays, with the measured durations as expected ones.
            None => *self = Self::new(self.problem.clone(), &self.schedule, self.drift),
        }
        better.map(|plan| Replanned { plan, changed, pace: None })
    }

    /// Takes over the measured durations of all phases that are off by more than half the threshold.
    fn adopt(&mut self) -> Vec<Changed> {
        let mut changed: Vec<Changed> = Vec::new();
        let slow = 1.0 + self.drift.threshold / 2.0;
        for (share, measured) in self.schedule.shares.iter_mut().zip(&self.measured) {
            let seconds = [&mut share.batching, &mut share.transferring, &mut share.training];
            for ((phase, samples), seconds) in Phase::ALL.into_iter().zip(measured).zip(seconds) {
                let ratio = samples.ratio;
                if ratio == 0.0 || (1.0 / slow..=slow).contains(&ratio) {
                    continue;
                }
                *seconds = seconds.scaled(ratio);
                let operator = &share.keys[phase];
                // All routes share the training operator: it is reported once.
                if changed.iter().all(|c| c.operator != *operator) {
                    changed.push(Changed { operator: operator.clone(), phase, ratio });
                }
            }
        }
        for route in &mut self.problem.routes {
            let [batching, transferring, training] = Phase::ALL.map(|phase| {
                let of_phase = |c: &&Changed| c.operator == route.keys[phase] && c.phase == phase;
                changed.iter().find(of_phase).map_or(1.0, |c| c.ratio)
            });
            route.durations = route.durations.scaled(batching, transferring, training);
        }
        changed
    }
}

/// The same schedule for another number of mini-batches, divided in the same proportion.
fn with_batches(schedule: &Schedule, n: usize) -> Schedule {
    let mut s = schedule.clone();
    let total = schedule.num_batches().max(1);
    let mut left = n;
    let last = s.shares.len() - 1;
    for (i, share) in s.shares.iter_mut().enumerate() {
        let part = if i == last { left } else { (share.batches * n + total / 2) / total };
        share.batches = part.min(left);
        left -= share.batches;
    }
    s
}
