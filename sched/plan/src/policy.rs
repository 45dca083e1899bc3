//! Policies: the choice of the phase that begins next.

mod dual_buffer;
mod interleaved;

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

/// Chooses a step that may begin now, or `None` to wait for a step to end.
pub(crate) type Choose = Box<dyn FnMut(&Snapshot<'_>) -> Option<Step>>;

/// The schedule's own policy.
pub(crate) fn of(schedule: &Schedule) -> Choose {
    match schedule.policy {
        Policy::Sequential => Box::new(|now| sequential(now.state)),
        Policy::Pipeline => Box::new(|now| pipeline(now.state)),
        Policy::DualBuffer => {
            let mut policy = dual_buffer::DualBuffer::new(schedule);
            Box::new(move |now| policy.next(now.state))
        }
        Policy::Interleaved => {
            let mut policy = interleaved::Interleaved::new(schedule);
            Box::new(move |now| policy.next(now))
        }
    }
}

/// One mini-batch after the other.
fn sequential(state: &State) -> Option<Step> {
    let batching = || state.first(Phase::Batching).filter(|_| state.begun(Phase::Batching) == state.trained);
    state.first(Phase::Training).or_else(|| state.first(Phase::Transferring)).or_else(batching)
}

/// Every phase as soon as it can begin; later phases first.
fn pipeline(state: &State) -> Option<Step> {
    Phase::ALL.into_iter().rev().find_map(|phase| state.first(phase))
}
