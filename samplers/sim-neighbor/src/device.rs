//! Batching on the device.

use std::ops::Range;
use std::sync::Arc;

use morphgl_registry::{BatchId, Batching, BatchingContext, BatchingWorker, Error, Handle, MiniBatch, Result};
use morphgl_sampler_core::check_threads;
use morphgl_sim::{Device, SimBatch, Stream, Work};

use crate::DEVICE_KEY;
use crate::sampler::{Sampler, Shared};

/// Phase Batching on the simulated accelerator, `Batching_PCIe+SIM_Neighbor`.
#[derive(Debug)]
pub struct SimNeighbor {
    shared: Arc<Shared>,
    device: Device,
}

impl SimNeighbor {
    /// Builds the operator on a device; the context's options are not read.
    ///
    /// # Errors
    ///
    /// A place other than the device's, and what [`morphgl_sampler_core::check_settings`] refuses.
    pub fn new(context: &BatchingContext, device: &Device) -> Result<Self> {
        if context.place != *device.place() {
            let what =
                format!("it makes mini-batches at {}, not at {}; give that place", device.place(), context.place);
            return Err(Error::setting(DEVICE_KEY, what));
        }
        // Features are left to the gather that follows on the device.
        let context = BatchingContext { gather: false, ..context.clone() };
        Ok(Self { shared: Arc::new(Shared::new(&context)?), device: device.clone() })
    }
}

impl Batching for SimNeighbor {
    fn num_batches(&self) -> usize {
        self.shared.num_batches()
    }

    /// A worker is a stream of the device; host threads make it no faster.
    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        check_threads(threads)?;
        let sampler = Sampler::new(&self.shared);
        let stream = Stream::new(&self.device, &DEVICE_KEY, Work::BatchingDevice, sampler)?;
        Ok(Box::new(Worker { device: self.device.clone(), stream }))
    }
}

struct Worker {
    device: Device,
    stream: Stream<Sampler>,
}

impl BatchingWorker for Worker {
    fn prepare_share(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        // A mini-batch of the device gives its memory back, and the device hands it out again.
        drop(recycled);
        let device = self.device.clone();
        Ok(self.stream.submit(id, (), move |sampler, ()| {
            Ok(SimBatch::make(&device, &DEVICE_KEY, id, |batch| sampler.make(id, share, batch))?.into_batch())
        }))
    }
}
