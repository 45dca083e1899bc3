//! Batching on simulated CPU workers.

use std::ops::Range;
use std::sync::Arc;

use morphgl_registry::{BatchId, Batching, BatchingContext, BatchingWorker, Error, Handle, MiniBatch, Place, Result};
use morphgl_sampler_core::{check_threads, host_batch};
use morphgl_sim::{Device, Operation, Work};

use crate::CPU_KEY;
use crate::sampler::{Sampler, Shared};

/// Phase Batching on workers of an invented CPU, `Batching_CPU_SimNeighbor`.
#[derive(Debug)]
pub struct CpuSimNeighbor {
    shared: Arc<Shared>,
    device: Device,
}

impl CpuSimNeighbor {
    /// Builds the operator; `device` lends its configuration. The context's options are not read.
    ///
    /// # Errors
    ///
    /// A place other than the host, and what [`morphgl_sampler_core::check_settings`] refuses.
    pub fn new(context: &BatchingContext, device: &Device) -> Result<Self> {
        if context.place != Place::Host {
            let what = format!("it makes mini-batches at host, not at {}; give the host", context.place);
            return Err(Error::setting(CPU_KEY, what));
        }
        Ok(Self { shared: Arc::new(Shared::new(context)?), device: device.clone() })
    }
}

impl Batching for CpuSimNeighbor {
    fn num_batches(&self) -> usize {
        self.shared.num_batches()
    }

    /// A worker takes as long as it is told to, with however many threads.
    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        check_threads(threads)?;
        let sampler = Sampler::new(&self.shared);
        Ok(Box::new(Worker { device: self.device.clone(), sampler }))
    }
}

struct Worker {
    device: Device,
    sampler: Sampler,
}

impl BatchingWorker for Worker {
    fn prepare_share(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        let mut batch = host_batch(recycled);
        let operation = Operation { key: &CPU_KEY, work: Work::BatchingCpu, id };
        let (batch, took) = self.device.operate(operation, || {
            self.sampler.make(id, share, &mut batch)?;
            Ok(MiniBatch::Host(batch))
        })?;
        Ok(Handle::ready(batch, took))
    }
}
