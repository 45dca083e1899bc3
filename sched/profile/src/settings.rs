//! What is measured, and how much of it.

use std::time::Duration;

use morphgl_registry::{Batching, Key, Place, Route, Training, Transferring};
use serde::{Deserialize, Serialize};

use crate::Selection;

/// The host memory that profiling may take, and who knows how much that is.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    /// Bytes that the process may hold in all.
    pub limit: u64,
    /// The most bytes that the process held since this was last asked. What can be given back to the system is given back
    /// by asking.
    pub peak: &'a dyn Fn() -> u64,
}

impl std::fmt::Debug for Memory<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// The operators to measure: routes, and who trains what they bring.
#[derive(Debug)]
pub struct Operators<'a> {
    /// The routes; at least one.
    pub routes: Vec<RouteOperators<'a>>,
    /// Who trains: for every route the operator of its key at its place.
    pub trainers: Vec<TrainingOperator<'a>>,
    /// How trainers were chosen before, by [`select`](crate::select()): the time it took is a part of the budget, and what was
    /// measured of a chosen one is not measured again.
    pub selections: Vec<Selection>,
}

/// The operators of a route, all but the one that trains.
#[derive(Debug)]
pub struct RouteOperators<'a> {
    /// Their keys and places.
    pub route: &'a Route,
    /// Who batches.
    pub batching: &'a dyn Batching,
    /// Who transfers.
    pub transferring: &'a mut dyn Transferring,
}

/// Who trains, for one route or several.
#[derive(Debug)]
pub struct TrainingOperator<'a> {
    /// Its key.
    pub key: &'a Key,
    /// Where it trains.
    pub place: &'a Place,
    /// The operator. Parameters and optimizer state are the same after profiling as before; no gradients are left.
    pub operator: &'a mut dyn Training,
}

/// How much is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Cores of the host that phases may use.
    pub cores: usize,
    /// Time to spend on phases, roughly. What is needed for a plan at all is measured even when it takes longer. Default 3 s.
    pub budget: Duration,
    /// Epochs to spend on phases at most, as far as the first measurements tell how long one takes; with choosing among
    /// training operators, no more than this or the budget, whichever is more. `None` leaves the budget for both. Default 0.8.
    pub epochs: Option<f64>,
    /// Time that may be spent however short an epoch is, within the budget. Default 0.25 s.
    pub least: Duration,
    /// Mini-batches each worker, or training, handles before measuring starts, at each point. Default 1.
    pub warm_up: usize,
    /// Mini-batches measured at each point, by each worker or by training.
    /// Fewer when the budget ends, or an epoch has few. Default 8.
    pub batches: usize,
    /// Batching on the host's cores: (workers, threads a worker). One worker of one thread is added when it is missing.
    pub pools: Vec<(usize, usize)>,
    /// Training on the host's cores: counts of threads.
    pub training_threads: Vec<usize>,
    /// Splits of the cores at which batching and training are measured beside each other, at most. Default 12.
    pub splits: usize,
    /// The epoch whose mini-batches are used. Default 0.
    pub epoch: u32,
}

impl Settings {
    /// Defaults for a machine with so many cores: pools and training at 1, 2, 4, … and all cores, training at one core less too
    /// (the likeliest split leaves one to batching), and one worker of all cores.
    pub fn new(cores: usize) -> Self {
        let cores = cores.max(1);
        let mut counts: Vec<usize> = (0..).map(|i| 1 << i).take_while(|&n| n < cores).collect();
        counts.push(cores);
        let mut pools: Vec<(usize, usize)> = counts.iter().map(|&workers| (workers, 1)).collect();
        if cores > 1 {
            pools.push((1, cores));
            counts.push(cores - 1);
            counts.sort_unstable();
            counts.dedup();
        }
        Self {
            cores,
            budget: Duration::from_secs(3),
            epochs: Some(0.8),
            least: Duration::from_millis(250),
            warm_up: 1,
            batches: 8,
            pools,
            training_threads: counts,
            splits: 12,
            epoch: 0,
        }
    }

    /// Time for measuring phases, where an epoch takes so many seconds at least.
    pub(crate) fn for_phases(&self, epoch_seconds: f64) -> Duration {
        self.share(epoch_seconds).map_or(self.budget, |share| self.budget.min(share.max(self.least)))
    }

    /// Time for all of profiling, choosing among training operators included.
    pub(crate) fn in_all(&self, epoch_seconds: f64) -> Duration {
        self.share(epoch_seconds).map_or(self.budget, |share| self.budget.max(share))
    }

    /// The part of an epoch that profiling may take.
    fn share(&self, epoch_seconds: f64) -> Option<Duration> {
        let seconds = self.epochs? * epoch_seconds;
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

/// Who watches profiling from outside.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Asked between mini-batches, by any thread, whether to end.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Host memory, where it is to be watched: pools of workers that would not fit are not measured then.
    pub memory: Option<Memory<'a>>,
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl Watch<'_> {
    /// Nobody stops it, and memory is not watched.
    pub const NONE: Watch<'static> = Watch { stop: &|| false, memory: None };
}

/// How far profiling is, for a progress bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// What is measured next, in words: `batching by 2 workers`.
    pub what: String,
    /// Points done.
    pub done: usize,
    /// Points in all, at most.
    pub total: usize,
}
