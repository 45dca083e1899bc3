//! Transfers of described machines alone: the host's own mini-batches, and gathers by the one side for the other.

use std::sync::Arc;
use std::time::Duration;

use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_registry::{
    At, Build, CACHE_HITS, CACHE_REQUESTS, CacheCurve, Description, Error, Handle, Hardware, Key, LINK_BYTES,
    MiniBatch, Phase, Place, Resource, Result, Transferring, TransferringContext,
};
use morphgl_sim::{Device, OPTIONS, SIM, SimBatch, Work, accelerators, described_only, device, gather_features};

use crate::cache::{SPECS, of_device};
use crate::operators::{Transfers, gathering, matrix};

/// Bytes of a node's id.
const NODE_BYTES: usize = 4;

/// Name of the copy from the host without features, which the device gathers: `Transferring_PCIe+SIM_SimDmaGather`.
pub const DMA_GATHER_KEY: Key = Key::new(Phase::Transferring, Hardware::new(&[Resource::PCIE, SIM]), "SimDmaGather");
/// Name of the gather by the host for the device: `Transferring_CPU+PCIe_SimHostGather`.
pub const HOST_GATHER_KEY: Key =
    Key::new(Phase::Transferring, Hardware::new(&[Resource::CPU, Resource::PCIE]), "SimHostGather");
/// Name of the host's own: `Transferring_CPU_SimHost`.
pub const HOST_KEY: Key = Key::new(Phase::Transferring, Hardware::CPU, "SimHost");

/// The copy from the host of mini-batches without features, which the device gathers, of a described machine.
pub const DMA_GATHER: Description = Description::new(
    DMA_GATHER_KEY,
    "copies mini-batches without features to a device of a described machine, which gathers their features",
    At::Host,
    At::Device("sim"),
    Build::Transferring(|c| {
        Ok(Box::new(SimDmaGather::new(c, &device(&DMA_GATHER_KEY, &c.to, &of_device(&c.options))?)?))
    }),
)
.taking_pairs()
.with_probe(described_only)
.with_accelerators(accelerators)
.gathering_features()
.with_options(&SPECS)
.with_counters(&[LINK_BYTES, CACHE_REQUESTS, CACHE_HITS])
.as_simulated();

/// The gather by the host, of a described machine.
pub const HOST_GATHER: Description = Description::new(
    HOST_GATHER_KEY,
    "gathers features by the host into mini-batches that a device of a described machine sampled",
    At::Device("sim"),
    At::Device("sim"),
    Build::Transferring(|c| Ok(Box::new(SimHostGather::new(c, &device(&HOST_GATHER_KEY, &c.to, &c.options)?)?))),
)
.taking_pairs()
.with_probe(described_only)
.with_accelerators(accelerators)
.with_options(&OPTIONS)
.with_counters(&[LINK_BYTES])
.as_simulated();

/// The host's own, of a described machine.
pub const HOST: Description = Description::new(
    HOST_KEY,
    "moves nothing on the host of a described machine, fills in features, takes no time",
    At::Host,
    At::Host,
    Build::Transferring(|c| Ok(Box::new(SimHost::new(c)?))),
)
.taking_pairs()
.with_probe(described_only)
.with_options(&OPTIONS)
.as_simulated();

morphgl_registry::submit! { DMA_GATHER }
morphgl_registry::submit! { HOST_GATHER }
morphgl_registry::submit! { HOST }

/// Phase Transferring from the host to a device of a described machine, `Transferring_PCIe+SIM_SimDmaGather`: mini-batches are copied
/// without features, which the device then gathers (PyTorch-Direct; NeutronOrch §3.1, Case 3).
#[derive(Debug)]
pub struct SimDmaGather(Transfers);

impl SimDmaGather {
    /// Builds the operator on a device; of the context's options those of the cache are read.
    ///
    /// # Errors
    ///
    /// As [`SimDma::new`](crate::SimDma::new), or a cache that cannot be.
    pub fn new(context: &TransferringContext, device: &Device) -> Result<Self> {
        let transfers = Transfers::new(&DMA_GATHER_KEY, context, device, &Place::Host, Work::TransferringDevice)?;
        transfers.caching(&DMA_GATHER_KEY, context).map(Self)
    }
}

impl Transferring for SimDmaGather {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let batch = batch.into_host()?;
        let (device, dataset) = (self.0.device.clone(), self.0.dataset.clone());
        let row_bytes = matrix(&dataset).filter(|_| batch.features.is_none()).map_or(0, FeatureMatrix::row_bytes);
        let found = self.0.cache.find(if row_bytes > 0 { &batch.input_nodes } else { &[] });
        let moved = batch.num_bytes() + found.misses * row_bytes;
        let counters = found.counters().with(&LINK_BYTES, moved as u64);
        let moved = self.0.stream.submit_costing(batch.id, batch, move |(), batch| {
            let mut copied = SimBatch::copy(&device, &DMA_GATHER_KEY, batch)?;
            if let Some(matrix) = matrix(&dataset) {
                copied.gather(matrix)?;
            }
            let seconds = device.seconds(|machine, own| {
                let gathered = if row_bytes > 0 { gathering(machine, own, found, row_bytes) } else { 0.0 };
                machine.copying(own, batch.num_bytes() as f64) + gathered
            });
            Ok((copied.into_batch(), seconds))
        });
        Ok(moved.counting(counters))
    }

    fn cache(&self) -> Option<CacheCurve> {
        self.0.cache.curve()
    }

    fn resize_cache(&mut self, bytes: u64) -> Result<()> {
        self.0.cache.resize(bytes)
    }
}

/// Phase Transferring of mini-batches sampled on the accelerator of a described machine, `Transferring_CPU+PCIe_SimHostGather`: the host
/// gathers (NeutronOrch §3.1, Case 2).
#[derive(Debug)]
pub struct SimHostGather(Transfers);

impl SimHostGather {
    /// Builds the operator on a device; the context's options are ignored.
    ///
    /// # Errors
    ///
    /// As [`SimGather::new`](crate::SimGather::new).
    pub fn new(context: &TransferringContext, device: &Device) -> Result<Self> {
        Transfers::new(&HOST_GATHER_KEY, context, device, device.place(), Work::TransferringDevice).map(Self)
    }
}

impl Transferring for SimHostGather {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        // Rows that the host gathers are not looked up in a device's cache: all count as misses.
        self.0.gather(batch, NODE_BYTES, |machine, own, found, row_bytes| {
            machine.host_gathering(own, found.misses as f64, row_bytes)
        })
    }
}

/// Phase Transferring within the host of a described machine, `Transferring_CPU_SimHost`: it moves nothing and takes no time.
#[derive(Debug)]
pub struct SimHost {
    /// Source of missing features, if they are gathered.
    dataset: Option<Arc<Dataset>>,
}

impl SimHost {
    /// Builds the operator; the context's options are ignored.
    ///
    /// # Errors
    ///
    /// Places other than the host.
    pub fn new(context: &TransferringContext) -> Result<Self> {
        let TransferringContext { dataset, from, to, gather, .. } = context;
        if [from, to] != [&Place::Host; 2] {
            let message = format!("it goes from host to host, not from {from} to {to}; give these places");
            return Err(Error::setting(HOST_KEY, message));
        }
        Ok(Self { dataset: (*gather && dataset.features.is_some()).then(|| Arc::clone(dataset)) })
    }
}

impl Transferring for SimHost {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let mut batch = batch.into_host()?;
        if let (None, Some(matrix)) = (&batch.features, matrix(&self.dataset)) {
            gather_features(&mut batch, matrix);
        }
        Ok(Handle::ready(MiniBatch::Host(batch), Duration::ZERO))
    }
}
