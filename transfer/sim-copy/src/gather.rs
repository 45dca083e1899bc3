//! The gather on the device.

use std::sync::Arc;

use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_registry::{
    Counters, DeviceBatch, Handle, LINK_BYTES, MiniBatch, Result, Transferring, TransferringContext,
};
use morphgl_sim::{Device, SimBatch, Stream, Work};

use crate::GATHER_KEY;
use crate::dma::check;

/// Phase Transferring of mini-batches sampled on the simulated accelerator, `Transferring_PCIe+SIM_SimGather`.
#[derive(Debug)]
pub struct SimGather {
    dataset: Arc<Dataset>,
    gather: bool,
    device: Device,
    stream: Stream<()>,
}

impl SimGather {
    /// Builds the operator on a device; the context's options are ignored.
    ///
    /// # Errors
    ///
    /// Places other than the device, or no thread can be started.
    pub fn new(context: &TransferringContext, device: &Device) -> Result<Self> {
        check(&GATHER_KEY, context, [device.place(), device.place()])?;
        let stream = Stream::new(device, &GATHER_KEY, Work::TransferringDevice, ())?;
        let (dataset, gather) = (Arc::clone(&context.dataset), context.gather);
        Ok(Self { dataset, gather, device: device.clone(), stream })
    }
}

impl Transferring for SimGather {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let mut ours = SimBatch::on(&self.device, &batch)?.clone();
        // The clone shares the slot: make it the only reference.
        drop(batch);
        let (dataset, gather) = (Arc::clone(&self.dataset), self.gather);
        let row_bytes = dataset.features.as_ref().filter(|_| gather).map_or(0, FeatureMatrix::row_bytes);
        let counted = Counters::NONE.with(&LINK_BYTES, (ours.num_missing_rows() * row_bytes) as u64);
        let gathered = self.stream.submit(ours.id(), (), move |(), ()| {
            match &dataset.features {
                Some(matrix) if gather => ours.gather(matrix)?,
                _ => ours.content().map(|_| ())?,
            }
            Ok(ours.into_batch())
        });
        Ok(gathered.counting(counted))
    }
}
