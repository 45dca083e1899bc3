//! Events of a run, and its report.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use morphgl_plan::{Activity, Plan, Replanned, Seconds, Span};
use morphgl_registry::{BatchId, Place, Score};
use serde::{Deserialize, Serialize};

use crate::TrainingState;

/// The span of work that ended by `end` and took the `measured` time. It starts no earlier than `earliest`, so that rounding
/// does not make spans of one thread overlap.
pub(crate) fn span_ending(end: f64, measured: Duration, earliest: f64) -> Span {
    let start = f64::max(end - measured.as_secs_f64(), earliest);
    Span { start, end: f64::max(end, start) }
}

/// Operators' counters: amounts by operator and counter.
pub type CountersByOperator = BTreeMap<String, BTreeMap<String, u64>>;

/// Adds `counters` to `sums`.
pub fn add_counters(sums: &mut CountersByOperator, counters: CountersByOperator) {
    for (operator, counters) in counters {
        let sums = sums.entry(operator).or_default();
        counters.into_iter().for_each(|(name, amount)| *sums.entry(name).or_default() += amount);
    }
}

/// A trained mini-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchDone {
    /// Its id.
    pub id: BatchId,
    /// Index of its share in the schedule.
    pub share: usize,
    /// Number of its seeds.
    pub seeds: usize,
    /// Number of its edges, of all blocks; 0 where batching leaves it on a device.
    pub edges: usize,
    /// Its score.
    pub score: Score,
    /// Mini-batches not begun: those that would remain after a [`Control::Cut`] now.
    pub left: usize,
}

/// An event of training, from a phase of a mini-batch to an epoch: the one stream that progress bars, recorders and replanning
/// read.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "it is only ever borrowed")]
pub enum Event<'a> {
    /// An epoch begins, by this plan.
    Begins(&'a Plan),
    /// A phase has ended.
    Ended(Activity),
    /// A phase has ended at a trainer of a group that another one leads: its number, from 1.
    Followed(usize, Activity),
    /// A device with roles has changed its own: its number, and whether it is a trainer now.
    Switched(usize, bool, Span),
    /// Gradients of a mini-batch were all-reduced over a group, at the trainer with this number, 0 the leading one.
    Added(usize, BatchId, Span),
    /// A mini-batch was trained; its [`Event::Ended`] came before.
    Trained(BatchDone),
    /// The state that [`Control::Export`] requested, and the report of the mini-batches that led to it.
    Exported(&'a TrainingState, &'a EpochReport),
    /// The rest of the epoch, or the next one, is run by a new plan.
    Replanned(&'a Replanned),
    /// Evaluation begins.
    Evaluating,
    /// An epoch is done.
    Epoch(&'a EpochRow),
}

/// An observer's answer to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Training continues.
    Continue,
    /// No further mini-batch begins, and those that have begun are trained: the end of an overlap, before another schedule.
    Cut,
    /// The state of training is copied out between two steps, and comes as [`Event::Exported`]. The order of training does not
    /// change. Ignored while another export is under way.
    Export,
}

/// Seconds by phase.
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

/// Busy time of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceSeconds {
    /// The resource.
    pub resource: String,
    /// Seconds of the phases that use it, as the operators measured; core-seconds where it has cores. Of phases that a device
    /// queues, each contains the work of others that was done meanwhile.
    pub seconds: f64,
    /// Utilisation: the fraction of the run in which it was busy, 0 to 1, to compare with the prediction; of all cores where it has
    /// cores.
    pub share: f64,
}

/// Durations measured in one share of the schedule, to compare with those it was planned with.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ShareReport {
    /// Mini-batches trained.
    pub batches: usize,
    /// A worker's seconds per mini-batch.
    pub batching: Seconds,
    /// Seconds per transfer.
    pub transferring: Seconds,
    /// Seconds per step of training.
    pub training: Seconds,
}

/// One trainer's part of an epoch that a group has trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainerReport {
    /// Key of its training operator.
    pub training: String,
    /// Where it trains.
    pub place: Place,
    /// Seeds of its shares.
    pub seeds: u64,
    /// Their edges; 0 where batching leaves them on a device.
    pub edges: u64,
    /// Busy seconds of its phases.
    #[serde(default)]
    pub busy: PhaseSeconds,
    /// Counters of its operators.
    pub counters: CountersByOperator,
}

/// Sums trainers' parts of an epoch, one sum per trainer.
pub fn add_trainers(sums: &mut Vec<TrainerReport>, trainers: Vec<TrainerReport>) {
    for trainer in trainers {
        let same = |t: &&mut TrainerReport| (&t.training, &t.place) == (&trainer.training, &trainer.place);
        match sums.iter_mut().find(same) {
            None => sums.push(trainer),
            Some(sum) => {
                sum.seeds += trainer.seeds;
                sum.edges += trainer.edges;
                sum.busy += trainer.busy;
                add_counters(&mut sum.counters, trainer.counters);
            }
        }
    }
}

/// The outcome of one run over an epoch, or a part of one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EpochReport {
    /// The epoch.
    pub epoch: u32,
    /// Whether a stop ended it early.
    pub stopped: bool,
    /// Indices of the requested mini-batches that were not trained, ascending: those to train after a stop or a cut.
    pub remaining: Vec<u32>,
    /// Seconds from start to end.
    pub seconds: f64,
    /// Seconds until the first step of training.
    pub first_fill_seconds: f64,
    /// Mini-batches trained.
    pub batches: usize,
    /// Their seeds.
    pub seeds: u64,
    /// Their edges; 0 where batching leaves them on a device.
    pub edges: u64,
    /// Sum of their scores.
    pub score: Score,
    /// Busy seconds of each phase.
    pub busy: PhaseSeconds,
    /// Busy time of each resource, in the order of the schedule's resources.
    pub resources: Vec<ResourceSeconds>,
    /// Each share of the schedule.
    pub shares: Vec<ShareReport>,
    /// The operators' counters, summed over mini-batches.
    #[serde(default)]
    pub counters: CountersByOperator,
    /// Each trainer of a group, by rank; their sums are the numbers above. Empty where one trains alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trainers: Vec<TrainerReport>,
    /// Seconds training waited for mini-batches: its stalls, the first fill among them.
    pub trainer_waited: f64,
    /// Peak occupancy of the batched buffer: mini-batches batched or being batched, and not yet being transferred.
    pub peak_batched: usize,
    /// Peak occupancy of the ready buffer: mini-batches transferred or being transferred, and not yet being trained.
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
    /// Mean training loss per seed; NaN, in JSON null, where no seed has a label.
    #[serde(deserialize_with = "nan_for_null")]
    pub loss: f64,
    /// Accuracy on the training seeds, in training mode; NaN, in JSON null, where no seed has a label.
    #[serde(deserialize_with = "nan_for_null")]
    pub train_accuracy: f64,
    /// Mean validation loss, where it was evaluated.
    pub valid_loss: Option<f64>,
    /// Validation accuracy, where it was evaluated.
    pub valid_accuracy: Option<f64>,
    /// The validation score that the best model is chosen by, where it was evaluated and is another than accuracy or loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_score: Option<f64>,
    /// Seconds predicted by the plan it began with.
    pub predicted_seconds: f64,
    /// How often the rest of it was planned again.
    pub replanned: u32,
    /// The executor's measurements.
    pub report: EpochReport,
}

fn nan_for_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// The outcome of [`prepare`](crate::prepare).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Prepared {
    /// Index after the last mini-batch delivered: the one to continue with after a stop.
    pub next: u32,
    /// Whether a stop ended it before the last requested mini-batch.
    pub stopped: bool,
    /// Sum of the mini-batches' scores.
    pub score: Score,
    /// Peak number of mini-batches in memory.
    pub peak_in_flight: usize,
}
