//! What is measured, and how much of it.

use std::time::Duration;

use morphgl_registry::{Batching, Route, Training, Transferring};

/// The operators to measure.
#[derive(Debug)]
pub struct Operators<'a> {
    /// Their keys.
    pub route: &'a Route,
    /// Who batches.
    pub batching: &'a dyn Batching,
    /// Who transfers.
    pub transferring: &'a mut dyn Transferring,
    /// Who trains. Parameters and optimizer state are the same after profiling as before; no gradients are left.
    pub training: &'a mut dyn Training,
}

/// How much is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Time to spend, roughly. What is needed for a plan at all is measured even when it takes longer. Default 5 s.
    pub budget: Duration,
    /// Mini-batches each worker, or training, handles before measuring starts, at each point. Default 1.
    pub warm_up: usize,
    /// Mini-batches measured at each point, by each worker or by training. Fewer when the budget ends. Default 8.
    pub batches: usize,
    /// Batching: (workers, threads a worker). One worker of one thread is added when it is missing.
    pub pools: Vec<(usize, usize)>,
    /// Training: counts of threads.
    pub training_threads: Vec<usize>,
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
        let budget = Duration::from_secs(5);
        Self { budget, warm_up: 1, batches: 8, pools, training_threads: counts, epoch: 0 }
    }
}

/// How far profiling is, for a progress bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// What is measured next, in words: `batching with 2 workers`.
    pub what: String,
    /// Points done.
    pub done: usize,
    /// Points in all.
    pub total: usize,
}
