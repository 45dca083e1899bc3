//! What each of several trainers of this process did in a run.

use morphgl_execute::TrainerReport;
use morphgl_registry::Place;
use serde::Serialize;

use crate::{Simulated, TrainReport, words};

/// A trainer's part of a run, an epoch on average.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TrainerPart {
    pub(crate) place: Place,
    /// Key of its training operator.
    pub(crate) training: String,
    pub(crate) seeds_per_epoch: f64,
    /// Busy seconds of its phases.
    pub(crate) batching_seconds_per_epoch: f64,
    pub(crate) transferring_seconds_per_epoch: f64,
    pub(crate) training_seconds_per_epoch: f64,
    /// In all-reduces of gradients, waiting for other trainers included.
    pub(crate) exchange_seconds_per_epoch: f64,
    /// The part of these in which its backward went on.
    pub(crate) exchange_hidden_seconds_per_epoch: f64,
    /// By which the slowest share took longer than the mean, step by step: the same at all trainers.
    pub(crate) imbalance_seconds_per_epoch: f64,
}

/// The trainers of a run, the leading one first; none where one trained.
pub(crate) fn of_run(report: &TrainReport) -> Vec<TrainerPart> {
    let mut all: Vec<TrainerReport> = Vec::new();
    let epochs = report.epochs.iter().filter(|row| !row.report.trainers.is_empty());
    epochs.clone().for_each(|row| morphgl_execute::add_trainers(&mut all, row.report.trainers.clone()));
    let per_epoch = 1.0 / epochs.count().max(1) as f64;
    let part = |TrainerReport { training, place, seeds, busy, counters, .. }: TrainerReport| {
        let seconds = |name: &str| {
            let micros = counters.get(&training).and_then(|counters| counters.get(name)).copied().unwrap_or(0);
            micros as f64 * 1e-6 * per_epoch
        };
        TrainerPart {
            seeds_per_epoch: seeds as f64 * per_epoch,
            batching_seconds_per_epoch: busy.batching * per_epoch,
            transferring_seconds_per_epoch: busy.transferring * per_epoch,
            training_seconds_per_epoch: busy.training * per_epoch,
            exchange_seconds_per_epoch: seconds("exchange_micros"),
            exchange_hidden_seconds_per_epoch: seconds("exchange_hidden_micros"),
            imbalance_seconds_per_epoch: seconds("imbalance_micros"),
            place,
            training,
        }
    };
    all.into_iter().map(part).collect()
}

/// The line about the trainers that ends a run's output; empty where a single trainer ran.
pub(crate) fn in_words(parts: &[TrainerPart]) -> String {
    let Some(first) = parts.first() else { return String::new() };
    let of_each = |part: &TrainerPart| format!("{} {:.3}", part.place, part.exchange_seconds_per_epoch);
    format!(
        "{}: seconds per epoch in all-reduces: {}; the slowest share takes {:.3} s per epoch longer than the mean\n",
        words::plural(parts.len() as u64, "trainer"),
        parts.iter().map(of_each).collect::<Vec<_>>().join(", "),
        first.imbalance_seconds_per_epoch,
    )
}

/// The rows of these trainers in the report of the run.
pub(crate) fn rows(parts: &[TrainerPart], simulated: &Simulated) -> Vec<morphgl_report::Trainer> {
    let row = |part: &TrainerPart| morphgl_report::Trainer {
        name: part.place.to_string(),
        operator: part.training.clone(),
        simulated: simulated.operator(&part.training),
        seeds: part.seeds_per_epoch,
        batching: part.batching_seconds_per_epoch,
        transferring: part.transferring_seconds_per_epoch,
        training: part.training_seconds_per_epoch,
        all_reduce: part.exchange_seconds_per_epoch,
        hidden: part.exchange_hidden_seconds_per_epoch,
    };
    parts.iter().map(row).collect()
}
