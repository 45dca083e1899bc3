//! Who watches an epoch: events, and checkpoints within it.

use morphgl_execute::{Event, TrainingState};

use crate::Position;

/// What is done with an epoch's events.
pub(crate) trait Watcher {
    fn observe(&mut self, event: &Event<'_>);
    /// Whether a checkpoint is due; asked after every trained mini-batch.
    fn is_due(&mut self) -> bool;
    /// Keeps a checkpoint between two steps.
    fn keep(&mut self, position: &Position, training: &TrainingState);
}

/// Observes, and keeps no checkpoint.
pub(crate) struct Observer<'a>(pub(crate) &'a mut dyn FnMut(&Event<'_>));

impl Watcher for Observer<'_> {
    fn observe(&mut self, event: &Event<'_>) {
        (self.0)(event);
    }

    fn is_due(&mut self) -> bool {
        false
    }

    fn keep(&mut self, _: &Position, _: &TrainingState) {}
}
