//! Batching on simulated CPU workers.

use std::ops::Range;
use std::sync::Arc;

use morphgl_registry::{
    BatchId, Batching, BatchingContext, BatchingWorker, GivenNodes, Handle, MiniBatch, Place, Result,
};
use morphgl_sampler_core::host_batch;
use morphgl_sim::{Device, Operation, Work};

use crate::CPU_KEY;
use crate::sampler::{Sampler, Shared};

/// Phase Batching on simulated CPU workers, `Batching_CPU_SimNeighbor`.
#[derive(Debug)]
pub struct CpuSimNeighbor {
    shared: Shared,
    device: Device,
}

impl CpuSimNeighbor {
    /// Builds the operator; durations are those of `device`. The context's options are not read.
    ///
    /// # Errors
    ///
    /// A place other than the host, and what [`morphgl_sampler_core::check_settings`] refuses.
    pub fn new(context: &BatchingContext, device: &Device) -> Result<Self> {
        let shared = Shared::new(context, context.gather, CPU_KEY, &Place::Host, "give the host")?;
        Ok(Self { shared, device: device.clone() })
    }

    fn start(&self, sampler: Sampler) -> Box<dyn BatchingWorker> {
        Box::new(Worker { device: self.device.clone(), sampler })
    }
}

impl Batching for CpuSimNeighbor {
    fn num_batches(&self) -> usize {
        self.shared.num_batches()
    }

    /// A worker takes the configured duration, or that of one core of the described machine, with any number of threads.
    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        Ok(self.start(self.shared.sampler(threads)?))
    }

    /// A worker with given nodes takes the same configured duration.
    fn worker_with_given(
        &self,
        threads: usize,
        given: &Arc<dyn GivenNodes>,
    ) -> Option<Result<Box<dyn BatchingWorker>>> {
        Some(self.shared.sampler_with_given(threads, given).map(|sampler| self.start(sampler)))
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
        let operation = Operation { key: &CPU_KEY, work: Work::BatchingCpu, id, part: 1.0 };
        let (batch, took) = self.device.operate_costing(operation, || {
            self.sampler.sample(id, share, &mut batch)?;
            let row_bytes = batch.features.as_ref().map_or(0, |features| features.dim * features.dtype.size());
            let (edges, gathered) = (batch.num_edges() as f64, (row_bytes * batch.input_nodes.len()) as f64);
            let seconds = self.device.host_seconds(|machine| machine.host_batching(edges, gathered));
            Ok((MiniBatch::Host(batch), seconds))
        })?;
        Ok(Handle::ready(batch, took))
    }
}
