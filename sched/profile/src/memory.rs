//! Host memory: measurements stay within the limit, and the memory of a worker is measured by the way.

use crate::profile::on_host;
use crate::transfer::PeakBytes;
use crate::{MemoryLimit, RouteProfile};

/// Measured memory of the process; all zeros without a limit.
pub(crate) struct MemoryMonitor<'a> {
    limit: Option<MemoryLimit<'a>>,
    /// Peak bytes by which a worker of the host made the process grow, with its mini-batch; of the workers of all routes.
    worker: u64,
    /// Peak bytes at the beginning, and while training ran alone.
    without_workers: u64,
}

impl<'a> MemoryMonitor<'a> {
    pub(crate) fn new(limit: Option<MemoryLimit<'a>>) -> Self {
        let mut monitor = Self { limit, worker: 0, without_workers: 0 };
        monitor.without_workers = monitor.now();
        monitor
    }

    /// Bytes that the process holds now.
    fn now(&self) -> u64 {
        // The first call resets the peak.
        self.peak();
        self.peak()
    }

    /// Peak bytes since the last call.
    fn peak(&self) -> u64 {
        self.limit.map_or(0, |m| (m.peak)())
    }

    /// Bytes that the process may still take.
    pub(crate) fn available(&self) -> u64 {
        self.limit.map_or(u64::MAX, |m| m.limit.saturating_sub(self.now()))
    }

    /// Whether so many workers fit, with mini-batches a quarter larger than those measured.
    pub(crate) fn fits(&self, workers: usize) -> bool {
        (self.worker / 4 * 5).saturating_mul(workers as u64) <= self.available()
    }

    /// Runs `work`; also returns the bytes by which the process grew at most.
    pub(crate) fn growth<T>(&self, work: impl FnOnce() -> T) -> (T, u64) {
        let before = self.now();
        let value = work();
        (value, self.peak().saturating_sub(before))
    }

    /// Bytes for workers and mini-batches besides training; `None` without a limit.
    pub(crate) fn available_besides_training(&self) -> Option<u64> {
        self.limit.map(|m| m.limit.saturating_sub(self.without_workers()))
    }

    /// Runs `pool`, alone, of so many workers.
    pub(crate) fn pool<T>(&mut self, workers: usize, pool: impl FnOnce() -> T) -> T {
        let (value, grown) = self.growth(pool);
        self.worker = self.worker.max(grown / workers.max(1) as u64);
        value
    }

    /// Runs `training`, alone.
    pub(crate) fn training<T>(&mut self, training: impl FnOnce() -> T) -> T {
        self.now();
        let value = training();
        self.without_workers = self.without_workers.max(self.peak());
        value
    }

    /// Raises the routes' bytes of a worker of the host to those measured.
    pub(crate) fn raise_worker_bytes(&self, routes: &mut [RouteProfile]) {
        for route in routes.iter_mut().filter(|r| on_host(&r.route.batching)) {
            let PeakBytes { batched_bytes, worker_bytes, .. } = &mut route.largest;
            *worker_bytes = self.worker.saturating_sub(*batched_bytes).max(*worker_bytes);
        }
    }

    /// Peak bytes without workers.
    pub(crate) fn without_workers(&self) -> u64 {
        self.without_workers.max(self.now())
    }
}
