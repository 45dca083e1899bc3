//! The copy of a mini-batch by the device's copy engine.

use std::sync::Arc;

use morphgl_cuda::{Device, Staging, Stream, pending};
use morphgl_graph_store::Dataset;
use morphgl_registry::{
    Counters, Error, GivenTable, Handle, LINK_BYTES, MiniBatch, Place, Result, Transferring, TransferringContext,
};
use serde::Deserialize;

use crate::DMA_KEY;
use crate::given::GivenTables;

morphgl_registry::submit! { crate::DMA }

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    depth: Option<usize>,
}

/// Phase Transferring from the host to a CUDA device, `Transferring_PCIe_Dma`.
#[derive(Debug)]
pub struct PcieDma {
    dataset: Arc<Dataset>,
    gather: bool,
    stream: Stream,
    staging: Staging,
    given: GivenTables,
}

impl PcieDma {
    /// Builds the operator. Option `depth` (3): maximum mini-batches in pinned memory.
    ///
    /// # Errors
    ///
    /// Places other than from the host to a CUDA device of this machine, or an invalid option.
    pub fn new(context: &TransferringContext) -> Result<Self> {
        let TransferringContext { dataset, from, to, gather, options, .. } = context;
        if *from != Place::Host {
            return Err(Error::setting(
                DMA_KEY,
                format!("it reads mini-batches in host memory, not at {from}; give host"),
            ));
        }
        let options = Option::<Options>::deserialize(options);
        let options = options.map_err(|e| Error::setting(DMA_KEY, format!("options: {e}")))?.unwrap_or_default();
        let staging = Staging::new(&DMA_KEY, options.depth)?;
        let stream = Stream::new(&Device::open(to, &DMA_KEY)?, true)?;
        let given = GivenTables::default();
        Ok(Self { dataset: Arc::clone(dataset), gather: *gather, stream, staging, given })
    }

    fn send(&mut self, batch: MiniBatch, table: Option<&dyn GivenTable>) -> Result<Handle<MiniBatch>> {
        let batch = batch.into_host()?;
        self.staging.wait_for_room()?;
        let start = self.stream.record(true)?;
        let matrix = self.dataset.features.as_ref().filter(|_| self.gather);
        let (mut sent, num_bytes) = self.staging.send(&self.stream, &batch, matrix)?;
        let num_bytes = num_bytes + self.given.fill(&self.stream, &mut sent, table)?;
        let sent = pending(start, self.stream.record(true)?, move || Ok(sent.into_batch()));
        Ok(sent.counting(Counters::NONE.with(&LINK_BYTES, num_bytes)))
    }
}

impl Transferring for PcieDma {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        self.send(batch, None)
    }

    fn transfer_with_given(&mut self, batch: MiniBatch, table: &dyn GivenTable) -> Result<Handle<MiniBatch>> {
        self.send(batch, Some(table))
    }
}
