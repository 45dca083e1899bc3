//! Neighbour sampling by fanouts.

use std::sync::Arc;

use morphgl_registry::{Batching, BatchingContext, BatchingWorker, GivenNodes, NeighborSettings, Result};
use morphgl_sampler_core::{Expected, HostBatching, HostWorker, NeighborSampler, check_threads};

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
    /// Settings of another kind of sampling, options, and as [`HostBatching::new`].
    ///
    /// # Complexity
    ///
    /// As [`HostBatching::new`].
    pub fn new(context: &BatchingContext) -> Result<Self> {
        let settings = context.settings.neighbor()?.clone();
        crate::NEIGHBOR.check_options(&context.options)?;
        let host = HostBatching::new(context)?;
        Ok(Self { host: Arc::new(host), settings, expected: Arc::default() })
    }
}

impl CpuNeighbor {
    fn start(
        &self,
        threads: usize,
        set: impl FnOnce(NeighborSampler) -> NeighborSampler,
    ) -> Result<Box<dyn BatchingWorker>> {
        check_threads(threads)?;
        let topology = &self.host.dataset.topology;
        let sampler = set(NeighborSampler::new(topology, self.settings.clone(), threads, &self.expected));
        Ok(Box::new(HostWorker::new(Arc::clone(&self.host), threads, sampler)?))
    }
}

impl Batching for CpuNeighbor {
    fn num_batches(&self) -> usize {
        self.host.epochs.num_batches()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        self.start(threads, |sampler| sampler)
    }

    fn worker_with_given(
        &self,
        threads: usize,
        given: &Arc<dyn GivenNodes>,
    ) -> Option<Result<Box<dyn BatchingWorker>>> {
        Some(self.host.check_given().and_then(|()| self.start(threads, |sampler| sampler.with_given(given))))
    }
}
