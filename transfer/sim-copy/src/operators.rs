//! The copy from the host, and the gather on the device.

use std::sync::Arc;

use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_registry::{
    Counters, DeviceBatch, Error, Handle, Key, LINK_BYTES, MiniBatch, Place, Result, Transferring, TransferringContext,
};
use morphgl_sim::{Device, SimBatch, Stream, Work, gather_features};

use crate::{DMA_KEY, GATHER_KEY};

/// State of an operator.
#[derive(Debug)]
struct Transfers {
    device: Device,
    stream: Stream<()>,
    /// Source of missing features, if they are gathered.
    dataset: Option<Arc<Dataset>>,
}

impl Transfers {
    /// Refuses places other than from `from` to the device.
    fn new(key: &Key, context: &TransferringContext, device: &Device, from: &Place, work: Work) -> Result<Self> {
        let TransferringContext { dataset, from: given_from, to: given_to, gather, .. } = context;
        let to = device.place();
        if [given_from, given_to] != [from, to] {
            let message =
                format!("it goes from {from} to {to}, not from {given_from} to {given_to}; give these places");
            return Err(Error::setting(key, message));
        }
        let dataset = (*gather && dataset.features.is_some()).then(|| Arc::clone(dataset));
        Ok(Self { device: device.clone(), stream: Stream::new(device, key, work, ())?, dataset })
    }
}

fn matrix(dataset: &Option<Arc<Dataset>>) -> Option<&FeatureMatrix> {
    dataset.as_ref()?.features.as_ref()
}

/// Phase Transferring from the host to the simulated accelerator, `Transferring_PCIe_SimDma`.
#[derive(Debug)]
pub struct SimDma(Transfers);

impl SimDma {
    /// Builds the operator on a device; the context's options are ignored.
    ///
    /// # Errors
    ///
    /// Places other than from the host to the device, or no thread can be started.
    pub fn new(context: &TransferringContext, device: &Device) -> Result<Self> {
        Transfers::new(&DMA_KEY, context, device, &Place::Host, Work::TransferringPcie).map(Self)
    }
}

impl Transferring for SimDma {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let batch = batch.into_host()?;
        let (device, dataset) = (self.0.device.clone(), self.0.dataset.clone());
        let missing = match (&batch.features, matrix(&dataset)) {
            (None, Some(matrix)) => batch.input_nodes.len() * matrix.row_bytes(),
            _ => 0,
        };
        let counters = Counters::NONE.with(&LINK_BYTES, (batch.num_bytes() + missing) as u64);
        // The source lives until the copy is done, as for a real DMA.
        let copied = self.0.stream.submit(batch.id, batch, move |(), batch| {
            if let (None, Some(matrix)) = (&batch.features, matrix(&dataset)) {
                gather_features(batch, matrix);
            }
            Ok(SimBatch::copy(&device, &DMA_KEY, batch)?.into_batch())
        });
        Ok(copied.counting(counters))
    }
}

/// Phase Transferring of mini-batches sampled on the simulated accelerator, `Transferring_PCIe+SIM_SimGather`.
#[derive(Debug)]
pub struct SimGather(Transfers);

impl SimGather {
    /// Builds the operator on a device; the context's options are ignored.
    ///
    /// # Errors
    ///
    /// Places other than the device, or no thread can be started.
    pub fn new(context: &TransferringContext, device: &Device) -> Result<Self> {
        Transfers::new(&GATHER_KEY, context, device, device.place(), Work::TransferringDevice).map(Self)
    }
}

impl Transferring for SimGather {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let mut ours = SimBatch::on(&self.0.device, &batch)?.clone();
        // The clone shares the slot: make it the only reference.
        drop(batch);
        let dataset = self.0.dataset.clone();
        let row_bytes = matrix(&dataset).map_or(0, FeatureMatrix::row_bytes);
        let counters = Counters::NONE.with(&LINK_BYTES, (ours.num_missing_rows() * row_bytes) as u64);
        let gathered = self.0.stream.submit(ours.id(), (), move |(), ()| {
            match matrix(&dataset) {
                Some(matrix) => ours.gather(matrix)?,
                None => ours.content().map(|_| ())?,
            }
            Ok(ours.into_batch())
        });
        Ok(gathered.counting(counters))
    }
}
