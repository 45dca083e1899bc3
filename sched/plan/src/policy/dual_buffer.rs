//! MorphGL's Algorithms 1 to 4, footnote 3 included.

use crate::Schedule;
use crate::policy::{Choose, Pipeline, Snapshot, any};
use crate::state::Step;
use morphgl_registry::Phase;

/// Fill, block, flush. Share 0 is batched by the host (its buffer is the paper's CPU buffer), share 1 by the device.
///
/// The host batches all the time, as far as its buffer allows; the rest is a sequence of decisions as in Algorithm 1.
pub(crate) struct DualBuffer {
    /// MorphGL's cbs: mini-batches that wait, without those in workers.
    host_size: u32,
    device_size: u32,
    /// Mini-batches of the host's buffer that a flush has still to transfer; `None` outside of a flush.
    flush: Option<u32>,
}

impl DualBuffer {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let workers = schedule.shares[0].workers;
        let host_size = schedule.batched.saturating_sub(workers).max(1) as u32;
        Self { host_size, device_size: schedule.ready.max(1) as u32, flush: None }
    }
}

impl Choose for DualBuffer {
    fn next(&mut self, now: &Snapshot<'_>) -> Option<Step> {
        const HOST: usize = 0;
        const DEVICE: usize = 1;
        let of = |share, phase| Some(Step { share, phase }).filter(|&step| now.state.can_begin(step));
        let state = now.state;
        if let Some(step) = of(HOST, Phase::Batching) {
            return Some(step);
        }
        // A mini-batch of the device is batched and gathered in one go.
        if state.flows[DEVICE].batching > 0 || state.flows[DEVICE].transferring {
            return None;
        }
        if state.batched(DEVICE) > 0 {
            return of(DEVICE, Phase::Transferring);
        }
        let host_waits = state.batched(HOST);
        let host_ends = state.left(HOST) == 0 && state.flows[HOST].batching == 0;
        if let Some(left) = self.flush {
            // Algorithm 4: train ready mini-batches, and transfer the host's buffer into the slots that become free.
            if let Some(step) = any(now, Phase::Training) {
                return Some(step);
            }
            if left > 0 {
                let step = of(HOST, Phase::Transferring)?;
                self.flush = Some(left - 1);
                return Some(step);
            }
            if state.ready() > 0 || state.flows[HOST].transferring {
                return None;
            }
            self.flush = None;
        }
        if state.left(DEVICE) == 0 || (host_ends && host_waits == 0) {
            // Algorithm 1, line 10: the remaining mini-batches are of one route.
            return Pipeline.next(now);
        }
        let host_full = host_waits >= self.host_size || host_ends;
        let device_full = state.ready() >= self.device_size;
        match (host_full, device_full) {
            // Algorithm 2, and Algorithm 3 with a full host buffer: the device batches on.
            (_, false) => of(DEVICE, Phase::Batching),
            // Footnote 3: the device trains one mini-batch and batches another in its place.
            (false, true) => any(now, Phase::Training),
            (true, true) => {
                self.flush = Some(host_waits);
                self.next(now)
            }
        }
    }
}
