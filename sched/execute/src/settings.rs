//! Settings of executors and pools.

use std::time::Duration;

/// Settings of an [`Executor`](crate::Executor).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// Time limit of one phase of one mini-batch; `None` waits for ever. Default `None`.
    pub limit: Option<Duration>,
    /// Whether reports keep every phase of every mini-batch. Default false.
    pub record: bool,
}

/// Workers of a [`Pool`](crate::Pool), and the length of their queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSettings {
    /// Workers, each in a thread of its own; with 0, mini-batches are prepared on the caller's thread on demand.
    pub workers: usize,
    /// Threads each worker spreads a mini-batch over; 0 counts as 1.
    pub threads_per_worker: usize,
    /// Mini-batches that may wait for the caller, besides those the workers are preparing.
    pub queue: usize,
}

impl PoolSettings {
    /// On the caller's thread, each mini-batch spread over `threads` threads.
    pub const fn here(threads: usize) -> Self {
        Self { workers: 0, threads_per_worker: threads, queue: 0 }
    }

    /// `workers` workers of one thread each, with a queue of two.
    pub const fn ahead(workers: usize) -> Self {
        Self { workers, threads_per_worker: 1, queue: 2 }
    }

    /// Maximum number of mini-batches in memory at any time: one per worker, the queue, and the caller's own.
    pub const fn window(&self) -> usize {
        if self.workers == 0 { 1 } else { self.workers + self.queue + 1 }
    }
}
