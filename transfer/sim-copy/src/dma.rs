//! The copy from the host.

use std::sync::Arc;

use morphgl_graph_store::Dataset;
use morphgl_registry::{
    BatchFeatures, Counters, Error, Handle, HostBatch, Key, LINK_BYTES, MiniBatch, Place, Result, Transferring,
    TransferringContext,
};
use morphgl_sim::{Device, SimBatch, Stream, Work};

use crate::DMA_KEY;

/// Phase Transferring from the host to the simulated accelerator, `Transferring_PCIe_SimDma`.
#[derive(Debug)]
pub struct SimDma {
    dataset: Arc<Dataset>,
    gather: bool,
    device: Device,
    stream: Stream<()>,
}

impl SimDma {
    /// Builds the operator on a device; the context's options are ignored.
    ///
    /// # Errors
    ///
    /// Places other than from the host to the device, or no thread can be started.
    pub fn new(context: &TransferringContext, device: &Device) -> Result<Self> {
        check(&DMA_KEY, context, [&Place::Host, device.place()])?;
        let stream = Stream::new(device, &DMA_KEY, Work::TransferringPcie, ())?;
        let (dataset, gather) = (Arc::clone(&context.dataset), context.gather);
        Ok(Self { dataset, gather, device: device.clone(), stream })
    }
}

pub(crate) fn check(key: &Key, context: &TransferringContext, [from, to]: [&Place; 2]) -> Result<()> {
    let TransferringContext { from: given_from, to: given_to, .. } = context;
    if [given_from, given_to] != [from, to] {
        let what = format!("it goes from {from} to {to}, not from {given_from} to {given_to}; give these places");
        return Err(Error::setting(key, what));
    }
    Ok(())
}

impl Transferring for SimDma {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let batch = batch.into_host()?;
        let (device, dataset, gather) = (self.device.clone(), Arc::clone(&self.dataset), self.gather);
        let missing = match (&batch.features, &dataset.features) {
            (None, Some(matrix)) if gather => batch.input_nodes.len() * matrix.row_bytes(),
            _ => 0,
        };
        let counted = Counters::NONE.with(&LINK_BYTES, (batch.num_bytes() + missing) as u64);
        // The source lives until the copy is done, as for a real DMA.
        let copied = self.stream.submit(batch.id, batch, move |(), batch| {
            if gather {
                fill_in(&dataset, batch);
            }
            Ok(SimBatch::copy(&device, &DMA_KEY, batch)?.into_batch())
        });
        Ok(copied.counting(counted))
    }
}

/// Gathers missing features.
fn fill_in(dataset: &Dataset, batch: &mut HostBatch) {
    if let (None, Some(matrix)) = (&batch.features, &dataset.features) {
        let mut features = BatchFeatures::like(matrix);
        let rows = features.resize(batch.input_nodes.len(), matrix.dim(), matrix.dtype());
        matrix.gather_rows(&batch.input_nodes, rows);
        batch.features = Some(features);
    }
}
