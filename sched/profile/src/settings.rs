//! Settings of profiling, and the caller's stop flag and memory limit.

use std::fmt;
use std::time::Duration;

use morphgl_registry::Key;
use serde::{Deserialize, Serialize};

/// Amount of measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Cores of the host that phases may use.
    pub cores: usize,
    /// Time budget, approximately; the points that a plan needs are measured even when it is exceeded. Default 3 s.
    pub budget: Duration,
    /// Time budget in epochs, as soon as the first measurements predict the length of one; with the choice among training
    /// operators, no more than this or `budget`, whichever is more. `None` leaves `budget` for both. Default 0.8.
    pub epochs: Option<f64>,
    /// Minimum of the time budget in epochs, within `budget`. Default 0.25 s.
    pub least: Duration,
    /// Mini-batches each worker, or training, handles before measuring starts, at each point. Default 1. Training by several threads
    /// warms up for 40 ms at least, where there is time.
    pub warm_up: usize,
    /// Mini-batches measured at each point, by each worker or by training.
    /// Fewer when the budget ends, or an epoch has few. Default 8.
    pub batches: usize,
    /// Batching on the host's cores: (workers, threads per worker). One worker of one thread is added when it is
    /// missing.
    pub pools: Vec<(usize, usize)>,
    /// Training on the host's cores: counts of threads.
    pub training_threads: Vec<usize>,
    /// Maximum number of splits of the cores at which the interference of batching and training is measured. Default 12.
    pub splits: usize,
    /// The epoch whose mini-batches are used. Default 0.
    pub epoch: u32,
    /// Training operators that are kept where they are as fast as the fastest within the noise of measurement. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<Key>,
}

impl Settings {
    /// Defaults for a machine of `cores` cores: pools and training at 1, 2, 4, … and all cores, one worker of all cores, and
    /// training at one core less (the likeliest split leaves one to batching).
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
            preferred: Vec::new(),
        }
    }

    /// Time for measuring phases, where an epoch takes at least `epoch_seconds`.
    pub(crate) fn for_phases(&self, epoch_seconds: f64) -> Duration {
        self.share(epoch_seconds).map_or(self.budget, |share| self.budget.min(share.max(self.least)))
    }

    /// Time for all of profiling, the choice among training operators included.
    pub(crate) fn in_all(&self, epoch_seconds: f64) -> Duration {
        self.share(epoch_seconds).map_or(self.budget, |share| self.budget.max(share))
    }

    /// Time budget in epochs.
    fn share(&self, epoch_seconds: f64) -> Option<Duration> {
        let seconds = self.epochs? * epoch_seconds;
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

/// A limit of the host memory that profiling may take.
#[derive(Clone, Copy)]
pub struct MemoryLimit<'a> {
    /// Bytes that the process may hold in all.
    pub limit: u64,
    /// Returns the peak of bytes that the process held since the last call, and releases freed memory to the system.
    pub peak: &'a dyn Fn() -> u64,
}

impl fmt::Debug for MemoryLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLimit").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// The caller's control over profiling.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Whether to stop; called between mini-batches, by any thread.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Limit of host memory: pools of workers that would exceed it are not measured.
    pub memory: Option<MemoryLimit<'a>>,
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl Watch<'_> {
    /// No stop, and no limit of memory.
    pub const NONE: Watch<'static> = Watch { stop: &|| false, memory: None };
}

/// Progress of profiling, for a progress bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The next point to be measured, in words: `batching by 2 workers`.
    pub what: String,
    /// Points done.
    pub done: usize,
    /// Maximum number of points.
    pub total: usize,
}
