//! The operator on mini-batches of the host.

use std::sync::{Arc, MutexGuard};

use morphgl_cuda::{Staging, Stream, pending_counting};
use morphgl_registry::{
    CacheCurve, Counters, Error, GivenTable, Handle, LINK_BYTES, MiniBatch, Place, Result, Transferring,
    TransferringContext,
};
use serde::Deserialize;

use crate::given::GivenTables;
use crate::shared::SharedGather;
use crate::{DMA_GATHER_KEY, Gather};

morphgl_registry::submit! { crate::DMA_GATHER }

/// Phase Transferring from the host to a CUDA device, `Transferring_CUDA+PCIe_DmaGather`: ids, blocks and labels by the copy
/// engine, features by the device's gather.
#[derive(Debug)]
pub struct DmaGather {
    /// The stream of the copies; the gather has its own.
    stream: Stream,
    staging: Staging,
    gather: Arc<SharedGather>,
    given: GivenTables,
}

impl DmaGather {
    /// Builds the operator. Options are those of [`crate::ZeroCopy::new`], and `depth` (3): maximum mini-batches in pinned
    /// memory.
    ///
    /// # Errors
    ///
    /// Places other than from the host to a CUDA device of this machine, a peer whose memory it cannot access, features that
    /// cannot be pinned, or an invalid option.
    pub fn new(context: &TransferringContext) -> Result<Self> {
        let TransferringContext { from, options, .. } = context;
        if *from != Place::Host {
            return Err(Error::setting(
                DMA_GATHER_KEY,
                format!("it reads mini-batches in host memory, not at {from}; give host"),
            ));
        }
        let mut options = options.clone();
        let depth = options.as_object_mut().and_then(|options| options.remove("depth")).unwrap_or_default();
        let depth =
            Option::deserialize(depth).map_err(|e| Error::setting(DMA_GATHER_KEY, format!("options: depth: {e}")))?;
        let staging = Staging::new(&DMA_GATHER_KEY, depth)?;
        let gather = SharedGather::open(&DMA_GATHER_KEY, context, &options)?;
        Ok(Self { stream: Stream::new(gather.device(), true)?, staging, gather, given: GivenTables::default() })
    }

    fn send(&mut self, batch: MiniBatch, table: Option<&dyn GivenTable>) -> Result<Handle<MiniBatch>> {
        let batch = batch.into_host()?;
        self.staging.wait_for_room()?;
        let start = self.stream.record(true)?;
        let (mut sent, num_bytes) = self.staging.send(&self.stream, &batch, None)?;
        let num_bytes = num_bytes + self.given.fill(&self.stream, &mut sent, table)?;
        let mut gather = self.gather.lock();
        gather.stream().wait(&sent.ready)?;
        let gathered = gather.fill_in(&mut sent, Some(&batch.input_nodes))?;
        let end = gather.stream().record(true)?;
        // Counted once the device has its work.
        let mut counters = Counters::NONE.with(&LINK_BYTES, num_bytes);
        if let Some(gathered) = &gathered {
            counters += gather.counters(&batch.input_nodes, gathered);
        }
        let timed = gathered.map(|gathered| (Arc::clone(&self.gather), gathered));
        Ok(pending_counting(start, end, move |took| {
            timed.into_iter().for_each(|(gather, gathered)| gather.lock().transferred(took, &gathered));
            Ok((sent.into_batch(), counters))
        }))
    }

    /// The gather and its cache, which operators of the same device, dataset and options share.
    pub fn gather(&self) -> MutexGuard<'_, Gather> {
        self.gather.lock()
    }
}

impl Transferring for DmaGather {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        self.send(batch, None)
    }

    fn transfer_with_given(&mut self, batch: MiniBatch, table: &dyn GivenTable) -> Result<Handle<MiniBatch>> {
        self.send(batch, Some(table))
    }

    fn cache(&self) -> Option<CacheCurve> {
        self.gather.curve()
    }

    fn resize_cache(&mut self, bytes: u64) -> Result<()> {
        self.gather.lock().resize(bytes);
        Ok(())
    }
}
