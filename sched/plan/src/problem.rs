//! What is to be planned: resources, routes over them with their durations, and limits.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Durations, Invalid};

/// A unit of hardware that phases compete for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Its name, as the hardware of keys has it.
    pub name: String,
    /// The cores that threads of all phases share; without any it is held by one phase at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<usize>,
}

impl Resource {
    /// A resource that one phase holds at a time.
    pub fn exclusive(name: impl Into<String>) -> Self {
        Self { name: name.into(), cores: None }
    }

    /// A resource of `cores` cores.
    pub fn shared(name: impl Into<String>, cores: usize) -> Self {
        Self { name: name.into(), cores: Some(cores.max(1)) }
    }
}

/// The operators of a route, by their keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RouteKeys {
    /// Who batches.
    pub batching: String,
    /// Who transfers.
    pub transferring: String,
    /// Who trains.
    pub training: String,
}

impl fmt::Display for RouteKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {} → {}", self.batching, self.transferring, self.training)
    }
}

/// The resources each phase of a route holds, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// Held while batching.
    pub batching: Vec<String>,
    /// Held while transferring.
    pub transferring: Vec<String>,
    /// Held while training.
    pub training: Vec<String>,
}

/// What a mini-batch and a worker take in memory.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Bytes {
    /// A mini-batch where it was batched, in bytes.
    pub batched: u64,
    /// A mini-batch where it is trained, in bytes.
    pub ready: u64,
    /// What a worker takes at its place beside mini-batches, in bytes.
    pub worker: u64,
}

/// A route and what is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its operators, for plans to name.
    pub keys: RouteKeys,
    /// What its phases hold.
    pub hardware: Hardware,
    /// Whether it batches at the place where it trains (Route 1, and routes of one machine's CPU alone):
    /// a mini-batch then takes its place in the buffer of ready ones when its batching begins.
    pub in_place: bool,
    /// Whether mini-batches are trained in the host's memory.
    pub on_host: bool,
    /// How long each phase takes.
    pub durations: Durations,
    /// What it takes in memory.
    #[serde(default)]
    pub bytes: Bytes,
}

/// What a plan may use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Mini-batches that may wait, ready, for training: the paper's gbs. Default 10.
    pub ready: usize,
    /// Mini-batches that may wait, batched, for a transfer, those in workers' hands counted: at most this many. Default 64.
    pub batched: usize,
    /// Threads a plan may have beyond the cores. Default 1.
    pub extra_threads: usize,
    /// How much longer core-seconds get when threads outnumber the cores, where it was not measured; a factor from 1. Default 1.1.
    pub crowding: f64,
    /// Bytes of host memory for buffers and workers; `None` is no limit.
    pub host_bytes: Option<u64>,
    /// Bytes of device memory for buffers; `None` is no limit.
    pub device_bytes: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { ready: 10, batched: 64, extra_threads: 1, crowding: 1.1, host_bytes: None, device_bytes: None }
    }
}

/// Resources, routes over them, and an epoch to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Problem {
    // Invariant: every name in a route's hardware is a resource's; at most one resource has cores; there is a route.
    pub(crate) num_batches: usize,
    pub(crate) resources: Vec<Resource>,
    pub(crate) routes: Vec<Candidate>,
    /// What a plan may use.
    pub limits: Limits,
}

#[derive(Deserialize)]
struct Unchecked {
    num_batches: usize,
    resources: Vec<Resource>,
    routes: Vec<Candidate>,
    #[serde(default)]
    limits: Limits,
}

impl TryFrom<Unchecked> for Problem {
    type Error = Invalid;

    fn try_from(u: Unchecked) -> Result<Self, Invalid> {
        Ok(Self { limits: u.limits, ..Self::new(u.num_batches, u.resources, u.routes)? })
    }
}

impl Problem {
    /// Takes the parts of a problem, with default limits.
    ///
    /// # Errors
    ///
    /// No route, a phase that holds nothing or a resource that is not there, a resource named twice, two with cores, or more than 32.
    pub fn new(num_batches: usize, resources: Vec<Resource>, routes: Vec<Candidate>) -> Result<Self, Invalid> {
        let fault = |what: String| Err(Invalid(what));
        if routes.is_empty() {
            return fault("a planning problem: no route; give one at least".to_string());
        }
        if resources.len() > 32 || num_batches > u32::MAX as usize {
            return fault(
                "a planning problem: at most 32 resources and 2^32 - 1 mini-batches can be planned".to_string(),
            );
        }
        if resources.iter().filter(|r| r.cores.is_some()).count() > 1 {
            return fault(
                "a planning problem: two resources have cores; threads share those of one machine".to_string(),
            );
        }
        for (i, resource) in resources.iter().enumerate() {
            if resources[..i].iter().any(|r| r.name == resource.name) {
                return fault(format!("resource {}: named twice; name each once", resource.name));
            }
        }
        for route in &routes {
            let Hardware { batching, transferring, training } = &route.hardware;
            for (phase, names) in [("batching", batching), ("transferring", transferring), ("training", training)] {
                if names.is_empty() {
                    return fault(format!("{}: {phase} holds no resource; name one", route.keys));
                }
                if let Some(name) = names.iter().find(|n| resources.iter().all(|r| r.name != **n)) {
                    return fault(format!("{}: {phase} holds {name}, which is not among the resources", route.keys));
                }
            }
        }
        Ok(Self { num_batches, resources, routes, limits: Limits::default() })
    }

    /// The same problem with other limits.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The same problem for another number of mini-batches.
    pub fn with_batches(mut self, num_batches: usize) -> Self {
        self.num_batches = num_batches.min(u32::MAX as usize);
        self
    }

    /// Mini-batches of the epoch.
    pub fn num_batches(&self) -> usize {
        self.num_batches
    }

    /// The resources.
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// The routes.
    pub fn routes(&self) -> &[Candidate] {
        &self.routes
    }

    /// The cores threads share; 1 where no resource has cores.
    pub fn cores(&self) -> usize {
        self.resources.iter().find_map(|r| r.cores).unwrap_or(1)
    }

    pub(crate) fn is_shared(&self, name: &str) -> bool {
        self.resources.iter().any(|r| r.name == name && r.cores.is_some())
    }

    /// The exclusive resources among `names`, as a set of bits by position.
    pub(crate) fn exclusive(&self, names: &[String]) -> u32 {
        let held = |(_, r): &(usize, &Resource)| r.cores.is_none() && names.contains(&r.name);
        self.resources.iter().enumerate().filter(held).map(|(i, _)| 1 << i).sum()
    }
}
