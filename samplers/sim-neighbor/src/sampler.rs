//! Plain neighbour sampling, with the same mini-batches as all batching operators.

use std::ops::Range;
use std::sync::Arc;

use morphgl_registry::{
    BatchId, BatchingContext, BatchingWorker, Error, GivenNodes, HostBatch, Key, MiniBatch, NeighborSettings, Place,
    Result,
};
use morphgl_sampler_core::{Expected, HostBatching, HostWorker, NeighborSampler, check_threads};

/// State of an operator that all its workers read.
#[derive(Debug)]
pub(crate) struct Shared {
    host: Arc<HostBatching>,
    settings: NeighborSettings,
    expected: Arc<Expected>,
}

impl Shared {
    /// State of the operator `key` at `place`; `cure` is the cure for another place.
    pub(crate) fn new(context: &BatchingContext, gather: bool, key: Key, place: &Place, cure: &str) -> Result<Self> {
        if context.place != *place {
            let what = format!("it makes mini-batches at {place}, not at {}; {cure}", context.place);
            return Err(Error::setting(key, what));
        }
        let settings = context.settings.neighbor()?.clone();
        // Mini-batches are made in host memory, whatever place they are said to be at.
        let host = BatchingContext { gather, place: Place::Host, ..context.clone() };
        Ok(Self { host: Arc::new(HostBatching::new(&host)?), settings, expected: Arc::default() })
    }

    /// Bytes of the topology.
    pub(crate) fn topology_bytes(&self) -> u64 {
        let topology = &self.host.dataset.topology;
        8 * topology.indptr().len() as u64 + 4 * topology.num_edges()
    }

    pub(crate) fn num_batches(&self) -> usize {
        self.host.epochs.num_batches()
    }

    /// The sampler of a worker; more threads do not make it faster.
    pub(crate) fn sampler(&self, threads: usize) -> Result<Sampler> {
        self.sampler_with(threads, |sampler| sampler)
    }

    /// [`Shared::sampler`] that leaves `given` nodes unexpanded.
    pub(crate) fn sampler_with_given(&self, threads: usize, given: &Arc<dyn GivenNodes>) -> Result<Sampler> {
        self.host.check_given()?;
        self.sampler_with(threads, |sampler| sampler.with_given(given))
    }

    /// [`Shared::sampler`] with other settings.
    fn sampler_with(&self, threads: usize, set: impl FnOnce(NeighborSampler) -> NeighborSampler) -> Result<Sampler> {
        check_threads(threads)?;
        let sampler = NeighborSampler::new(&self.host.dataset.topology, self.settings.clone(), 1, &self.expected);
        Ok(Sampler(HostWorker::new(Arc::clone(&self.host), 1, set(sampler))?))
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
