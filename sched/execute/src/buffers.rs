//! How many mini-batches there are in the schedule's two buffers, and the buffers of trained ones, to be used again.

use morphgl_plan::{Phase, Schedule, Step};
use morphgl_registry::MiniBatch;

/// Counts mini-batches as a schedule does, and keeps spares only as far as they and the mini-batches fit what it allows.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Of each share, whether it batches where it trains.
    in_place: Vec<bool>,
    /// Places: for batched mini-batches, and for ready ones.
    size: [usize; 2],
    batched: usize,
    ready: usize,
    training: usize,
    /// The most of each at once.
    pub(crate) peak: [usize; 2],
    /// Of each share, mini-batches whose buffers its workers use again.
    spares: Vec<Vec<MiniBatch>>,
}

impl Buffers {
    pub(crate) fn new(schedule: &Schedule, spares: Vec<Vec<MiniBatch>>) -> Self {
        let in_place: Vec<bool> = schedule.shares.iter().map(|s| s.in_place).collect();
        let batched = if in_place.iter().all(|&p| p) { 0 } else { schedule.batched.max(1) };
        let size = [batched, schedule.ready.max(1)];
        let mut buffers = Self { in_place, size, batched: 0, ready: 0, training: 0, peak: [0; 2], spares };
        buffers.trim();
        buffers
    }

    /// Shares of the schedule.
    pub(crate) fn shares(&self) -> usize {
        self.in_place.len()
    }

    /// The most mini-batches there are at once, the one in training included.
    pub(crate) fn places(&self) -> usize {
        self.size[0].saturating_add(self.size[1]).saturating_add(1)
    }

    /// A step begins; for batching, the buffers it may use again.
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

    /// A mini-batch was trained; `spare` is it, where its buffers can be used again.
    pub(crate) fn trained(&mut self, share: usize, spare: Option<MiniBatch>) {
        self.training -= 1;
        self.spares[share].extend(spare);
        self.trim();
    }

    /// The spares of every share.
    pub(crate) fn into_spares(self) -> Vec<Vec<MiniBatch>> {
        self.spares
    }

    /// Drops spares that would take the place of mini-batches: of routes that batch where they train, in that memory;
    /// and of all, in all memory.
    fn trim(&mut self) {
        let [batched, ready] = self.size;
        let live = self.ready + self.training;
        while live + self.count(true) > ready + 1 && self.drop_one(true) {}
        while self.batched + live + self.count(true) + self.count(false) > batched + ready + 1
            && (self.drop_one(false) || self.drop_one(true))
        {}
    }

    fn count(&self, in_place: bool) -> usize {
        self.spares.iter().zip(&self.in_place).filter(|(_, p)| **p == in_place).map(|(s, _)| s.len()).sum()
    }

    /// Drops a spare of the share that has most of them; whether there was one.
    fn drop_one(&mut self, in_place: bool) -> bool {
        let shares = self.spares.iter_mut().zip(&self.in_place).filter(|(_, p)| **p == in_place);
        shares.map(|(spares, _)| spares).max_by_key(|spares| spares.len()).is_some_and(|spares| spares.pop().is_some())
    }
}

#[cfg(test)]
mod tests {
    use morphgl_plan::{Hardware, Policy, RouteKeys, Seconds, Share};
    use morphgl_registry::HostBatch;

    use super::*;

    fn share(in_place: bool) -> Share {
        let seconds = Seconds::constant(1.0);
        let name = || "A".to_string();
        Share {
            keys: RouteKeys { batching: name(), transferring: name(), training: name() },
            hardware: Hardware { batching: vec![name()], transferring: vec![name()], training: vec![name()] },
            in_place,
            batches: 4,
            workers: 1,
            threads_per_worker: 1,
            batching: seconds,
            transferring: seconds,
            training: seconds,
            contention: None,
        }
    }

    /// Two shares: the first is moved to where the second batches and both train.
    fn buffers(batched: usize, ready: usize) -> Buffers {
        let schedule = Schedule {
            policy: Policy::DualBuffer,
            resources: Vec::new(),
            shares: vec![share(false), share(true)],
            training_threads: 0,
            batched,
            ready,
            group: 0,
            keep: 0,
            oversubscription: 1.0,
        };
        Buffers::new(&schedule, vec![Vec::new(), Vec::new()])
    }

    fn spare() -> Option<MiniBatch> {
        Some(MiniBatch::Host(HostBatch::default()))
    }

    #[test]
    fn spares_come_back_to_the_share_that_made_them() {
        let mut b = buffers(2, 2);
        let step = |share, phase| Step { share, phase };
        assert!(b.begin(step(1, Phase::Batching)).is_none());
        b.begin(step(1, Phase::Transferring));
        b.begin(step(1, Phase::Training));
        b.trained(1, spare());
        assert!(b.begin(step(0, Phase::Batching)).is_none(), "the other share's");
        assert!(b.begin(step(1, Phase::Batching)).is_some());
        assert_eq!(b.peak, [1, 1]);
    }

    #[test]
    fn spares_make_room_for_what_is_moved_to_their_memory() {
        let mut b = buffers(3, 2);
        let step = |share, phase| Step { share, phase };
        for _ in 0..2 {
            b.begin(step(1, Phase::Batching));
            b.begin(step(1, Phase::Training));
            b.trained(1, spare());
        }
        // One was made anew before the other came back, so there is one more than was ever live.
        b.begin(step(1, Phase::Batching));
        b.begin(step(1, Phase::Batching));
        for _ in 0..2 {
            b.begin(step(1, Phase::Training));
            b.trained(1, spare());
        }
        assert_eq!(b.count(true), 2);
        for left in [2, 1] {
            b.begin(step(0, Phase::Batching));
            b.begin(step(0, Phase::Transferring));
            assert_eq!(b.count(true), left, "two are ready at most, and one is in training");
        }
        assert_eq!(b.peak, [1, 2]);
    }
}
