//! Occupancy of the schedule's two buffers, and spare mini-batches whose memory workers use again.

use morphgl_plan::{Phase, Schedule, Step};
use morphgl_registry::MiniBatch;

/// Counts mini-batches as the schedule does, and keeps spares as far as they and the mini-batches fit its capacities.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Of each share, whether it batches at the place where it trains.
    in_place: Vec<bool>,
    /// Capacities of the batched and of the ready buffer.
    capacity: [usize; 2],
    batched: usize,
    ready: usize,
    training: usize,
    /// Peak occupancy of each buffer.
    pub(crate) peak: [usize; 2],
    /// Of each share, mini-batches whose memory its workers use again.
    pub(crate) spares: Vec<Vec<MiniBatch>>,
}

impl Buffers {
    pub(crate) fn new(schedule: &Schedule, spares: Vec<Vec<MiniBatch>>) -> Self {
        let in_place: Vec<bool> = schedule.shares.iter().map(|s| s.in_place).collect();
        let batched = if in_place.iter().all(|&p| p) { 0 } else { schedule.batched.max(1) };
        let capacity = [batched, schedule.ready.max(1)];
        let mut buffers = Self { in_place, capacity, batched: 0, ready: 0, training: 0, peak: [0; 2], spares };
        buffers.trim();
        buffers
    }

    /// Maximum number of mini-batches at once, the one in training included.
    pub(crate) fn total_capacity(&self) -> usize {
        self.capacity[0].saturating_add(self.capacity[1]).saturating_add(1)
    }

    /// Counts a step that begins; returns a spare for batching to use again.
    pub(crate) fn begin(&mut self, step: Step) -> Option<MiniBatch> {
        let mut spare = None;
        match (step.phase, self.in_place[step.share]) {
            (Phase::Batching, in_place) => {
                spare = self.spares[step.share].pop();
                *if in_place { &mut self.ready } else { &mut self.batched } += 1;
            }
            (Phase::Transferring, false) => {
                self.batched -= 1;
                self.ready += 1;
            }
            (Phase::Transferring, true) => {}
            (Phase::Training, _) => {
                self.ready -= 1;
                self.training += 1;
            }
        }
        self.peak = [self.peak[0].max(self.batched), self.peak[1].max(self.ready)];
        self.trim();
        spare
    }

    /// Counts a trained mini-batch, which becomes a spare where its memory can be used again.
    pub(crate) fn trained(&mut self, share: usize, spare: Option<MiniBatch>) {
        self.training -= 1;
        self.spares[share].extend(spare);
        self.trim();
    }

    /// Drops spares that exceed the capacities together with the mini-batches: first those of shares that batch where they
    /// train, in the memory of that place; then those of all shares, in all memory.
    fn trim(&mut self) {
        let [batched, ready] = self.capacity;
        let live = self.ready + self.training;
        while live + self.count(true) > ready + 1 && self.drop_one(true) {}
        while self.batched + live + self.count(true) + self.count(false) > batched + ready + 1
            && (self.drop_one(false) || self.drop_one(true))
        {}
    }

    fn count(&self, in_place: bool) -> usize {
        self.spares.iter().zip(&self.in_place).filter(|(_, p)| **p == in_place).map(|(s, _)| s.len()).sum()
    }

    /// Drops a spare of the share that has most of them; returns whether there was one.
    fn drop_one(&mut self, in_place: bool) -> bool {
        let shares = self.spares.iter_mut().zip(&self.in_place).filter(|(_, p)| **p == in_place);
        shares.map(|(spares, _)| spares).max_by_key(|spares| spares.len()).is_some_and(|spares| spares.pop().is_some())
    }
}

#[cfg(test)]
mod tests;
