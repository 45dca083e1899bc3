//! MorphGL's Algorithms 1 to 4, footnote 3 included.

use morphgl_registry::Phase;

use crate::Schedule;
use crate::state::{State, Step};

/// Share 0, batched by the host: its buffer is the paper's CPU buffer.
const HOST: usize = 0;
/// Share 1, batched by the device.
const DEVICE: usize = 1;

/// Fill, block, flush.
///
/// The host batches all the time, as far as its buffer allows; the rest is a sequence of decisions as in Algorithm 1.
pub(super) struct DualBuffer {
    /// MorphGL's cbs: mini-batches that wait, without those in workers.
    host_size: u32,
    device_size: u32,
    /// Mini-batches of the host's buffer that a flush has still to transfer; `None` outside of a flush.
    flush: Option<u32>,
}

impl DualBuffer {
    pub(super) fn new(schedule: &Schedule) -> Self {
        let host_size = schedule.batched.saturating_sub(schedule.shares[HOST].workers).max(1) as u32;
        Self { host_size, device_size: schedule.ready.max(1) as u32, flush: None }
    }

    pub(super) fn next(&mut self, state: &State) -> Option<Step> {
        if let Some(step) = state.step(HOST, Phase::Batching) {
            return Some(step);
        }
        let (host, device) = (&state.progress[HOST], &state.progress[DEVICE]);
        // A mini-batch of the device is batched and gathered in one go.
        if device.batching > 0 || device.transferring {
            return None;
        }
        if state.batched(DEVICE) > 0 {
            return state.step(DEVICE, Phase::Transferring);
        }
        if let Some(left) = self.flush {
            // Algorithm 4: train ready mini-batches, and transfer the host's buffer into the slots that become free.
            if let Some(step) = state.first(Phase::Training) {
                return Some(step);
            }
            if left > 0 {
                let step = state.step(HOST, Phase::Transferring)?;
                self.flush = Some(left - 1);
                return Some(step);
            }
            if state.ready() > 0 || host.transferring {
                return None;
            }
            self.flush = None;
        }
        let host_waits = state.batched(HOST);
        let host_ends = state.left(HOST) == 0 && host.batching == 0;
        if state.left(DEVICE) == 0 || (host_ends && host_waits == 0) {
            // Algorithm 1, line 10: the remaining mini-batches are of one route.
            return super::pipeline(state);
        }
        if state.ready() < self.device_size {
            // Algorithm 2, and Algorithm 3 with a full host buffer: the device batches on.
            return state.step(DEVICE, Phase::Batching);
        }
        if host_waits < self.host_size && !host_ends {
            // Footnote 3: the device trains one mini-batch and batches another in its place.
            return state.first(Phase::Training);
        }
        self.flush = Some(host_waits);
        self.next(state)
    }
}
