//! The operator on mini-batches of another device.

use std::sync::{Arc, MutexGuard};

use morphgl_cuda::{BACKEND, CUDA, CudaBatch, Device, DeviceLink, accelerators, pending_counting, probe};
use morphgl_registry::{
    At, Build, CACHE_HITS, CACHE_REQUESTS, CacheCurve, Counters, Description, Error, GivenTable, Handle, Hardware, Key,
    LINK_BYTES, MiniBatch, PEER_BYTES, Phase, Resource, Result, Transferring, TransferringContext,
};
use serde::Deserialize;

use crate::gather::Gathered;
use crate::given::GivenTables;
use crate::shared::SharedGather;
use crate::{Gather, PAGE_ORDERED_ROWS, options};

/// Name of the copy and gather for mini-batches of another device: `Transferring_CUDA+PCIe+Peer_Copy`.
pub const PEER_COPY_KEY: Key =
    Key::new(Phase::Transferring, Hardware::new(&[CUDA, Resource::PCIE, Resource::PEER]), "Copy");

/// The copy and gather for mini-batches of another device.
pub const PEER_COPY: Description = Description::new(
    PEER_COPY_KEY,
    "copies mini-batches from one CUDA device to another, which gathers their features as ZeroCopy does",
    At::Device(BACKEND),
    At::Device(BACKEND),
    Build::Transferring(|context| Ok(Box::new(PeerCopy::new(context)?))),
)
.taking_pairs()
.with_probe(probe)
.with_accelerators(accelerators)
.queueing()
.gathering_features()
.between_devices()
.with_options(&options::PEER_SPECS)
.with_counters(&[PEER_BYTES, LINK_BYTES, CACHE_REQUESTS, CACHE_HITS, PAGE_ORDERED_ROWS])
.taking_given_rows();

morphgl_registry::submit! { PEER_COPY }

/// Phase Transferring from one CUDA device to another, `Transferring_CUDA+PCIe+Peer_Copy`: ids, blocks and labels over the link
/// between them, features by the gather of the device that trains.
#[derive(Debug)]
pub struct PeerCopy {
    link: DeviceLink,
    gather: Arc<SharedGather>,
    given: GivenTables,
}

impl PeerCopy {
    /// Builds the operator. Options are those of [`crate::ZeroCopy::new`], and `through_host` (false): copies through pinned host
    /// memory even where the devices reach each other's.
    ///
    /// # Errors
    ///
    /// Places other than two CUDA devices of this machine, and as [`crate::ZeroCopy::new`].
    pub fn new(context: &TransferringContext) -> Result<Self> {
        let TransferringContext { from, to, options, .. } = context;
        if from == to {
            let message = format!("it goes from one device to another, and both are {to}; give two");
            return Err(Error::setting(PEER_COPY_KEY, message));
        }
        let mut options = options.clone();
        let through_host = options.as_object_mut().and_then(|options| options.remove("through_host"));
        let through_host = Option::deserialize(through_host.unwrap_or_default())
            .map_err(|e| Error::setting(PEER_COPY_KEY, format!("options: through_host: {e}")))?;
        let from = Device::open(from, &PEER_COPY_KEY)?;
        let gather = SharedGather::open_in_memory(&PEER_COPY_KEY, context, &options)?;
        let link = DeviceLink::new(&from, gather.device(), through_host.unwrap_or(false))?;
        Ok(Self { link, gather, given: GivenTables::default() })
    }

    fn send(&mut self, batch: MiniBatch, table: Option<&dyn GivenTable>) -> Result<Handle<MiniBatch>> {
        let sampled = CudaBatch::into_on(self.link.source(), batch)?;
        self.link.stream().wait(&sampled.ready)?;
        let start = self.link.stream().record(true)?;
        let (mut sent, num_bytes) = self.link.send(&sampled)?;
        // Its memory is the sampler's again once the copy is done.
        drop(sampled);
        let mut gather = self.gather.lock();
        gather.stream().wait(&sent.ready)?;
        let table_bytes = self.given.fill(gather.stream(), &mut sent, table)?;
        let gathered = gather.fill_in(&mut sent, None)?;
        let queue = |gathered: Gathered| Ok((gather.queue_counters(&sent, &gathered)?, gathered));
        let counted = gathered.map(queue).transpose()?;
        let (end, shared) = (gather.stream().record(true)?, Arc::clone(&self.gather));
        // Through the host: there and back.
        let link_bytes = if self.link.is_direct() { 0 } else { 2 * num_bytes };
        let mut counters = Counters::NONE.with(&PEER_BYTES, num_bytes).with(&LINK_BYTES, link_bytes + table_bytes);
        Ok(pending_counting(start, end, move |took| {
            if let Some((counted, gathered)) = counted {
                shared.lock().transferred(took, &gathered);
                counters += counted();
            }
            Ok((sent.into_batch(), counters))
        }))
    }

    /// The gather and its cache, which operators of the same device, dataset and options share.
    pub fn gather(&self) -> MutexGuard<'_, Gather> {
        self.gather.lock()
    }
}

impl Transferring for PeerCopy {
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
