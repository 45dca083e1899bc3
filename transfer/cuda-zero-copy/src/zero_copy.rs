//! The operator on mini-batches of the device.

use std::sync::{Arc, MutexGuard};

use morphgl_cuda::{CudaBatch, pending};
use morphgl_registry::{Error, Handle, MiniBatch, Result, Transferring, TransferringContext};

use crate::shared::SharedGather;
use crate::{Gather, KEY};

/// Phase Transferring on a CUDA device, `Transferring_CUDA+PCIe_ZeroCopy`.
#[derive(Debug)]
pub struct ZeroCopy {
    gather: Arc<SharedGather>,
}

impl ZeroCopy {
    /// Builds the operator. Options `access`, `cache`, `cache_bytes`, `peers`, `presample` (0 for no cache) and `share` are described in
    /// the crate's documentation.
    ///
    /// # Errors
    ///
    /// Places other than one CUDA device of this machine, a peer whose memory it cannot access, features that cannot be
    /// pinned, an invalid option, or a policy named for a cache that has no room for a row.
    pub fn new(context: &TransferringContext) -> Result<Self> {
        let TransferringContext { from, to, options, .. } = context;
        if from != to {
            let message = format!("it fills in mini-batches in place, and cannot go from {from} to {to}");
            return Err(Error::setting(KEY, message));
        }
        Ok(Self { gather: SharedGather::open(&KEY, context, options)? })
    }

    /// The gather and its cache, which operators of the same device, dataset and options share.
    pub fn gather(&self) -> MutexGuard<'_, Gather> {
        self.gather.lock()
    }
}

impl Transferring for ZeroCopy {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let mut batch = CudaBatch::into_on(self.gather.device(), batch)?;
        let mut gather = self.gather.lock();
        gather.stream().wait(&batch.ready)?;
        let start = gather.stream().record(true)?;
        gather.fill_in(&mut batch)?;
        Ok(pending(start, gather.stream().record(true)?, move || Ok(MiniBatch::Device(batch))))
    }
}
