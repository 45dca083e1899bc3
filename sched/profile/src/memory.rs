//! Host memory: what is measured stays within what is allowed, and what a worker really takes is learned on the way.

use crate::profile::on_host;
use crate::{Largest, Memory, RouteProfile};

/// What was seen of the process's memory so far; nothing where nobody tells.
pub(crate) struct Seen<'a> {
    memory: Option<Memory<'a>>,
    /// The most that the process grew a worker of the host, its mini-batch counted, whoever's worker it was.
    worker: u64,
    /// The most that was held at the beginning, or while training ran alone.
    held: u64,
}

impl<'a> Seen<'a> {
    pub(crate) fn new(memory: Option<Memory<'a>>) -> Self {
        let mut seen = Self { memory, worker: 0, held: 0 };
        seen.held = seen.now();
        seen
    }

    /// Bytes held now.
    fn now(&self) -> u64 {
        let Some(Memory { peak, .. }) = self.memory else { return 0 };
        // What was before is forgotten by asking.
        peak();
        peak()
    }

    fn peak(&self) -> u64 {
        self.memory.map_or(0, |m| (m.peak)())
    }

    /// Whether so many workers fit beside all that is held now, with mini-batches a quarter larger than those seen.
    pub(crate) fn fits(&self, workers: usize) -> bool {
        let taken = (self.worker / 4 * 5).saturating_mul(workers as u64);
        self.memory.is_none_or(|m| self.now().saturating_add(taken) <= m.limit)
    }

    /// Whether so many bytes fit beside all that is held now, and how many would.
    pub(crate) fn has_room_for(&self, bytes: u64) -> (bool, u64) {
        let room = self.memory.map_or(u64::MAX, |m| m.limit.saturating_sub(self.now()));
        (bytes <= room, room)
    }

    /// Runs `work`; how much the process grew by it, too.
    pub(crate) fn growth<T>(&mut self, work: impl FnOnce() -> T) -> (T, u64) {
        let before = self.now();
        let value = work();
        (value, self.peak().saturating_sub(before))
    }

    /// Bytes for workers and mini-batches beside training; `None` where there is no limit.
    pub(crate) fn room_beside_training(&self) -> Option<u64> {
        self.memory.map(|m| m.limit.saturating_sub(self.held()))
    }

    /// Runs `pool`, of so many workers and nothing beside them.
    pub(crate) fn pool<T>(&mut self, workers: usize, pool: impl FnOnce() -> T) -> T {
        let (value, grown) = self.growth(pool);
        self.worker = self.worker.max(grown / workers.max(1) as u64);
        value
    }

    /// Runs `training`, with nothing beside it.
    pub(crate) fn training<T>(&mut self, training: impl FnOnce() -> T) -> T {
        self.now();
        let value = training();
        self.held = self.held.max(self.peak());
        value
    }

    /// Takes over what a worker of the host took beside its mini-batch, where that is more than is known of it.
    pub(crate) fn workers_of(&self, routes: &mut [RouteProfile]) {
        for route in routes.iter_mut().filter(|r| on_host(&r.route.batching)) {
            let Largest { batched_bytes, worker_bytes, .. } = &mut route.largest;
            *worker_bytes = self.worker.saturating_sub(*batched_bytes).max(*worker_bytes);
        }
    }

    /// The most bytes that were held without workers, until now.
    pub(crate) fn held(&self) -> u64 {
        self.held.max(self.now())
    }
}
