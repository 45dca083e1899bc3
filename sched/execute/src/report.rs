//! What a run tells while it runs and when it ends.

use std::ops::{AddAssign, Range};

use morphgl_registry::{BatchId, Score};
use serde::{Deserialize, Serialize};

/// One phase of one mini-batch.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Span {
    /// Seconds from the run's start until it began.
    pub start: f64,
    /// Seconds it took, waiting for the operator's handle included.
    pub seconds: f64,
    /// Seconds it kept its resource busy, as the operator measured.
    pub busy: f64,
}

/// A mini-batch that went through all its phases.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BatchDone {
    /// Which one.
    pub id: BatchId,
    /// Its seeds.
    pub seeds: usize,
    /// Its edges, of all blocks; 0 where batching leaves it on a device.
    pub edges: usize,
    /// Its score; of [`prepare`](crate::prepare), what the caller's function returned.
    pub score: Score,
    /// Which worker batched it, from 0.
    pub worker: usize,
    /// Batching.
    pub batching: Span,
    /// Transferring; all zeros where there is none.
    pub transferring: Span,
    /// Training: accumulate and step; of [`prepare`](crate::prepare), the caller's function.
    pub training: Span,
    /// Seconds training waited for it.
    pub waited: f64,
    /// Mini-batches that were batched and waiting, this one not counted, when training took it.
    pub ready: usize,
}

/// Seconds summed up by phase.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PhaseSeconds {
    /// Batching, over all workers.
    pub batching: f64,
    /// Transferring.
    pub transferring: f64,
    /// Training.
    pub training: f64,
}

/// What one run over (part of) an epoch came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// The epoch.
    pub epoch: u32,
    /// Index of the first mini-batch asked for.
    pub first: u32,
    /// Index after the last mini-batch trained: where to go on after an early stop.
    pub next: u32,
    /// Whether it was stopped before the last mini-batch asked for.
    pub stopped: bool,
    /// Seconds from start to end.
    pub seconds: f64,
    /// Mini-batches trained.
    pub batches: usize,
    /// Their seeds.
    pub seeds: u64,
    /// Their edges; 0 where batching leaves them on a device.
    pub edges: u64,
    /// Their scores, added up.
    pub score: Score,
    /// Seconds each phase kept its resource busy.
    pub busy: PhaseSeconds,
    /// Seconds training waited for mini-batches: its stalls.
    pub trainer_waited: f64,
    /// Seconds all workers together waited for room in the window.
    pub workers_waited: f64,
    /// The most mini-batches in memory at once.
    pub peak_in_flight: usize,
}

impl AddAssign for PhaseSeconds {
    fn add_assign(&mut self, other: Self) {
        self.batching += other.batching;
        self.transferring += other.transferring;
        self.training += other.training;
    }
}

impl EpochReport {
    pub(crate) fn new(epoch: u32, batches: &Range<u32>) -> Self {
        Self {
            epoch,
            first: batches.start,
            next: batches.start,
            stopped: false,
            seconds: 0.0,
            batches: 0,
            seeds: 0,
            edges: 0,
            score: Score::default(),
            busy: PhaseSeconds::default(),
            trainer_waited: 0.0,
            workers_waited: 0.0,
            peak_in_flight: 0,
        }
    }

    pub(crate) fn add(&mut self, done: &BatchDone) {
        self.next += 1;
        self.batches += 1;
        self.seeds += done.seeds as u64;
        self.edges += done.edges as u64;
        self.score += done.score;
        let (batching, transferring) = (done.batching.busy, done.transferring.busy);
        self.busy += PhaseSeconds { batching, transferring, training: done.training.busy };
        self.trainer_waited += done.waited;
    }
}
