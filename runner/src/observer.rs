//! Who watches a run: the command line, which prints, or a program, which may draw or log.

use std::fmt::{Debug, Display};
use std::sync::Arc;

use morphgl_execute::{Event, Stop};
use morphgl_model_core::{ScoreKind, Task};
use morphgl_profile::Progress;

/// What training begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    /// Mini-batches of an epoch.
    pub steps_per_epoch: usize,
    /// The most epochs there are.
    pub epochs: u32,
    /// Whether early stopping may end training sooner.
    pub open: bool,
    /// What the best model and early stopping go by.
    pub score: ScoreKind,
    /// What is learned.
    pub task: Task,
    /// Mini-batches that were trained before this process, where the run is resumed; else 0.
    pub done: u64,
}

/// Watches a run. Calls come from the thread that runs the session, one after the other.
pub trait Observer: Debug + Send + Sync {
    /// A remark: what was done otherwise than one may expect, or what deserves attention.
    fn remark(&self, _text: &dyn Display) {}

    /// A line of the account that the run gives of itself: operators, plan, memory.
    fn line(&self, _text: &dyn Display) {}

    /// Progress of measurements; `None` once they are done.
    fn measures(&self, _progress: Option<&Progress>) {}

    /// Training begins.
    fn begins(&self, _beginning: Beginning) {}

    /// An event of training.
    fn observe(&self, _event: &Event<'_>) {}

    /// Training has ended.
    fn ends(&self) {}

    /// From now on the run ends in order when `stop` is requested. Before, an interruption has to end the process.
    fn heeds(&self, _stop: &Stop) {}

    /// What also watches training at the ranks whose run another rank shows: its beginning, its events and its end.
    fn of_every_rank(&self) -> Option<&dyn Observer> {
        None
    }
}

/// An observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// The observer of every rank but the first, whose run is not shown: it passes on interruptions, and training to
/// [`Observer::of_every_rank`].
#[derive(Debug)]
pub(crate) struct OfOtherRank(pub(crate) Arc<dyn Observer>);

impl Observer for OfOtherRank {
    fn begins(&self, beginning: Beginning) {
        self.0.of_every_rank().iter().for_each(|observer| observer.begins(beginning));
    }

    fn observe(&self, event: &Event<'_>) {
        self.0.of_every_rank().iter().for_each(|observer| observer.observe(event));
    }

    fn ends(&self) {
        self.0.of_every_rank().iter().for_each(|observer| observer.ends());
    }

    fn heeds(&self, stop: &Stop) {
        self.0.heeds(stop);
    }
}
