//! The profile of a route on a machine, in memory and as a file.

use std::fs;
use std::path::Path;

use morphgl_plan::{Curve, Durations, Invalid, Point, PoolPoint, RouteKeys};
use morphgl_registry::{Machine, Route};
use serde::{Deserialize, Serialize};

use crate::{Error, Result, Statistics};

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
    ///
    /// # Panics
    ///
    /// When its fields were changed to what cannot be planned with; one that was measured or loaded can.
    pub fn durations(&self) -> Durations {
        self.checked().unwrap_or_else(|e| panic!("the profile was changed: {e}"))
    }

    fn checked(&self) -> std::result::Result<Durations, Invalid> {
        let pool = |s: &PoolSample| PoolPoint { workers: s.workers, threads: s.threads, seconds: s.seconds.seconds() };
        let batching: Vec<PoolPoint> = self.batching.iter().map(pool).collect();
        let training = self.training.iter().map(|s| Point { at: s.threads, seconds: s.seconds.seconds() });
        Durations::new(&batching, self.transferring.seconds(), Curve::new(training.collect())?)
    }

    /// The route's keys as the planner names them.
    pub fn route_keys(&self) -> RouteKeys {
        let Route { batching, transferring, training, .. } = &self.route;
        let (batching, transferring) = (batching.to_string(), transferring.to_string());
        RouteKeys { batching, transferring, training: training.to_string() }
    }

    /// Writes the profile as JSON, beside the path first, then renamed.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::format(path, e.to_string()))?;
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.tmp", std::process::id()));
        let beside = path.with_file_name(name);
        let written = fs::write(&beside, text + "\n").and_then(|()| fs::rename(&beside, path));
        written.map_err(|e| {
            // Nothing is left behind; that it cannot be removed where it was never made is no second error.
            fs::remove_file(&beside).ok();
            Error::io(path, e)
        })
    }

    /// Reads a profile.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no profile of this version, or holds durations that cannot be.
    pub fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| Error::format(path, e.to_string()))?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(v) if v == u64::from(VERSION) => {}
            Some(v) => return Err(Error::format(path, format!("it is of version {v}, this program reads {VERSION}"))),
            None => return Err(Error::format(path, "it has no version".to_string())),
        }
        let profile: Self = serde_json::from_value(value).map_err(|e| Error::format(path, e.to_string()))?;
        profile.checked().map_err(|e| Error::format(path, e.to_string()))?;
        Ok(profile)
    }
}
