//! Pre-sampling (PreSC; GNNLab, EuroSys'22, §6): access counts of mini-batches sampled in advance, on the device.

use std::sync::Arc;

use morphgl_cuda::Buffer;
use morphgl_hotness::Hotness;
use morphgl_registry::{BatchId, Result};

use crate::shared::Shared;
use crate::worker::{Counters, Worker};

/// Counts accesses of the first `batches` mini-batches of each of `epochs` epochs, scaled to one epoch. Sampled are the last
/// epochs of the counter's range, which are never trained.
pub(crate) fn presample(shared: &Arc<Shared>, epochs: u32, batches: Option<u32>) -> Result<Hotness> {
    let all = shared.num_batches() as u32;
    let made = batches.unwrap_or(all).min(all);
    let mut worker = Worker::new(shared, 1)?;
    let counters = {
        let (stream, num_nodes) = (worker.stream(), shared.degrees.num_nodes() as usize);
        let mut counters = Counters { nodes: Buffer::new(stream, num_nodes)?, rows: Buffer::new(stream, num_nodes)? };
        stream.fill(&mut counters.nodes, 0)?;
        stream.fill(&mut counters.rows, 0)?;
        counters
    };
    let mut under_way = None;
    for epoch in 0..epochs {
        for index in 0..made {
            let handle = worker.make(BatchId { epoch: u32::MAX - epoch, index }, 0..usize::MAX, Some(&counters))?;
            // Two in flight, so that the device stays busy and memory bounded.
            if let Some(before) = under_way.replace(handle) {
                before.wait()?;
            }
        }
    }
    if let Some(last) = under_way {
        last.wait()?;
    }
    let scale = f64::from(all) / (f64::from(made) * f64::from(epochs));
    let scaled = |accesses: &Buffer<u32>| -> Result<Arc<[f32]>> {
        let accesses = accesses.to_vec(worker.stream())?;
        Ok(accesses.into_iter().map(|count| (f64::from(count) * scale) as f32).collect())
    };
    Ok(Hotness { features: scaled(&counters.nodes)?, rows: scaled(&counters.rows)? })
}
