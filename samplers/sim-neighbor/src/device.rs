//! Batching on the device.

use std::ops::Range;

use morphgl_registry::{BatchId, Batching, BatchingContext, BatchingWorker, Error, Handle, MiniBatch, Result};
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
        let described = device.machine().and_then(|machine| machine.device(device.place()));
        if let Some(described) = described.filter(|described| described.sampling_m_edges_per_s.is_none()) {
            let what = format!("{} at {} does not sample, as described", described.name, device.place());
            return Err(Error::setting(DEVICE_KEY, what));
        }
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
        let topology_bytes = self.shared.topology_bytes();
        Ok(Box::new(Worker { device: self.device.clone(), stream, topology_bytes }))
    }
}

struct Worker {
    device: Device,
    stream: Stream<Sampler>,
    topology_bytes: u64,
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
        let (device, topology_bytes) = (self.device.clone(), self.topology_bytes);
        Ok(self.stream.submit_costing(id, (), move |sampler, ()| {
            let batch = SimBatch::make(&device, &DEVICE_KEY, id, |batch| sampler.sample(id, share, batch))?;
            let edges = batch.content()?.num_edges() as f64;
            let seconds = device.seconds(|machine, own| {
                machine.device_batching(own, edges, topology_bytes).expect("checked: the device samples")
            });
            Ok((batch.into_batch(), seconds))
        }))
    }
}
