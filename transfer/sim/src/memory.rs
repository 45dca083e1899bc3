//! Device memory, counted in mini-batches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use morphgl_registry::{BatchId, Error, HostBatch, Key, Result};

#[derive(Debug)]
pub(crate) struct Memory {
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    peak: usize,
    /// Buffers of dropped mini-batches with stale content, for reuse.
    free: Vec<HostBatch>,
}

/// Memory of one mini-batch, freed on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    memory: Arc<Memory>,
    pub(crate) batch: HostBatch,
}

impl Memory {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, state: Mutex::default() }
    }

    /// Allocates a slot for the mini-batch `id`, with stale content.
    pub(crate) fn take(self: &Arc<Self>, key: &Key, id: BatchId) -> Result<Slot> {
        let mut state = self.lock();
        if state.used == self.capacity {
            return Err(self.full(key, id));
        }
        state.used += 1;
        state.peak = state.peak.max(state.used);
        let batch = state.free.pop().unwrap_or_default();
        Ok(Slot { memory: Arc::clone(self), batch })
    }

    pub(crate) fn full(&self, key: &Key, id: BatchId) -> Error {
        let fit = match self.capacity {
            1 => "1 mini-batch fits".to_string(),
            n => format!("{n} mini-batches fit"),
        };
        let message =
            format!("simulated device memory: {fit}, and this is one more; plan with a smaller device buffer");
        Error::setting(format!("{key}, {id}"), message)
    }

    /// Current and peak number of mini-batches.
    pub(crate) fn used(&self) -> (usize, usize) {
        let state = self.lock();
        (state.used, state.peak)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        state.used -= 1;
        state.free.push(std::mem::take(&mut self.batch));
    }
}
