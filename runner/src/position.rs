//! The position of an executor: the plan in force, and how much of an epoch is trained.

use morphgl_execute::{EpochReport, add_counters, add_trainers};
use morphgl_plan::{PaceHistory, Plan, Problem};
use morphgl_registry::Score;
use serde::{Deserialize, Serialize};

/// A position within an epoch.
///
/// Mini-batches are trained in the order of the plan, so the number of those trained says which they are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PartialEpoch {
    /// Mini-batches of the plan in force, `None` for all of the epoch.
    pub batches: Option<Vec<u32>>,
    /// Report of the mini-batches trained by earlier plans of the epoch.
    pub earlier: Option<EpochReport>,
    /// Report of those trained by the plan in force.
    pub part: EpochReport,
    /// Sum of the scores of all of them, added in the order of training.
    pub score: Score,
}

/// State that an executor is restored from, besides its operators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// The plan in force.
    pub plan: Plan,
    /// The planning problem with the durations measured so far; `None` for a fixed plan.
    pub problem: Option<Problem>,
    /// Whether the durations of `problem` are newer than the plan.
    pub drifted: bool,
    /// Measured over predicted seconds of whole epochs.
    #[serde(default)]
    pub paces: PaceHistory,
    /// Progress within the current epoch, if one is under way.
    pub within: Option<PartialEpoch>,
}

/// Adds the next part of an epoch, run by another plan, to the report of its earlier parts.
pub(crate) fn append(earlier: Option<EpochReport>, part: EpochReport) -> EpochReport {
    let Some(mut whole) = earlier else { return part };
    let offset = whole.seconds;
    whole.seconds += part.seconds;
    whole.batches += part.batches;
    whole.seeds += part.seeds;
    whole.edges += part.edges;
    whole.score += part.score;
    whole.busy += part.busy;
    whole.trainer_waited += part.trainer_waited;
    add_counters(&mut whole.counters, part.counters);
    add_trainers(&mut whole.trainers, part.trainers);
    whole.remaining = part.remaining;
    whole.peak_batched = whole.peak_batched.max(part.peak_batched);
    whole.peak_ready = whole.peak_ready.max(part.peak_ready);
    for (a, b) in whole.resources.iter_mut().zip(part.resources) {
        // Both list the machine's resources in the same order.
        a.share = (a.share * offset + b.share * part.seconds) / whole.seconds.max(f64::MIN_POSITIVE);
        a.seconds += b.seconds;
    }
    // Shares of different plans cannot be added: those of the last plan are kept.
    whole.shares = part.shares;
    whole.activities.extend(part.activities.into_iter().map(|mut a| {
        (a.span.start, a.span.end) = (a.span.start + offset, a.span.end + offset);
        a
    }));
    whole
}
