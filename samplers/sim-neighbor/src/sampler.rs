//! Plain neighbour sampling, with the same mini-batches as all batching operators.

use std::ops::Range;
use std::sync::Arc;

use morphgl_registry::{
    BatchId, Batching, BatchingContext, BatchingWorker, Error, GivenNodes, HostBatch, Key, MiniBatch, Place, Result,
};
use morphgl_sampler_core::{HostWorker, NeighborSampler, check_threads};
use morphgl_sim::NeighborBatching;

/// State of an operator that all its workers read.
#[derive(Debug)]
pub(crate) struct Shared(NeighborBatching);

impl Shared {
    /// State of the operator `key` at `place`; `cure` is the cure for another place.
    pub(crate) fn new(context: &BatchingContext, gather: bool, key: Key, place: &Place, cure: &str) -> Result<Self> {
        if context.place != *place {
            let what = format!("it makes mini-batches at {place}, not at {}; {cure}", context.place);
            return Err(Error::setting(key, what));
        }
        // Mini-batches are made in host memory, whatever place they are said to be at.
        let host = BatchingContext { gather, place: Place::Host, ..context.clone() };
        NeighborBatching::new(&host).map(Self)
    }

    /// Bytes of the topology.
    pub(crate) fn topology_bytes(&self) -> u64 {
        let topology = &self.0.host().dataset.topology;
        8 * topology.indptr().len() as u64 + 4 * topology.num_edges()
    }

    pub(crate) fn num_batches(&self) -> usize {
        self.0.num_batches()
    }

    /// The sampler of a worker; more threads do not make it faster.
    pub(crate) fn sampler(&self, threads: usize) -> Result<Sampler> {
        check_threads(threads)?;
        self.0.start(1).map(Sampler)
    }

    /// [`Shared::sampler`] that leaves `given` nodes unexpanded.
    pub(crate) fn sampler_with_given(&self, threads: usize, given: &Arc<dyn GivenNodes>) -> Result<Sampler> {
        check_threads(threads)?;
        self.0.start_with_given(1, given).map(Sampler)
    }
}

/// One worker's sampler, with its own buffers.
#[derive(Debug)]
pub(crate) struct Sampler(HostWorker<NeighborSampler>);

impl Sampler {
    /// Samples a share of the mini-batch `id`; reuses the memory of `batch`, not its content.
    pub(crate) fn sample(&mut self, id: BatchId, share: Range<usize>, batch: &mut HostBatch) -> Result<()> {
        let recycled = MiniBatch::Host(std::mem::take(batch));
        *batch = self.0.prepare_share(id, share, Some(recycled))?.wait()?.0.into_host()?;
        Ok(())
    }
}
