//! Pre-sampling (PreSC; GNNLab, EuroSys'22, §6): access counts of mini-batches sampled in advance, on the device.

use std::sync::Arc;

use morphgl_cuda::Buffer;
use morphgl_hotness::Hotness;
use morphgl_registry::{BatchId, Error, Result};

use crate::shared::Shared;
use crate::worker::{Counters, Worker};

/// Counts accesses of the first `batches` mini-batches of each of `epochs` epochs, scaled to one epoch. It samples the last
/// epochs that the counter numbers, which are never trained.
///
/// # Errors
///
/// More epochs than there are, or a device that fails.
pub(crate) fn presample(shared: &Arc<Shared>, epochs: u32, batches: Option<u32>) -> Result<Hotness> {
    let last = shared.kind.last_epoch();
    if epochs > last {
        let message = format!("pre-sampling {epochs} epochs leaves none to train, of {last}; give fewer");
        return Err(Error::setting(&shared.kind.key, message));
    }
    let num_batches = shared.num_batches() as u32;
    let sampled = batches.unwrap_or(num_batches).min(num_batches);
    let mut worker = Worker::new(shared, 1)?;
    let counters = Counters::new(worker.stream(), shared.num_nodes)?;
    let mut in_flight = None;
    for id in (0..epochs).flat_map(|epoch| (0..sampled).map(move |index| BatchId { epoch: last - epoch, index })) {
        let handle = worker.make(id, 0..usize::MAX, Some(&counters))?;
        // Two in flight, so that the device stays busy and memory bounded.
        if let Some(previous) = in_flight.replace(handle) {
            previous.wait()?;
        }
    }
    if let Some(last) = in_flight {
        last.wait()?;
    }
    let scale = f64::from(num_batches) / (f64::from(sampled) * f64::from(epochs));
    let scaled = |accesses: &Buffer<u32>| -> Result<Arc<[f32]>> {
        let accesses = accesses.to_vec(worker.stream())?;
        Ok(accesses.into_iter().map(|count| (f64::from(count) * scale) as f32).collect())
    };
    Ok(Hotness { features: scaled(&counters.nodes)?, rows: scaled(&counters.rows)? })
}
