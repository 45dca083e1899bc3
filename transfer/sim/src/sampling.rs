//! Neighbour sampling on the host, which simulated operators do for real: their durations alone are simulated.

use std::sync::Arc;

use morphgl_registry::{Batching, BatchingContext, BatchingWorker, GivenNodes, NeighborSettings, Result};
use morphgl_sampler_core::{Expected, HostBatching, HostWorker, NeighborSampler, check_threads};

/// Neighbour sampling of a graph in host memory by fanouts: the real work of what is simulated.
#[derive(Debug, Clone)]
pub struct NeighborBatching {
    host: Arc<HostBatching>,
    settings: NeighborSettings,
    expected: Arc<Expected>,
}

impl NeighborBatching {
    /// The sampler of this context, whose options are not read.
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
        Ok(Self { host: Arc::new(HostBatching::new(context)?), settings, expected: Arc::default() })
    }

    /// What its workers read.
    pub fn host(&self) -> &HostBatching {
        &self.host
    }

    /// A worker of so many threads.
    ///
    /// # Errors
    ///
    /// As [`HostWorker::new`].
    pub fn start(&self, threads: usize) -> Result<HostWorker<NeighborSampler>> {
        self.start_with(threads, |sampler| sampler)
    }

    /// As [`NeighborBatching::start`], with `given` nodes left unexpanded.
    ///
    /// # Errors
    ///
    /// As [`HostWorker::new`] and [`HostBatching::check_given`].
    pub fn start_with_given(&self, threads: usize, given: &Arc<dyn GivenNodes>) -> Result<HostWorker<NeighborSampler>> {
        self.host.check_given()?;
        self.start_with(threads, |sampler| sampler.with_given(given))
    }

    fn start_with(
        &self,
        threads: usize,
        set: impl FnOnce(NeighborSampler) -> NeighborSampler,
    ) -> Result<HostWorker<NeighborSampler>> {
        check_threads(threads)?;
        let topology = &self.host.dataset.topology;
        let sampler = set(NeighborSampler::new(topology, self.settings.clone(), threads, &self.expected));
        HostWorker::new(Arc::clone(&self.host), threads, sampler)
    }
}

impl Batching for NeighborBatching {
    fn num_batches(&self) -> usize {
        self.host.epochs.num_batches()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        Ok(Box::new(self.start(threads)?))
    }

    fn worker_with_given(
        &self,
        threads: usize,
        given: &Arc<dyn GivenNodes>,
    ) -> Option<Result<Box<dyn BatchingWorker>>> {
        Some(self.start_with_given(threads, given).map(|worker| Box::new(worker) as _))
    }
}
