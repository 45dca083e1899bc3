//! The copies from the host and from another device, the gather on the device, and the host's own mini-batches.

use std::sync::Arc;

use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_registry::{
    CacheCurve, Counters, DeviceBatch, Error, Handle, Key, LINK_BYTES, MiniBatch, PEER_BYTES, Place, Result,
    Transferring, TransferringContext,
};
use morphgl_sim::{Device, DeviceDescription, MachineDescription, SimBatch, Stream, Work, gather_features};

use crate::cache::{Found, RowCache};
use crate::{COPY_KEY, DMA_KEY, GATHER_KEY};

/// State of an operator.
#[derive(Debug)]
pub(crate) struct Transfers {
    pub(crate) device: Device,
    pub(crate) stream: Stream<()>,
    /// Source of missing features, if they are gathered.
    pub(crate) dataset: Option<Arc<Dataset>>,
    /// Rows that the device gathers from its own memory.
    pub(crate) cache: RowCache,
}

impl Transfers {
    /// Refuses places other than from `from` to the device.
    pub(crate) fn new(
        key: &Key,
        context: &TransferringContext,
        device: &Device,
        from: &Place,
        work: Work,
    ) -> Result<Self> {
        check_places(key, context, [from, device.place()])?;
        Ok(Self::over(device, Stream::new(device, key, work, ())?, context))
    }

    fn over(device: &Device, stream: Stream<()>, context: &TransferringContext) -> Self {
        let gathers = context.gather && context.dataset.features.is_some();
        let dataset = gathers.then(|| Arc::clone(&context.dataset));
        Self { device: device.clone(), stream, dataset, cache: RowCache::off() }
    }

    /// The same transfers with the cache that the options say.
    pub(crate) fn caching(self, key: &Key, context: &TransferringContext) -> Result<Self> {
        Ok(Self { cache: RowCache::new(key, context, &self.device)?, ..self })
    }
}

/// Seconds in which a device gathers the rows that were looked up: misses over its link, hits within its memory.
pub(crate) fn gathering(
    machine: &MachineDescription,
    device: &DeviceDescription,
    Found { hits, misses, .. }: Found,
    row_bytes: usize,
) -> f64 {
    let missed = machine.gathering(device, misses as f64, row_bytes);
    missed + machine.gathering_cached(device, hits as f64, row_bytes)
}

/// Seconds in which rows of so many bytes are gathered for a device.
pub(crate) type Seconds = fn(&MachineDescription, &DeviceDescription, Found, usize) -> f64;

impl Transfers {
    /// Gathers the features that a mini-batch on the device lacks; so many bytes of each row cross the link besides.
    pub(crate) fn gather(&mut self, batch: MiniBatch, id_bytes: usize, seconds: Seconds) -> Result<Handle<MiniBatch>> {
        let mut ours = SimBatch::on(&self.device, &batch)?.clone();
        // The clone shares the slot: make it the only reference.
        drop(batch);
        let dataset = self.dataset.clone();
        let row_bytes = matrix(&dataset).map_or(0, FeatureMatrix::row_bytes);
        let moved = if row_bytes > 0 { row_bytes + id_bytes } else { 0 };
        let found = self.cache.find(ours.missing_rows());
        let counters = found.counters().with(&LINK_BYTES, (found.misses * moved) as u64);
        let device = self.device.clone();
        let gathered = self.stream.submit_costing(ours.id(), (), move |(), ()| {
            match matrix(&dataset) {
                Some(matrix) => ours.gather(matrix)?,
                None => ours.content().map(|_| ())?,
            }
            Ok((ours.into_batch(), device.seconds(|machine, own| seconds(machine, own, found, row_bytes))))
        });
        Ok(gathered.counting(counters))
    }
}

fn check_places(key: &Key, context: &TransferringContext, [from, to]: [&Place; 2]) -> Result<()> {
    let TransferringContext { from: given_from, to: given_to, .. } = context;
    if [given_from, given_to] != [from, to] {
        let message = format!("it goes from {from} to {to}, not from {given_from} to {given_to}; give these places");
        return Err(Error::setting(key, message));
    }
    Ok(())
}

pub(crate) fn matrix(dataset: &Option<Arc<Dataset>>) -> Option<&FeatureMatrix> {
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
        let copied = self.0.stream.submit_costing(batch.id, batch, move |(), batch| {
            if let (None, Some(matrix)) = (&batch.features, matrix(&dataset)) {
                gather_features(batch, matrix);
            }
            let seconds = device.seconds(|machine, own| machine.copying(own, batch.num_bytes() as f64));
            Ok((SimBatch::copy(&device, &DMA_KEY, batch)?.into_batch(), seconds))
        });
        Ok(copied.counting(counters))
    }
}

/// Phase Transferring of mini-batches sampled on the simulated accelerator, `Transferring_PCIe+SIM_SimGather`.
#[derive(Debug)]
pub struct SimGather(Transfers);

impl SimGather {
    /// Builds the operator on a device; of the context's options those of the cache are read.
    ///
    /// # Errors
    ///
    /// Places other than the device, no thread can be started, or a cache that cannot be.
    pub fn new(context: &TransferringContext, device: &Device) -> Result<Self> {
        let transfers = Transfers::new(&GATHER_KEY, context, device, device.place(), Work::TransferringDevice)?;
        transfers.caching(&GATHER_KEY, context).map(Self)
    }
}

impl Transferring for SimGather {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        self.0.gather(batch, 0, gathering)
    }

    fn cache(&self) -> Option<CacheCurve> {
        self.0.cache.curve()
    }

    fn resize_cache(&mut self, bytes: u64) -> Result<()> {
        self.0.cache.resize(bytes)
    }
}

/// Phase Transferring from one simulated accelerator to another, `Transferring_PCIe+Peer+SIM_SimCopy`.
#[derive(Debug)]
pub struct SimCopy {
    from: Device,
    transfers: Transfers,
}

impl SimCopy {
    /// Builds the operator between two devices; of the context's options those of the cache are read.
    ///
    /// # Errors
    ///
    /// Places other than from the one device to the other, one device twice, no thread can be started, or a cache that cannot be.
    pub fn new(context: &TransferringContext, from: &Device, to: &Device) -> Result<Self> {
        check_places(&COPY_KEY, context, [from.place(), to.place()])?;
        if from.place() == to.place() {
            let message =
                format!("it goes from one device to another, not from {0} to {0}; give two places", to.place());
            return Err(Error::setting(COPY_KEY, message));
        }
        let stream = Stream::between(from, to, &COPY_KEY, Work::TransferringPeer, ())?;
        let transfers = Transfers::over(to, stream, context).caching(&COPY_KEY, context)?;
        Ok(Self { from: from.clone(), transfers })
    }
}

impl Transferring for SimCopy {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let source = SimBatch::on(&self.from, &batch)?.clone();
        drop(batch);
        let (device, dataset) = (self.transfers.device.clone(), self.transfers.dataset.clone());
        let row_bytes = matrix(&dataset).map_or(0, FeatureMatrix::row_bytes);
        let found = self.transfers.cache.find(source.missing_rows());
        let counters = found
            .counters()
            .with(&PEER_BYTES, source.num_array_bytes() as u64)
            .with(&LINK_BYTES, (found.misses * row_bytes) as u64);
        let (from, bytes) = (self.from.clone(), source.num_array_bytes());
        // The source occupies its device's memory until the copy is done.
        let copied = self.transfers.stream.submit_costing(source.id(), source, move |(), source| {
            let mut copied = SimBatch::copy(&device, &COPY_KEY, source.content()?)?;
            let gathers = matrix(&dataset);
            if let Some(matrix) = gathers {
                copied.gather(matrix)?;
            }
            let seconds = device.seconds(|machine, own| {
                let other = machine.device(from.place()).expect("both devices are of one machine");
                let gathered = gathers.map_or(0.0, |_| gathering(machine, own, found, row_bytes));
                machine.copying_between(other, own, bytes as f64) + gathered
            });
            Ok((copied.into_batch(), seconds))
        });
        Ok(copied.counting(counters))
    }

    fn cache(&self) -> Option<CacheCurve> {
        self.transfers.cache.curve()
    }

    fn resize_cache(&mut self, bytes: u64) -> Result<()> {
        self.transfers.cache.resize(bytes)
    }
}
