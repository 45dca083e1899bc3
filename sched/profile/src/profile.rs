//! The profile of a machine's routes, in memory and as a file.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use morphgl_plan::RouteKeys;
use morphgl_platform::{excerpt, read_text, replace_file};
use morphgl_registry::{CacheCurve, Machine, Place, Resource, Route};
use serde::{Deserialize, Serialize};

use crate::transfer::PeakBytes;
use crate::{Error, ErrorKind, Result, Selection, Settings, Statistics};

/// Version of the file's layout.
pub const VERSION: u32 = 2;

/// Maximum bytes of a profile's file.
const MAX_FILE: u64 = 64 << 20;
/// Characters of a message about the file, which quotes it.
const EXCERPT: usize = 300;

/// Measured batching by a pool of one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolSample {
    /// Workers.
    pub workers: usize,
    /// Threads of each.
    pub threads: usize,
    /// Seconds per mini-batch of the pool: a worker's time, with all of them at work, divided by their number.
    pub seconds: Statistics,
}

/// Measured training with one count of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainingSample {
    /// Threads.
    pub threads: usize,
    /// Seconds per mini-batch: accumulate and step.
    pub seconds: Statistics,
}

/// Measured interference of batching and training, both at full speed on the same cores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InterferenceSample {
    /// Batching workers.
    pub workers: usize,
    /// Threads of each.
    pub threads: usize,
    /// Threads of training.
    pub training_threads: usize,
    /// Seconds per mini-batch of the pool.
    pub batching: Statistics,
    /// Seconds per mini-batch of training.
    pub training: Statistics,
}

/// A split of the cores: workers, threads of each, and threads of training.
pub(crate) type Counts = (usize, usize, usize);

impl InterferenceSample {
    pub(crate) fn counts(&self) -> Counts {
        (self.workers, self.threads, self.training_threads)
    }
}

/// Durations of every phase on one route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteProfile {
    /// Its operators and places.
    pub route: Route,
    /// Mean edges of the measured mini-batches.
    pub edges_per_batch: f64,
    /// Mean bytes of a measured mini-batch where it is trained.
    pub bytes_per_batch: f64,
    /// Peak bytes of the measured mini-batches and of a worker.
    pub largest: PeakBytes,
    /// Batching, one sample per pool.
    pub batching: Vec<PoolSample>,
    /// Transferring.
    pub transferring: Statistics,
    /// Training, one sample per count of threads.
    pub training: Vec<TrainingSample>,
    /// Interference of batching and training, one sample per split of the cores.
    #[serde(alias = "together")]
    pub interference: Vec<InterferenceSample>,
    /// Seconds per mini-batch with all phases at once, where the operators of all three queue work on one device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlapped: Option<Statistics>,
    /// The batching operator's cache in host memory, if it has one, with the size that the durations were measured with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheCurve>,
    /// The transferring operator's cache in the device's memory, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_cache: Option<CacheCurve>,
    /// Part of the looked-up rows that this cache had, 0 to 1; `None` where its hits do not tell those of an epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_rate: Option<f64>,
}

/// A link that several devices share: a PCIe switch, or the bandwidth of the host's memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkProfile {
    /// Its name.
    pub name: String,
    /// The devices behind it.
    pub users: Vec<LinkShare>,
}

/// A device behind a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkShare {
    /// The device.
    pub place: Place,
    /// The resource of its routes that uses the link, such as `PCIe:0`.
    pub resource: String,
    /// The part of the link's bandwidth that copies to the device take while no other device copies, above 0 and at most 1.
    pub fraction: f64,
}

impl fmt::Display for LinkProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        for (i, LinkShare { resource, fraction, .. }) in self.users.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{resource} takes {:.0}% of its bandwidth alone", 100.0 * fraction)?;
        }
        Ok(())
    }
}

/// Durations of every phase on every route of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Version of the file's layout: [`VERSION`].
    pub version: u32,
    /// The machine it was measured on.
    pub machine: Machine,
    /// The settings it was measured with.
    pub settings: Settings,
    /// Mini-batches of an epoch.
    pub num_batches: usize,
    /// Choices among training operators, for the places with several.
    #[serde(default)]
    pub selections: Vec<Selection>,
    /// The routes, in the order they were given.
    pub routes: Vec<RouteProfile>,
    /// Points not measured, because the budget was spent, they do not fit in memory, or phases failed concurrently that succeeded alone.
    pub skipped: Vec<String>,
    /// Seconds that profiling took, the choice among training operators included.
    pub seconds: f64,
    /// Peak host memory, in bytes, of the process while no worker batched: dataset, caches, model, a step of training and its
    /// mini-batches; 0 where it was not measured.
    #[serde(default)]
    pub held_bytes: u64,
    /// Links that devices share, where there are several devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkProfile>,
}

impl RouteProfile {
    /// The route's keys as the planner has them.
    pub fn keys(&self) -> RouteKeys {
        RouteKeys::from(&self.route)
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
    /// Writes the profile as JSON, to a temporary file that is then renamed.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(format_error(path))?;
        replace_file(path, |out| writeln!(out, "{text}")).map_err(io_error(path))
    }

    /// Reads a profile.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is longer than 64 MiB, is no profile of this version, or no plan can be made from it.
    pub fn load(path: &Path) -> Result<Self> {
        Self::parse(path, &read_text(path, MAX_FILE).map_err(io_error(path))?)
    }

    /// The profile that a file has as its text; errors name `path`.
    ///
    /// # Errors
    ///
    /// As of [`Profile::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Self> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(format_error(path))?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(v) if v == u64::from(VERSION) => {}
            Some(v) => return Err(format_error(path)(format!("it is of version {v}, this program reads {VERSION}"))),
            None => return Err(format_error(path)("it has no version")),
        }
        let profile: Self = serde_json::from_value(value).map_err(format_error(path))?;
        profile.check().map_err(format_error(path))?;
        Ok(profile)
    }
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> Error {
    move |e| Error::new(path.display(), ErrorKind::Io(e))
}

fn format_error<E: ToString>(path: &Path) -> impl Fn(E) -> Error {
    // Messages of a parser quote the file.
    move |e| Error::new(path.display(), ErrorKind::Format(excerpt(&e.to_string(), EXCERPT).into_owned()))
}
