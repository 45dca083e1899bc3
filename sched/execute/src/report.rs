//! What a run tells while it runs and when it ends.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use morphgl_plan::{Activity, Plan, Replanned, Seconds, Span};
use morphgl_registry::{BatchId, Score};
use serde::{Deserialize, Serialize};

/// The span of work that was seen to end at `end` and took what its operator measured. It starts at `earliest` at the earliest, so
/// that spans of one thread do not overlap by a rounding.
pub(crate) fn span_ending(end: f64, measured: Duration, earliest: f64) -> Span {
    let start = f64::max(end - measured.as_secs_f64(), earliest);
    Span { start, end: f64::max(end, start) }
}

/// What operators counted, by operator and counter.
pub type CountersByOperator = BTreeMap<String, BTreeMap<String, u64>>;

/// Adds what operators counted to `sums`.
pub fn add_counters(sums: &mut CountersByOperator, counted: CountersByOperator) {
    for (operator, counters) in counted {
        let sums = sums.entry(operator).or_default();
        counters.into_iter().for_each(|(name, amount)| *sums.entry(name).or_default() += amount);
    }
}

/// A mini-batch that went through all its phases.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BatchDone {
    /// Which one.
    pub id: BatchId,
    /// Which share of the schedule it belongs to; 0 of [`prepare`](crate::prepare).
    pub share: usize,
    /// Its seeds.
    pub seeds: usize,
    /// Its edges, of all blocks; 0 where batching leaves it on a device.
    pub edges: usize,
    /// Its score; of [`prepare`](crate::prepare), what the caller's function returned.
    pub score: Score,
    /// Which worker batched it, from 0.
    pub worker: usize,
    /// Batching.
    pub batching: Span,
    /// Transferring; all zeros where there is none.
    pub transferring: Span,
    /// Training: accumulate and step; of [`prepare`](crate::prepare), the caller's function.
    pub training: Span,
    /// Seconds training waited for it.
    pub waited: f64,
    /// Mini-batches that waited for training, this one not counted, when training took it.
    pub ready: usize,
    /// Mini-batches not begun: those that would remain after a [`Control::Cut`] now.
    pub left: usize,
}

/// An event of training, from a phase of a mini-batch to an epoch: the one stream that progress, recorders and re-planning read.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "it is only ever borrowed")]
pub enum Event<'a> {
    /// An epoch begins, by this plan.
    Begins(&'a Plan),
    /// A phase has ended.
    Ended(Activity),
    /// A mini-batch was trained; its [`Event::Ended`] came before.
    Trained(BatchDone),
    /// The rest of the epoch is run by a new plan.
    Replanned(&'a Replanned),
    /// Evaluation begins.
    Evaluating,
    /// An epoch is done.
    Epoch(&'a EpochRow),
}

/// What an observer of training wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// Begin no further mini-batch, and train those that have begun: the end of an overlap, to go on by another schedule.
    Cut,
}

/// Seconds summed up by phase.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PhaseSeconds {
    /// Batching, over all workers.
    pub batching: f64,
    /// Transferring.
    pub transferring: f64,
    /// Training.
    pub training: f64,
}

impl AddAssign for PhaseSeconds {
    fn add_assign(&mut self, other: Self) {
        self.batching += other.batching;
        self.transferring += other.transferring;
        self.training += other.training;
    }
}

/// How busy a resource was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceSeconds {
    /// The resource.
    pub resource: String,
    /// Seconds the phases that hold it kept busy, as the operators measured; core-seconds where it has cores.
    pub seconds: f64,
    /// Share of the run, from 0 to 1; of all cores where it has some. To be compared with the predicted one.
    pub share: f64,
}

/// What one share of the schedule came to: durations to be compared with those it was planned with.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ShareReport {
    /// Mini-batches trained.
    pub batches: usize,
    /// A worker's seconds a mini-batch.
    pub batching: Seconds,
    /// Seconds a transfer.
    pub transferring: Seconds,
    /// Seconds a step of training.
    pub training: Seconds,
}

/// What one run over (part of) an epoch came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// The epoch.
    pub epoch: u32,
    /// Whether a stop ended it early.
    pub stopped: bool,
    /// Indices of the mini-batches that were asked for and not trained, ascending: where to go on after a stop or a cut.
    pub remaining: Vec<u32>,
    /// Seconds from start to end.
    pub seconds: f64,
    /// Seconds until training began.
    pub first_fill_seconds: f64,
    /// Mini-batches trained.
    pub batches: usize,
    /// Their seeds.
    pub seeds: u64,
    /// Their edges; 0 where batching leaves them on a device.
    pub edges: u64,
    /// Their scores, added up.
    pub score: Score,
    /// Seconds each phase kept its resource busy.
    pub busy: PhaseSeconds,
    /// How busy each resource was, in the order of the schedule's resources.
    pub resources: Vec<ResourceSeconds>,
    /// Each share of the schedule.
    pub shares: Vec<ShareReport>,
    /// What the operators counted, summed over mini-batches.
    #[serde(default)]
    pub counters: CountersByOperator,
    /// Seconds training waited for mini-batches: its stalls, the first fill among them.
    pub trainer_waited: f64,
    /// The most mini-batches at once that were batched or being batched, and not yet being transferred.
    pub peak_batched: usize,
    /// The most mini-batches at once that were transferred or being transferred, and not yet being trained.
    pub peak_ready: usize,
    /// Every phase of every mini-batch, by end; empty unless [`Settings::record`](crate::Settings::record) is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub activities: Vec<Activity>,
}

/// One row of the table of epochs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRow {
    /// Epoch, from 0.
    pub epoch: u32,
    /// Seconds of training, evaluation not counted.
    pub seconds: f64,
    /// Seconds of evaluation.
    pub evaluation_seconds: f64,
    /// Mean training loss a seed.
    pub loss: f64,
    /// Accuracy on the training seeds, in training mode.
    pub train_accuracy: f64,
    /// Mean validation loss, where it was evaluated.
    pub valid_loss: Option<f64>,
    /// Validation accuracy, where it was evaluated.
    pub valid_accuracy: Option<f64>,
    /// Seconds predicted by the plan it began with.
    pub predicted_seconds: f64,
    /// How often what was left of it was planned again.
    pub replanned: u32,
    /// What the executor measured.
    pub report: EpochReport,
}

/// What [`prepare`](crate::prepare) came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// The epoch.
    pub epoch: u32,
    /// Index after the last mini-batch delivered: where to go on after a stop.
    pub next: u32,
    /// Whether it was stopped before the last mini-batch asked for.
    pub stopped: bool,
    /// Seconds from start to end.
    pub seconds: f64,
    /// Mini-batches delivered.
    pub batches: usize,
    /// Their seeds.
    pub seeds: u64,
    /// Their edges; 0 where batching leaves them on a device.
    pub edges: u64,
    /// Their scores, added up.
    pub score: Score,
    /// Seconds each phase kept its resource busy; training is the caller's function.
    pub busy: PhaseSeconds,
    /// Seconds the caller waited for mini-batches.
    pub consumer_waited: f64,
    /// Seconds all workers together waited for room in the window.
    pub workers_waited: f64,
    /// The most mini-batches in memory at once.
    pub peak_in_flight: usize,
}

impl Prepared {
    pub(crate) fn new(epoch: u32, first: u32) -> Self {
        Self {
            epoch,
            next: first,
            stopped: false,
            seconds: 0.0,
            batches: 0,
            seeds: 0,
            edges: 0,
            score: Score::default(),
            busy: PhaseSeconds::default(),
            consumer_waited: 0.0,
            workers_waited: 0.0,
            peak_in_flight: 0,
        }
    }

    pub(crate) fn add(&mut self, done: &BatchDone) {
        self.next += 1;
        self.batches += 1;
        self.seeds += done.seeds as u64;
        self.edges += done.edges as u64;
        self.score += done.score;
        let (batching, transferring) = (done.batching.seconds(), done.transferring.seconds());
        self.busy += PhaseSeconds { batching, transferring, training: done.training.seconds() };
        self.consumer_waited += done.waited;
    }
}
