//! The profile of a route on a machine, in memory and as a file.

use std::path::Path;

use morphgl_plan::{Durations, RouteKeys};
use morphgl_registry::{Machine, Route};
use serde::{Deserialize, Serialize};

use crate::{Result, Statistics};

/// Version of the file's layout.
pub const VERSION: u32 = 1;

/// Batching at one size of the pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolSample {
    /// Workers.
    pub workers: usize,
    /// Threads of each.
    pub threads: usize,
    /// Seconds a mini-batch of the pool: a worker's time divided by the workers, all of them at work.
    pub seconds: Statistics,
}

/// Training at one count of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainingSample {
    /// Threads.
    pub threads: usize,
    /// Seconds a mini-batch: accumulate and step.
    pub seconds: Statistics,
}

/// Every phase's duration on one route of one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Version of the file's layout: [`VERSION`].
    pub version: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// What was measured.
    pub route: Route,
    /// Mini-batches of an epoch.
    pub num_batches: usize,
    /// Mean edges of the measured mini-batches, 0 where they lie on a device.
    pub edges_per_batch: f64,
    /// Mean bytes of a mini-batch in host memory after transferring, 0 where it lies on a device.
    pub bytes_per_batch: f64,
    /// Batching, one sample a pool.
    pub batching: Vec<PoolSample>,
    /// Transferring.
    pub transferring: Statistics,
    /// Training, one sample a count of threads.
    pub training: Vec<TrainingSample>,
    /// Points left out because the budget was spent.
    pub skipped: Vec<String>,
    /// Seconds that profiling took.
    pub seconds: f64,
}

impl Profile {
    /// What the planner needs.
    pub fn durations(&self) -> Durations {
        todo!()
    }

    /// The route's keys as the planner names them.
    pub fn route_keys(&self) -> RouteKeys {
        todo!()
    }

    /// Writes the profile as JSON, beside the path first, then renamed.
    pub fn save(&self, path: &Path) -> Result<()> {
        todo!("{path:?}")
    }

    /// Reads a profile.
    pub fn load(path: &Path) -> Result<Self> {
        todo!("{path:?}")
    }
}
