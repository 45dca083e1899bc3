//! Configuration of the simulated accelerator: durations, memory, faults.

use std::time::Duration;

use morphgl_registry::{BatchId, Error};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

/// A kind of work with a configured duration: a phase on some hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// `batching-cpu`: a worker on the host makes a mini-batch.
    BatchingCpu,
    /// `transferring-pcie`: a mini-batch is copied to the device.
    TransferringPcie,
    /// `batching-device`: the device makes a mini-batch.
    BatchingDevice,
    /// `transferring-device`: the device gathers a mini-batch's features.
    TransferringDevice,
    /// `training`: the device trains a mini-batch.
    Training,
    /// `transferring-peer`: a mini-batch is copied from another device, and its features are gathered.
    TransferringPeer,
}

/// A change of speed during a run: `slow=training*2@0:500`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slow {
    /// Affected work.
    pub work: Work,
    /// Factor on its duration; below 1 it becomes faster.
    pub factor: f64,
    /// First affected mini-batch; all later ones are affected, in the order of (epoch, index).
    pub from: BatchId,
}

/// How an operator fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// `error`: it returns an error.
    Error,
    /// `panic`: it panics.
    Panic,
    /// `hang`: it occupies its resources without returning, until its operator is dropped or
    /// [`crate::Device::release`] is called.
    Hang,
    /// `memory`: the device's memory is full.
    Memory,
}

/// A failure at one mini-batch: `fault=training:panic@0:17`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fault {
    /// Failing work.
    pub work: Work,
    /// Kind of failure.
    pub kind: FaultKind,
    /// Failing mini-batch.
    pub at: BatchId,
}

/// Configuration of a simulated accelerator.
///
/// Written `batching-cpu=20ms,training=5ms,memory=14`: parts in any order, absent ones have their defaults. In JSON it is
/// that text, or an object of the same parts (`{"training": "5ms", "memory": 14, "fault": ["training:panic@0:17"]}`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "String")]
pub struct Config {
    /// Duration of each [`Work`], in the order of [`Work::ALL`], before noise and changes of speed. Default 20, 3, 8, 4, 5
    /// and 4 ms.
    pub durations: [Duration; 6],
    /// Capacity of device memory in mini-batches. Default 14.
    pub memory: usize,
    /// Number of devices of this configuration. Default 1.
    pub devices: u32,
    /// Coefficient of variation of every duration. Default 0: durations are constant.
    pub noise: f64,
    /// Changes of speed; those of the same work multiply. Default none.
    pub slow: Vec<Slow>,
    /// Failures. Default none.
    pub faults: Vec<Fault>,
    /// Distinguishes devices of equal configuration (`name=a`). Default empty; ASCII letters, digits, `-` and `_` only, or it
    /// cannot be parsed back.
    pub name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            durations: [20, 3, 8, 4, 5, 4].map(Duration::from_millis),
            memory: 14,
            devices: 1,
            noise: 0.0,
            slow: Vec::new(),
            faults: Vec::new(),
            name: String::new(),
        }
    }
}

impl Config {
    /// A device with durations of zero and memory for `memory` mini-batches, for tests of content.
    pub fn instant(memory: usize) -> Self {
        Self { memory, durations: [Duration::ZERO; 6], ..Self::default() }
    }

    /// Duration of `work` for the mini-batch `id`: a function of the configuration and of both, the same in every run.
    ///
    /// Noise is log-normal with mean 1, drawn by a hash of (work, epoch, index).
    pub fn duration(&self, work: Work, id: BatchId) -> Duration {
        let slow = self.slow.iter().filter(|s| s.work == work && s.from <= id).map(|s| s.factor).product::<f64>();
        let (mean, factor) = (self.durations[work as usize], slow * self.noise_factor(work, id));
        if factor == 1.0 { mean } else { mean.mul_f64(factor) }
    }

    fn noise_factor(&self, work: Work, id: BatchId) -> f64 {
        if self.noise == 0.0 {
            return 1.0;
        }
        let uniform = |lane: u32| {
            let words = [work as u32, id.epoch, id.index, lane];
            ((xxh3_64(bytemuck::cast_slice(&words)) >> 12) as f64 + 0.5) / (1u64 << 52) as f64
        };
        let normal = (-2.0 * uniform(0).ln()).sqrt() * (std::f64::consts::TAU * uniform(1)).cos();
        let variance = (self.noise * self.noise).ln_1p();
        (normal * variance.sqrt() - variance / 2.0).exp()
    }

    /// Configured failure of `work` at the mini-batch `id`, if any.
    pub fn fault(&self, work: Work, id: BatchId) -> Option<FaultKind> {
        self.faults.iter().find(|f| f.work == work && f.at == id).map(|f| f.kind)
    }
}

impl From<Config> for String {
    fn from(config: Config) -> String {
        config.to_string()
    }
}

impl TryFrom<Value> for Config {
    type Error = Error;

    fn try_from(value: Value) -> Result<Self, Error> {
        let wrong = |v: &Value| {
            let message = format!("{v} is not a configuration; give a text or an object, for example \"training=5ms\"");
            Error::setting("simulated accelerator", message)
        };
        let part = |key: &str, v: &Value| match v {
            Value::String(text) => Ok(format!("{key}={text}")),
            Value::Number(number) => Ok(format!("{key}={number}")),
            other => Err(wrong(other)),
        };
        match &value {
            Value::String(text) => text.parse(),
            Value::Object(parts) => {
                let each = parts.iter().map(|(key, v)| match v {
                    Value::Array(list) => list.iter().map(|v| part(key, v)).collect::<Result<Vec<_>, _>>(),
                    v => part(key, v).map(|p| vec![p]),
                });
                each.collect::<Result<Vec<_>, _>>()?.concat().join(",").parse()
            }
            other => Err(wrong(other)),
        }
    }
}
