//! What begins next: one choice a policy.

mod dual_buffer;
mod interleaved;
mod replayed;

pub(crate) use replayed::Replayed;

use crate::state::{Phase, State, Step};
use crate::{Policy, Schedule};

/// What a policy sees.
pub(crate) struct Now<'a> {
    pub(crate) state: &'a State,
    pub(crate) time: f64,
    /// When each exclusive resource was, or will be, free.
    pub(crate) ends: &'a [f64],
    /// Mean seconds of each share's phases.
    pub(crate) seconds: &'a [[f64; 3]],
}

impl Now<'_> {
    /// When all of `resources` are free of what holds them now.
    pub(crate) fn free_at(&self, resources: u32) -> f64 {
        let held = self.ends.iter().enumerate().filter(|(i, _)| resources >> i & 1 == 1);
        held.map(|(_, end)| *end).fold(self.time, f64::max)
    }

    pub(crate) fn seconds(&self, step: Step) -> f64 {
        self.seconds[step.share][step.phase as usize]
    }
}

/// Chooses what begins next.
pub(crate) trait Choose {
    /// A step that may begin now, or `None` to wait for something to end.
    fn next(&mut self, now: &Now<'_>) -> Option<Step>;

    /// Where in the epoch the mini-batch stands whose step was chosen last; `None` when it is where its batching begins.
    fn position(&self) -> Option<u32> {
        None
    }

    /// A step has ended, of the mini-batch with this number in its share.
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
pub(crate) fn any(now: &Now<'_>, phase: Phase) -> Option<Step> {
    (0..now.state.fixed.len()).map(|share| Step { share, phase }).find(|&step| now.state.can_begin(step))
}

/// One mini-batch after the other.
struct Sequential;

impl Choose for Sequential {
    fn next(&mut self, now: &Now<'_>) -> Option<Step> {
        let step = any(now, Phase::Training).or_else(|| any(now, Phase::Transferring));
        let begun: u32 = now.state.flows.iter().map(|f| f.begun[0]).sum();
        step.or_else(|| if begun == now.state.trained { any(now, Phase::Batching) } else { None })
    }
}

/// Everything as soon as it can, what is nearest to its end first.
pub(crate) struct Pipeline;

impl Choose for Pipeline {
    fn next(&mut self, now: &Now<'_>) -> Option<Step> {
        let step = any(now, Phase::Training).or_else(|| any(now, Phase::Transferring));
        step.or_else(|| any(now, Phase::Batching))
    }
}
