//! What an executor needs to know to run an epoch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How the phases of an epoch's mini-batches follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Policy {
    /// Batch, transfer and train one mini-batch after the other.
    Sequential,
    /// Batch ahead of training, by a pool of workers, through a bounded queue.
    Pipeline,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 2] = [Policy::Sequential, Policy::Pipeline];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Policy::Sequential => "sequential",
            Policy::Pipeline => "pipeline",
        })
    }
}

/// A name that is no policy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy(pub String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Policy::ALL.map(|p| p.to_string()).join(", ");
        write!(f, "{:?}: not a policy; policies are {names}", self.0)
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(s: &str) -> Result<Self, UnknownPolicy> {
        Policy::ALL.into_iter().find(|p| p.to_string() == s).ok_or_else(|| UnknownPolicy(s.to_string()))
    }
}

/// A policy with its thread split and its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Schedule {
    /// How the phases follow each other.
    pub policy: Policy,
    /// Batching workers; a sequential schedule has one.
    pub workers: usize,
    /// Threads each worker spreads a mini-batch over.
    pub threads_per_worker: usize,
    /// Threads training uses.
    pub training_threads: usize,
    /// Mini-batches that may wait, batched, for training; a sequential schedule has none.
    pub queue: usize,
}

impl Schedule {
    /// One mini-batch after the other, with `threads` threads in every phase.
    pub const fn sequential(threads: usize) -> Self {
        let threads = if threads == 0 { 1 } else { threads };
        Self {
            policy: Policy::Sequential,
            workers: 1,
            threads_per_worker: threads,
            training_threads: threads,
            queue: 0,
        }
    }

    /// `workers` workers of one thread each ahead of `training_threads` threads, with a queue of two.
    pub const fn pipeline(workers: usize, training_threads: usize) -> Self {
        let workers = if workers == 0 { 1 } else { workers };
        let training_threads = if training_threads == 0 { 1 } else { training_threads };
        Self { policy: Policy::Pipeline, workers, threads_per_worker: 1, training_threads, queue: 2 }
    }

    /// The most mini-batches in memory at any time.
    pub const fn window(&self) -> usize {
        match self.policy {
            Policy::Sequential => 1,
            Policy::Pipeline => self.workers + self.queue + 1,
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        match self.policy {
            Policy::Sequential => write!(
                f,
                "sequential, {} and {}",
                count(self.threads_per_worker, "batching thread"),
                count(self.training_threads, "training thread")
            ),
            Policy::Pipeline => {
                write!(f, "{}", count(self.workers, "batching worker"))?;
                if self.threads_per_worker > 1 {
                    write!(f, " of {} threads", self.threads_per_worker)?;
                }
                write!(f, ", {}, queue of {}", count(self.training_threads, "training thread"), self.queue)
            }
        }
    }
}
