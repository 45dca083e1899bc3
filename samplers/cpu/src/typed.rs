//! Neighbour sampling by edge type.

use std::sync::Arc;

use morphgl_registry::{Batching, BatchingContext, BatchingWorker, Result};
use morphgl_sampler_core::{Expected, HostBatching, HostWorker, TypedSampler, TypedSettings, check_threads};

/// Phase Batching by neighbour sampling per edge type on CPU threads, `Batching_CPU_Typed`.
#[derive(Debug, Clone)]
pub struct CpuTyped {
    host: Arc<HostBatching>,
    settings: TypedSettings,
    expected: Arc<Expected>,
}

impl CpuTyped {
    /// Builds the operator.
    ///
    /// # Errors
    ///
    /// Options, and as [`TypedSettings::new`] and [`HostBatching::new`].
    ///
    /// # Complexity
    ///
    /// As [`HostBatching::new`].
    pub fn new(context: &BatchingContext) -> Result<Self> {
        crate::TYPED.check_options(&context.options)?;
        let host = HostBatching::new(context)?;
        Ok(Self { host: Arc::new(host), settings: TypedSettings::new(context)?, expected: Arc::default() })
    }
}

impl Batching for CpuTyped {
    fn num_batches(&self) -> usize {
        self.host.epochs.num_batches()
    }

    fn last_epoch(&self) -> u32 {
        self.settings.last_epoch()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        check_threads(threads)?;
        let sampler = TypedSampler::new(&self.host.dataset.topology, self.settings.clone(), threads, &self.expected);
        Ok(Box::new(HostWorker::new(Arc::clone(&self.host), threads, sampler)?))
    }
}
