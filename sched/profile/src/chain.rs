//! Mini-batches on their way to training: transferring, batching by a device, and what both take in memory.

use std::time::Instant;

use morphgl_registry::{BatchId, HostBatch, MiniBatch, Place};
use serde::{Deserialize, Serialize};

use crate::course::Sampling;
use crate::{Error, Result, RouteOperators, pool};

/// Bytes an input node takes in a worker's own buffers, at most: ids, a hash table at most half full, positions, degrees.
const WORKER_NODE_BYTES: u64 = 64;

/// The largest of the measured mini-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Largest {
    /// Bytes where it was batched: of all its arrays; on a device what it says that it takes there, or what a copy in host
    /// memory has.
    pub batched_bytes: u64,
    /// Bytes where it is trained, counted in the same way.
    pub ready_bytes: u64,
    /// Bytes a worker takes at its place beside mini-batches, as it says; if it does not, an upper estimate of its buffers
    /// for it in host memory: the mini-batch without features, and 64 an input node; on a device 0.
    pub worker_bytes: u64,
}

/// What was seen of a route's mini-batches before training.
pub(crate) struct Chain {
    /// Seconds of batching by one worker of a device, or by whoever made what was transferred.
    pub(crate) batching: Vec<f64>,
    pub(crate) transferring: Vec<f64>,
    /// Mini-batches ready for training.
    pub(crate) ready: Vec<MiniBatch>,
    pub(crate) largest: Largest,
    pub(crate) edges: f64,
    pub(crate) bytes: f64,
}

/// Makes and transfers mini-batches one by one with a worker of `threads` threads, and keeps up to `keep` of them.
pub(crate) fn measure(
    operators: &mut RouteOperators<'_>,
    threads: usize,
    keep: usize,
    sampling: Sampling<'_>,
) -> Result<Chain> {
    let (route, batching) = (operators.route, operators.batching);
    let usable = pool::usable(batching);
    let mut worker = Error::catch(&route.batching, || batching.worker(threads))?;
    let mut chain = Chain {
        batching: Vec::new(),
        transferring: Vec::new(),
        ready: Vec::new(),
        largest: Largest::default(),
        edges: 0.0,
        bytes: 0.0,
    };
    let (mut recycled, mut seen) = (None, 0);
    for i in 0.. {
        sampling.go_on()?;
        let id = BatchId { epoch: sampling.epoch, index: (i % usable) as u32 };
        let (prepared, batching_took) = Error::catch(&route.batching, || worker.prepare(id, recycled.take())?.wait())?;
        chain.largest.batched_bytes = chain.largest.batched_bytes.max(held(&prepared));
        let said = worker.num_bytes();
        chain.largest.worker_bytes = chain.largest.worker_bytes.max(said.unwrap_or(0));
        // What is already known of a device's mini-batches is not copied to the host again.
        let first = seen == 0;
        if let Some((whole, topology)) = size(&prepared, &route.batching, first)? {
            chain.largest.batched_bytes = chain.largest.batched_bytes.max(whole.1);
            if said.is_none() && prepared.place() == Place::Host {
                chain.largest.worker_bytes = chain.largest.worker_bytes.max(topology);
            }
        }
        let (moved, transferring_took) =
            Error::catch(&route.transferring, || operators.transferring.transfer(prepared)?.wait())?;
        if i >= sampling.warm_up {
            chain.batching.push(batching_took.as_secs_f64());
            chain.transferring.push(transferring_took.as_secs_f64());
        }
        chain.largest.ready_bytes = chain.largest.ready_bytes.max(held(&moved));
        if let Some(((edges, bytes), _)) = size(&moved, &route.transferring, first)? {
            chain.largest.ready_bytes = chain.largest.ready_bytes.max(bytes);
            chain.edges += edges as f64;
            chain.bytes += bytes as f64;
            seen += 1;
        }
        if chain.ready.len() < keep {
            chain.ready.push(moved);
        } else if moved.place() == Place::Host && route.batched_at == Place::Host {
            recycled = Some(moved);
        }
        let enough = chain.transferring.len() >= sampling.batches || Instant::now() >= sampling.deadline;
        if enough && chain.ready.len() == keep && !chain.transferring.is_empty() {
            break;
        }
    }
    let seen = f64::from(u32::try_from(seen.max(1)).unwrap_or(u32::MAX));
    (chain.edges, chain.bytes) = (chain.edges / seen, chain.bytes / seen);
    Ok(chain)
}

/// Bytes that a mini-batch takes on a device, where it says so.
fn held(batch: &MiniBatch) -> u64 {
    match batch {
        MiniBatch::Host(_) => 0,
        MiniBatch::Device(batch) => batch.num_bytes().unwrap_or(0),
    }
}

/// Edges and bytes of a mini-batch, and the bytes of a worker's buffers that could have made it; of one on a device only the first.
fn size(batch: &MiniBatch, by: &morphgl_registry::Key, first: bool) -> Result<Option<((usize, u64), u64)>> {
    let of = |batch: &HostBatch| {
        let whole = batch.num_bytes() as u64;
        let features = batch.features.as_ref().map_or(0, |f| f.as_bytes().len() as u64);
        let worker = whole - features + WORKER_NODE_BYTES * batch.input_nodes.len() as u64;
        ((batch.num_edges(), whole), worker)
    };
    Ok(match batch {
        MiniBatch::Host(batch) => Some(of(batch)),
        MiniBatch::Device(batch) if first => Some(of(&Error::catch(by, || batch.to_host())?)),
        MiniBatch::Device(_) => None,
    })
}
