//! The profile of a machine's routes, in memory and as a file.

use std::fs;
use std::path::Path;

use morphgl_plan::RouteKeys;
use morphgl_registry::{Machine, Resource, Route};
use serde::{Deserialize, Serialize};

use crate::chain::Largest;
use crate::{Error, Result, Selection, Settings, Statistics};

/// Version of the file's layout.
pub const VERSION: u32 = 2;

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

/// Batching and training beside each other on the same cores, each as fast as it can.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TogetherSample {
    /// Batching workers.
    pub workers: usize,
    /// Threads of each.
    pub threads: usize,
    /// Threads training used.
    pub training_threads: usize,
    /// Seconds a mini-batch of the pool.
    pub batching: Statistics,
    /// Seconds a mini-batch of training.
    pub training: Statistics,
}

/// Every phase's duration on one route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteProfile {
    /// Its operators and places.
    pub route: Route,
    /// Mean edges of the measured mini-batches.
    pub edges_per_batch: f64,
    /// Mean bytes of a measured mini-batch where it is trained.
    pub bytes_per_batch: f64,
    /// The largest measured mini-batch.
    pub largest: Largest,
    /// Batching, one sample a pool.
    pub batching: Vec<PoolSample>,
    /// Transferring.
    pub transferring: Statistics,
    /// Training, one sample a count of threads.
    pub training: Vec<TrainingSample>,
    /// Batching and training beside each other, one sample a split of the cores.
    pub together: Vec<TogetherSample>,
}

/// Every phase's duration on every route of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Version of the file's layout: [`VERSION`].
    pub version: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// How it was measured.
    pub settings: Settings,
    /// Mini-batches of an epoch.
    pub num_batches: usize,
    /// Which training operators were chosen, where there were several at a place.
    #[serde(default)]
    pub selections: Vec<Selection>,
    /// The routes, in the order they were given.
    pub routes: Vec<RouteProfile>,
    /// Points left out because the budget was spent.
    pub skipped: Vec<String>,
    /// Seconds that profiling took, choosing among training operators included.
    pub seconds: f64,
    /// The most host memory, in bytes, that the process held while no worker batched: dataset, model, a step of training and
    /// its mini-batches; 0 where it was not watched.
    #[serde(default)]
    pub held_bytes: u64,
}

impl RouteProfile {
    /// The route's keys as the planner names them.
    pub fn keys(&self) -> RouteKeys {
        let Route { batching, transferring, training, .. } = &self.route;
        let (batching, transferring) = (batching.to_string(), transferring.to_string());
        RouteKeys { batching, transferring, training: training.to_string() }
    }

    /// Whether batching and training share the host's cores.
    pub(crate) fn shares_cores(&self) -> bool {
        on_host(&self.route.batching) && on_host(&self.route.training)
    }
}

/// Whether an operator runs on the host's cores.
pub(crate) fn on_host(key: &morphgl_registry::Key) -> bool {
    key.hardware.resources().contains(&Resource::CPU)
}

impl Profile {
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
    /// The file cannot be read, is no profile of this version, or holds what no plan can be made from.
    pub fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| Error::format(path, e.to_string()))?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(v) if v == u64::from(VERSION) => {}
            Some(v) => return Err(Error::format(path, format!("it is of version {v}, this program reads {VERSION}"))),
            None => return Err(Error::format(path, "it has no version".to_string())),
        }
        let profile: Self = serde_json::from_value(value).map_err(|e| Error::format(path, e.to_string()))?;
        profile.check().map_err(|e| Error::format(path, e.to_string()))?;
        Ok(profile)
    }
}
