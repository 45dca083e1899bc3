//! The policy that follows a given order.

use crate::Schedule;
use crate::order::{Begun, Order, Replay};
use crate::policy::{Choose, Snapshot};
use crate::state::Step;

/// Follows an order as the executor does.
pub(crate) struct Replayed {
    replay: Replay,
    under_way: Vec<Begun>,
}

impl Replayed {
    pub(crate) fn new(schedule: &Schedule, order: &Order) -> Self {
        Self { replay: Replay::new(schedule, order), under_way: Vec::new() }
    }
}

impl Choose for Replayed {
    fn next(&mut self, _: &Snapshot<'_>) -> Option<Step> {
        let begun = self.replay.begin()?;
        self.under_way.push(begun);
        Some(begun.step)
    }

    fn position(&self) -> Option<u32> {
        self.under_way.last().map(|begun| begun.batch)
    }

    fn ended(&mut self, step: Step, number: u32) {
        let found = self.under_way.iter().position(|b| (b.step, b.number) == (step, number));
        self.replay.end(self.under_way.swap_remove(found.expect("what ends has begun")));
    }
}
