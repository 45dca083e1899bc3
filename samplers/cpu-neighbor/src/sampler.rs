//! The operator, and the sampling of its workers.

use std::sync::Arc;

use morphgl_registry::{Batching, BatchingContext, BatchingWorker, HostBatch, NeighborSettings, Result};
use morphgl_sampler_core::{Expected, HostBatching, HostHops, HostWorker, SampleSeeds, check_threads, sample_hops};

/// Phase Batching by neighbour sampling on CPU threads, `Batching_CPU_Neighbor`.
#[derive(Debug, Clone)]
pub struct CpuNeighbor {
    host: Arc<HostBatching>,
    settings: NeighborSettings,
    expected: Arc<Expected>,
}

impl CpuNeighbor {
    /// Builds the operator.
    ///
    /// # Errors
    ///
    /// Settings of another kind of sampling, and as [`HostBatching::new`].
    ///
    /// # Complexity
    ///
    /// As [`HostBatching::new`].
    pub fn new(context: &BatchingContext) -> Result<Self> {
        let settings = context.settings.neighbor()?.clone();
        let host = HostBatching::new(context, &crate::DESCRIPTION.key)?;
        Ok(Self { host: Arc::new(host), settings, expected: Arc::default() })
    }
}

impl Batching for CpuNeighbor {
    fn num_batches(&self) -> usize {
        self.host.epochs.num_batches()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        check_threads(threads)?;
        let hops = HostHops::new(&self.host.dataset.topology, threads, Arc::clone(&self.expected));
        let sampler = NeighborSampler { hops, settings: self.settings.clone() };
        Ok(Box::new(HostWorker::new(Arc::clone(&self.host), threads, sampler)?))
    }
}

/// The sampling of one worker.
#[derive(Debug)]
struct NeighborSampler {
    hops: HostHops,
    settings: NeighborSettings,
}

impl SampleSeeds for NeighborSampler {
    fn sample(&mut self, host: &HostBatching, seeds: &[u32], batch: &mut HostBatch) -> Result<()> {
        let topology = &host.dataset.topology;
        let weights = topology.weights().map(|w| &**w);
        sample_hops(&mut self.hops.sampler(topology), &self.settings, host.settings.seed, weights, seeds, batch)
    }
}
