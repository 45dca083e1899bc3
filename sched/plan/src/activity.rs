//! One phase of one mini-batch with its time span: predicted by the simulator, or measured by the executor.

use morphgl_registry::{BatchId, Phase};
use serde::{Deserialize, Serialize};

/// When a phase of a mini-batch kept its resources busy, in seconds from the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Span {
    /// Its start.
    pub start: f64,
    /// Its end.
    pub end: f64,
}

impl Span {
    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        self.end - self.start
    }
}

/// One phase of one mini-batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// The mini-batch; of a simulated epoch, epoch 0 and its position.
    pub id: BatchId,
    /// Index of the share in the schedule.
    pub share: usize,
    /// The phase.
    pub phase: Phase,
    /// Index of the worker within the share, while batching; else 0.
    pub worker: usize,
    /// When.
    pub span: Span,
}
