//! Layer-split training: the CPU computes the first layer of hot nodes for the next super-batch, within a bound of staleness.

mod group;
mod problem;
mod ratio;
mod rows;
mod search;

use morphgl_registry::Phase;
use serde::{Deserialize, Serialize};

use crate::numbers::{MAX_SECONDS, MAX_THREADS, is_amount, within, wrong};
use crate::problem::{cores, exclusive};
use crate::simulate::{self, Simulation, Span};
use crate::{Invalid, PerPhase, Plan, Plans, Schedule, Seconds};

pub use group::{GroupSplit, group_split};
pub use problem::{SplitPoint, SplitProblem};
pub use ratio::next_ratio;
pub use search::layer_split;

use rows::{GivenRowTimes, GivenRows};

/// What layer-split training adds to a schedule of one route, whose durations are those of mini-batches with given rows.
///
/// When super-batch s begins training, the parameters are copied, and the CPU computes with them the first-layer rows of
/// hot nodes for super-batch s + 1: its given rows. The first transfer of super-batch s + 1 waits for them. The last super-batch of
/// an epoch is followed by the first one of the next. The first super-batch of all has no given rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Mini-batches of a super-batch.
    pub super_batch: usize,
    /// Hot ratio: the part of the first layer's nodes whose rows the CPU computes, above 0 and at most 1.
    pub ratio: f64,
    /// Seconds of the phases of a mini-batch without given rows, as the first super-batch has them, by the schedule's workers and
    /// threads.
    pub exact: PerPhase<Seconds>,
    /// Seconds of computing the given rows of a super-batch, alone on the cores.
    pub embedding: Seconds,
    /// Threads that compute them, besides those of the schedule.
    pub threads: usize,
}

impl Split {
    /// Updates of the parameters by which a given row can be behind: 2n - 1 for super-batches of n mini-batches.
    pub fn staleness(&self) -> usize {
        staleness(self.super_batch)
    }

    /// Checks every number of a split and its schedule that this program did not make.
    ///
    /// # Errors
    ///
    /// The first value that no planner would choose, or a schedule of several routes or without cores.
    fn check(&self, schedule: &Schedule) -> Result<(), Invalid> {
        if schedule.shares.len() != 1 {
            return wrong(&"shares", format!("there are {}; a layer-split plan has one", schedule.shares.len()));
        }
        if schedule.resources.iter().all(|r| r.cores.is_none()) {
            return wrong(&"resources", "none has cores; given rows are computed on cores".to_string());
        }
        within("super_batch", self.super_batch, 1, u32::MAX as usize)?;
        check_ratio(self.ratio)?;
        within("threads of given rows", self.threads, 1, MAX_THREADS)?;
        self.embedding.check(&"embedding")?;
        Phase::ALL
            .into_iter()
            .try_for_each(|phase| self.exact[phase].check(&format_args!("exact {}", phase.noun())).map(drop))
    }

    fn given_rows(&self, batches: usize, epoch: u32) -> GivenRows {
        GivenRows {
            batches,
            super_batch: self.super_batch.clamp(1, u32::MAX as usize) as u32,
            exact: (epoch == 0).then(|| Phase::ALL.map(|phase| self.exact[phase])),
            seconds: self.embedding.mean,
            threads: self.threads as f64,
            rows: Vec::new(),
            due: None,
            trained: Vec::new(),
        }
    }
}

fn check_ratio(ratio: f64) -> Result<(), Invalid> {
    if ratio > 0.0 && ratio <= 1.0 {
        return Ok(());
    }
    wrong(&"the hot ratio", format!("{ratio} is not above 0 and at most 1; ratio 0 is the exact plan"))
}

/// Updates by which a row can be behind in super-batches of `super_batch` mini-batches.
fn staleness(super_batch: usize) -> usize {
    super_batch.saturating_mul(2).saturating_sub(1)
}

/// The given rows of one super-batch in a simulated epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Embedding {
    /// The super-batch that they are for, from 1; after the last one of the epoch comes the first one of the next.
    pub super_batch: usize,
    /// When they are computed.
    pub span: Span,
    /// The latest time at which the super-batch's first transfer can begin without delaying training: so that it ends with the
    /// training of the super-batch before, or as soon as its mini-batch, lane and buffer allow, if that is later. Where
    /// transfers and training exclude each other, the end of that training takes the place of the first.
    pub deadline: f64,
}

impl Embedding {
    /// Seconds between the end of the computation and its deadline; negative where training is delayed.
    pub fn slack(&self) -> f64 {
        self.deadline - self.span.end
    }
}

/// A simulated layer-split epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitSimulation {
    /// The mini-batches. Cores are held by the computation of given rows too.
    pub simulation: Simulation,
    /// The given rows that are computed in the epoch, in order: those of each super-batch but the first; after the first epoch
    /// also those of the next epoch's first.
    pub embeddings: Vec<Embedding>,
}

impl SplitSimulation {
    /// Fraction of the epoch in which given rows are computed.
    pub fn load(&self) -> f64 {
        let busy: f64 = self.embeddings.iter().map(|e| e.span.seconds()).sum();
        if self.simulation.seconds > 0.0 { busy / self.simulation.seconds } else { 0.0 }
    }

    /// Minimum slack at a deadline, in seconds: negative where training is delayed, `None` without a second
    /// super-batch.
    pub fn slack(&self) -> Option<f64> {
        self.embeddings.iter().map(Embedding::slack).min_by(f64::total_cmp)
    }

    /// Seconds per epoch by which given rows are late.
    pub fn late(&self) -> f64 {
        self.embeddings.iter().map(|e| (-e.slack()).max(0.0)).sum()
    }
}

/// Simulates epoch `epoch` of layer-split training, from 0, by the schedule's own policy with mean durations, as
/// [`simulate`](crate::simulate()) does. The first epoch begins with a super-batch without given rows; all later ones are alike,
/// and end when their mini-batches are trained and the rows of the next one's first super-batch are computed.
///
/// # Panics
///
/// When the schedule has not exactly one share, or no resource with cores.
///
/// # Complexity
///
/// O(mini-batches · (workers + resources)).
pub fn simulate_split(schedule: &Schedule, split: &Split, epoch: u32) -> SplitSimulation {
    run(schedule, split, epoch, false)
}

/// As [`simulate_split`], with all activities of mini-batches.
pub fn split_timeline(schedule: &Schedule, split: &Split, epoch: u32) -> SplitSimulation {
    run(schedule, split, epoch, true)
}

fn run(schedule: &Schedule, split: &Split, epoch: u32, record: bool) -> SplitSimulation {
    let (shares, cores) = (schedule.shares.len(), cores(&schedule.resources));
    assert!(shares == 1, "a layer-split schedule has one share, not {shares}, on {cores} cores");
    let mut rows = split.given_rows(schedule.num_batches(), epoch);
    let simulation = simulate::run(schedule, &mut rows, record);
    let share = &schedule.shares[0];
    let exclusive = |phase: Phase| exclusive(&schedule.resources, &share.hardware[phase]);
    let overlap = exclusive(Phase::Transferring) & exclusive(Phase::Training) == 0;
    let ahead = if overlap { share.transferring.mean } else { 0.0 };
    let embedding = |(i, GivenRowTimes { span, due, before }): (usize, GivenRowTimes)| {
        let deadline = due.max(before - ahead);
        Embedding { super_batch: i + 1, span, deadline }
    };
    SplitSimulation { simulation, embeddings: rows.times().into_iter().enumerate().map(embedding).collect() }
}

/// A layer-split plan: an ordinary plan of mini-batches with given rows, and what computes these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitPlan {
    /// The schedule with the durations of mini-batches with given rows, and the prediction of every epoch but the first.
    pub plan: Plan,
    /// Predicted seconds of the first epoch, whose first super-batch has no given rows.
    pub first_seconds: f64,
    /// Super-batches and the computation of given rows.
    pub split: Split,
    /// Fraction of the epoch in which given rows are computed.
    pub load: f64,
    /// The least slack at a deadline, in seconds; negative where training is delayed, `None` without a second super-batch.
    pub slack_seconds: Option<f64>,
    /// Seconds per epoch by which given rows are late.
    pub late_seconds: f64,
}

impl SplitPlan {
    /// Checks every number of a plan that this program did not make, such as one from a file.
    ///
    /// # Errors
    ///
    /// The first value that no planner would choose: the text names it and the bound.
    pub fn check(&self) -> Result<(), Invalid> {
        self.plan.check()?;
        self.split.check(&self.plan.schedule)?;
        let slack = self.slack_seconds.unwrap_or(0.0);
        let amounts = [self.first_seconds, self.load, self.late_seconds];
        if !(amounts.into_iter().all(is_amount) && slack.abs() <= MAX_SECONDS) {
            let [first, load, late] = amounts;
            let numbers = format!("{first} s at first, a load of {load}, {late} s late, a slack of {slack} s");
            return wrong(&"prediction of given rows", format!("{numbers}; give finite numbers"));
        }
        Ok(())
    }
}

/// Exact plans, and the best layer-split plan within the bound of staleness, by epochs after the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitChoice {
    /// Plans without given rows.
    pub exact: Plans,
    /// The layer-split plan of the shortest epoch, whether or not it is shorter than the exact one; `None` where no point is
    /// within the bound of staleness and the limits of memory.
    pub split: Option<SplitPlan>,
}

impl SplitChoice {
    /// The layer-split plan, where its predicted epoch is shorter than that of the best exact plan.
    pub fn chosen(&self) -> Option<&SplitPlan> {
        let exact = self.exact.best().prediction.epoch_seconds;
        self.split.as_ref().filter(|split| split.plan.prediction.epoch_seconds < exact)
    }

    /// Predicted seconds per epoch of the plan to run.
    pub fn epoch_seconds(&self) -> f64 {
        let exact = self.exact.best();
        self.chosen().map_or(exact, |split| &split.plan).prediction.epoch_seconds
    }
}
