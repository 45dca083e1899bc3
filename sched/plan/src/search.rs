//! The candidates, and what is predicted of each.

use serde::{Deserialize, Serialize};

use crate::{Durations, Plans, RouteKeys};

/// What a plan may use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Longest queue, in mini-batches. Default 16.
    pub max_queue: usize,
    /// Threads a plan may have beyond the cores. Default 1.
    pub extra_threads: usize,
    /// How much longer core-seconds get when threads outnumber the cores, as a factor from 1. Default 1.1.
    pub crowding: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_queue: 16, extra_threads: 1, crowding: 1.1 }
    }
}

/// One route whose phases share the cores of one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// The operators, for the plan to name.
    pub route: RouteKeys,
    /// Mini-batches of an epoch.
    pub num_batches: usize,
    /// Cores; 0 counts as 1.
    pub cores: usize,
    /// How long each phase takes.
    pub durations: Durations,
    /// What a plan may use.
    pub limits: Limits,
}

/// Predicts every candidate and sorts them.
pub fn plan(problem: &Problem) -> Plans {
    todo!("{problem:?}")
}
