//! Policies: the choice of the phase that begins next.

mod dual_buffer;
mod interleaved;
mod replayed;

pub(crate) use replayed::Replayed;

use morphgl_registry::Phase;

use crate::state::{State, Step};
use crate::{Policy, Schedule, Seconds};

/// The state of the simulation that a policy decides from.
pub(crate) struct Snapshot<'a> {
    pub(crate) state: &'a State,
    pub(crate) time: f64,
    /// When each exclusive resource was, or will be, free.
    pub(crate) ends: &'a [f64],
    /// Durations of each share's phases.
    pub(crate) seconds: &'a [[Seconds; 3]],
}

impl Snapshot<'_> {
    /// When the phases that hold `resources` now will have ended.
    pub(crate) fn free_at(&self, resources: u32) -> f64 {
        let held = self.ends.iter().enumerate().filter(|(i, _)| resources >> i & 1 == 1);
        held.map(|(_, end)| *end).fold(self.time, f64::max)
    }

    pub(crate) fn seconds(&self, step: Step) -> f64 {
        self.seconds[step.share][step.phase as usize].mean
    }
}

/// A policy.
pub(crate) trait Choose {
    /// A step that may begin now, or `None` to wait for something to end.
    fn next(&mut self, now: &Snapshot<'_>) -> Option<Step>;

    /// Position in the epoch of the mini-batch whose step was chosen last; `None` where positions follow the beginnings of batching.
    fn position(&self) -> Option<u32> {
        None
    }

    /// Called when a step of the mini-batch with this number in its share has ended.
    fn ended(&mut self, _step: Step, _number: u32) {}
}

/// The schedule's own policy.
pub(crate) fn of(schedule: &Schedule) -> Box<dyn Choose> {
    match schedule.policy {
        Policy::Sequential => Box::new(Sequential),
        Policy::Pipeline => Box::new(Pipeline),
        Policy::DualBuffer => Box::new(dual_buffer::DualBuffer::new(schedule)),
        Policy::Interleaved => Box::new(interleaved::Interleaved::new(schedule)),
    }
}

/// The first share whose `phase` may begin.
pub(crate) fn any(now: &Snapshot<'_>, phase: Phase) -> Option<Step> {
    (0..now.state.specs.len()).map(|share| Step { share, phase }).find(|&step| now.state.can_begin(step))
}

/// One mini-batch after the other.
struct Sequential;

impl Choose for Sequential {
    fn next(&mut self, now: &Snapshot<'_>) -> Option<Step> {
        let step = any(now, Phase::Training).or_else(|| any(now, Phase::Transferring));
        let begun: u32 = now.state.flows.iter().map(|f| f.begun[0]).sum();
        step.or_else(|| if begun == now.state.trained { any(now, Phase::Batching) } else { None })
    }
}

/// Every phase as soon as it can begin; later phases first.
pub(crate) struct Pipeline;

impl Choose for Pipeline {
    fn next(&mut self, now: &Snapshot<'_>) -> Option<Step> {
        let step = any(now, Phase::Training).or_else(|| any(now, Phase::Transferring));
        step.or_else(|| any(now, Phase::Batching))
    }
}
