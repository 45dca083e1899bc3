//! Batching on the device.

use std::ops::Range;

use morphgl_registry::{BatchId, Batching, BatchingContext, BatchingWorker, Handle, MiniBatch, Result};
use morphgl_sim::{Device, SimBatch, Stream, Work};

use crate::DEVICE_KEY;
use crate::sampler::{Sampler, Shared};

/// Phase Batching on the simulated accelerator, `Batching_PCIe+SIM_Neighbor`.
#[derive(Debug)]
pub struct SimNeighbor {
    shared: Shared,
    device: Device,
}

impl SimNeighbor {
    /// Builds the operator on a device; the context's options are not read.
    ///
    /// # Errors
    ///
    /// A place other than the device's, and what [`morphgl_sampler_core::check_settings`] refuses.
    pub fn new(context: &BatchingContext, device: &Device) -> Result<Self> {
        // Features are gathered later, on the device.
        let shared = Shared::new(context, false, DEVICE_KEY, device.place(), "give that place")?;
        Ok(Self { shared, device: device.clone() })
    }
}

impl Batching for SimNeighbor {
    fn num_batches(&self) -> usize {
        self.shared.num_batches()
    }

    /// A worker is a stream of the device; host threads do not make it faster.
    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        let sampler = self.shared.sampler(threads)?;
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
        // A dropped mini-batch returns its memory to the device, which reuses it.
        drop(recycled);
        let device = self.device.clone();
        Ok(self.stream.submit(id, (), move |sampler, ()| {
            Ok(SimBatch::make(&device, &DEVICE_KEY, id, |batch| sampler.sample(id, share, batch))?.into_batch())
        }))
    }
}
