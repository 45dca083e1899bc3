//! Transferring, batching by a device, and the memory of both.

use std::time::Instant;

use morphgl_registry::{BatchId, HostBatch, Key, MiniBatch, Place, RouteOperators};
use serde::{Deserialize, Serialize};

use crate::budget::{Sampling, check_stop};
use crate::pool::full_batches;
use crate::{Error, Result};

/// Maximum bytes of a worker's own buffers per input node: ids, a hash table at most half full, positions, degrees.
const WORKER_NODE_BYTES: u64 = 64;

/// Peak bytes of the measured mini-batches and of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PeakBytes {
    /// A mini-batch where it was batched: all its arrays; on a device the bytes that it reports, or those of a copy in host
    /// memory.
    pub batched_bytes: u64,
    /// A mini-batch where it is trained, counted in the same way.
    pub ready_bytes: u64,
    /// A worker at its place besides mini-batches, as it reports; otherwise an upper estimate of its buffers in host memory:
    /// the mini-batch without features, and 64 per input node; on a device 0.
    pub worker_bytes: u64,
}

/// Measurements of a route's mini-batches before training.
#[derive(Default)]
pub(crate) struct TransferSamples {
    /// Seconds of batching by one worker.
    pub(crate) batching: Vec<f64>,
    pub(crate) transferring: Vec<f64>,
    /// Mini-batches ready for training.
    pub(crate) ready: Vec<MiniBatch>,
    pub(crate) peak: PeakBytes,
    /// Mean number of sampled edges of a mini-batch, over all blocks.
    pub(crate) edges: f64,
    /// Mean bytes of a mini-batch where it is trained.
    pub(crate) bytes: f64,
}

/// Batches and transfers mini-batches one by one with a worker of `threads` threads, and keeps `keep` of them.
pub(crate) fn measure(
    operators: &mut RouteOperators,
    threads: usize,
    keep: usize,
    sampling: Sampling<'_>,
) -> Result<TransferSamples> {
    let RouteOperators { route, batching, transferring } = operators;
    let full = full_batches(batching.as_ref());
    let mut worker = Error::catch(&route.batching, || batching.worker(threads))?;
    let mut samples = TransferSamples::default();
    let (mut recycled, mut counted) = (None, 0.0);
    for i in 0.. {
        check_stop(sampling.stop)?;
        let id = BatchId { epoch: sampling.epoch, index: (i % full) as u32 };
        let (batched, batching_took) = Error::catch(&route.batching, || worker.prepare(id, recycled.take())?.wait())?;
        // Only the first of a device's mini-batches is copied to the host.
        let first = counted == 0.0;
        let size = Size::of(&batched, &route.batching, first)?;
        let estimate = if batched.place() == Place::Host { size.worker_bytes } else { 0 };
        let peak = &mut samples.peak;
        peak.batched_bytes = peak.batched_bytes.max(size.bytes);
        peak.worker_bytes = peak.worker_bytes.max(worker.num_bytes().unwrap_or(estimate));
        let (moved, transferring_took) = Error::catch(&route.transferring, || transferring.transfer(batched)?.wait())?;
        if i >= sampling.warm_up {
            samples.batching.push(batching_took.as_secs_f64());
            samples.transferring.push(transferring_took.as_secs_f64());
        }
        let size = Size::of(&moved, &route.transferring, first)?;
        peak.ready_bytes = peak.ready_bytes.max(size.bytes);
        if let Some((edges, bytes)) = size.arrays {
            samples.edges += edges as f64;
            samples.bytes += bytes as f64;
            counted += 1.0;
        }
        if samples.ready.len() < keep {
            samples.ready.push(moved);
        } else if moved.place() == Place::Host && route.batched_at == Place::Host {
            recycled = Some(moved);
        }
        let enough = samples.transferring.len() >= sampling.batches || Instant::now() >= sampling.deadline;
        if enough && samples.ready.len() == keep && !samples.transferring.is_empty() {
            break;
        }
    }
    samples.edges /= f64::max(counted, 1.0);
    samples.bytes /= f64::max(counted, 1.0);
    Ok(samples)
}

/// The size of a mini-batch.
#[derive(Default)]
struct Size {
    /// Edges, and bytes of all arrays; `None` on a device, where no copy was made.
    arrays: Option<(usize, u64)>,
    /// Bytes of memory.
    bytes: u64,
    /// Estimated bytes of the buffers of a worker that makes it.
    worker_bytes: u64,
}

impl Size {
    /// The size of a mini-batch; with `copy`, that of a device is copied to the host to measure its arrays.
    fn of(batch: &MiniBatch, operator: &Key, copy: bool) -> Result<Self> {
        Ok(match batch {
            MiniBatch::Host(batch) => Self::of_host(batch),
            MiniBatch::Device(batch) => {
                let size =
                    if copy { Self::of_host(&Error::catch(operator, || batch.to_host())?) } else { Self::default() };
                Self { bytes: size.bytes.max(batch.num_bytes().unwrap_or(0)), ..size }
            }
        })
    }

    fn of_host(batch: &HostBatch) -> Self {
        let bytes = batch.num_bytes() as u64;
        let features = batch.features.as_ref().map_or(0, |f| f.as_bytes().len() as u64);
        let worker_bytes = bytes - features + WORKER_NODE_BYTES * batch.input_nodes.len() as u64;
        Self { arrays: Some((batch.num_edges(), bytes)), bytes, worker_bytes }
    }
}
