//! The operator on mini-batches of the device.

use std::sync::{Arc, MutexGuard};

use morphgl_cuda::{CudaBatch, pending_counting};
use morphgl_registry::{
    CacheCurve, Counters, Error, GivenTable, Handle, LINK_BYTES, MiniBatch, Result, Transferring, TransferringContext,
};

use crate::gather::Gathered;
use crate::given::GivenTables;
use crate::shared::SharedGather;
use crate::{Gather, ZERO_COPY_KEY};

morphgl_registry::submit! { crate::ZERO_COPY }

/// Phase Transferring on a CUDA device, `Transferring_CUDA+PCIe_ZeroCopy`.
#[derive(Debug)]
pub struct ZeroCopy {
    gather: Arc<SharedGather>,
    given: GivenTables,
}

impl ZeroCopy {
    /// Builds the operator. Options `access`, `cache`, `cache_bytes`, `lines`, `order`, `peers` and `presample` (0 for no cache) are
    /// described in the crate's documentation.
    ///
    /// # Errors
    ///
    /// Places other than one CUDA device of this machine, a peer whose memory it cannot access, features that cannot be
    /// pinned, an invalid option, or a policy named for a cache that has no room for a row.
    pub fn new(context: &TransferringContext) -> Result<Self> {
        let TransferringContext { from, to, options, .. } = context;
        if from != to {
            let message = format!("it fills in mini-batches in place, and cannot go from {from} to {to}");
            return Err(Error::setting(ZERO_COPY_KEY, message));
        }
        let gather = SharedGather::open_in_memory(&ZERO_COPY_KEY, context, options)?;
        Ok(Self { gather, given: GivenTables::default() })
    }

    fn send(&mut self, batch: MiniBatch, table: Option<&dyn GivenTable>) -> Result<Handle<MiniBatch>> {
        let mut batch = CudaBatch::into_on(self.gather.device(), batch)?;
        let mut gather = self.gather.lock();
        gather.stream().wait(&batch.ready)?;
        let start = gather.stream().record(true)?;
        let table_bytes = self.given.fill(gather.stream(), &mut batch, table)?;
        let gathered = gather.fill_in(&mut batch, None)?;
        let queue = |gathered: Gathered| Ok((gather.queue_counters(&batch, &gathered)?, gathered));
        let counted = gathered.map(queue).transpose()?;
        let (end, shared) = (gather.stream().record(true)?, Arc::clone(&self.gather));
        let mut counters = Counters::NONE.with(&LINK_BYTES, table_bytes);
        Ok(pending_counting(start, end, move |took| {
            if let Some((counted, gathered)) = counted {
                shared.lock().transferred(took, &gathered);
                counters += counted();
            }
            Ok((MiniBatch::Device(batch), counters))
        }))
    }

    /// The gather and its cache, which operators of the same device, dataset and options share.
    pub fn gather(&self) -> MutexGuard<'_, Gather> {
        self.gather.lock()
    }
}

impl Transferring for ZeroCopy {
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
