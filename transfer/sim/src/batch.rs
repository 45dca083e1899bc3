//! Mini-batches in simulated device memory.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use morphgl_graph_store::FeatureMatrix;
use morphgl_registry::{
    BatchFeatures, BatchId, DeviceBatch, Error, ErrorKind, FirstLayerRows, HostBatch, Key, MiniBatch, Place, Result,
};

use crate::Device;
use crate::digest::{copy, digest, with_features};
use crate::memory::Slot;

/// A mini-batch in simulated device memory, with the digest of its content at its source.
///
/// Clones refer to the same mini-batch; its memory is freed with the last of them.
#[derive(Clone)]
pub struct SimBatch {
    id: BatchId,
    num_seeds: usize,
    device: Device,
    expected: u64,
    slot: Arc<Slot>,
}

impl SimBatch {
    /// Copies a mini-batch of the host into the device's memory.
    ///
    /// # Errors
    ///
    /// The memory is full.
    pub fn copy(device: &Device, key: &Key, batch: &HostBatch) -> Result<Self> {
        let expected = digest(batch);
        let mut slot = device.memory().take(key, batch.id)?;
        copy(batch, &mut slot.batch);
        Ok(Self { id: batch.id, num_seeds: batch.num_seeds, device: device.clone(), expected, slot: Arc::new(slot) })
    }

    /// Makes the mini-batch `id` in device memory. `make` receives a buffer with stale content, and overwrites all of it.
    ///
    /// # Errors
    ///
    /// The memory is full, or the error of `make`.
    pub fn make(
        device: &Device,
        key: &Key,
        id: BatchId,
        make: impl FnOnce(&mut HostBatch) -> Result<()>,
    ) -> Result<Self> {
        let mut slot = device.memory().take(key, id)?;
        make(&mut slot.batch)?;
        let (num_seeds, expected) = (slot.batch.num_seeds, digest(&slot.batch));
        Ok(Self { id, num_seeds, device: device.clone(), expected, slot: Arc::new(slot) })
    }

    /// Borrows a mini-batch in the memory of `device`.
    ///
    /// # Errors
    ///
    /// It is on the host, or on another device.
    pub fn on<'a>(device: &Device, batch: &'a MiniBatch) -> Result<&'a Self> {
        let ours = match batch {
            MiniBatch::Host(_) => None,
            MiniBatch::Device(batch) => batch.as_any().downcast_ref::<Self>(),
        };
        let message = match ours {
            Some(ours) if ours.device.is(device) => return Ok(ours),
            Some(ours) => format!(
                "expected on the {device:?}, lies on the {:?}; build a route's operators with one configuration",
                ours.device
            ),
            None => format!("expected on the simulated device at {}, lies at {}", device.place(), batch.place()),
        };
        Err(Error::new(batch.id(), ErrorKind::Misplaced(message)))
    }

    /// The content, after verifying its digest.
    ///
    /// # Errors
    ///
    /// The digest differs, so buffers were mixed up. The error names both mini-batches.
    ///
    /// # Complexity
    ///
    /// O(bytes), at the speed of memory.
    pub fn content(&self) -> Result<&HostBatch> {
        let batch = &self.slot.batch;
        if digest(batch) == self.expected {
            return Ok(batch);
        }
        let changed = if batch.id == self.id { " with other bytes than it came with" } else { "" };
        let message =
            format!("content was mixed up in simulated device memory: its buffer holds {}{changed}", batch.id);
        Err(Error::failed(self.id, message))
    }

    /// Digest of the content at its source.
    pub fn expected_digest(&self) -> u64 {
        self.expected
    }

    /// Fraction of the mini-batch's training work that remains when its given rows are not computed; 1 without given rows. Work is
    /// counted in aggregated edges, and a given row is assumed to have as many as a computed row has on average.
    pub fn training_part(&self) -> f64 {
        let batch = &self.slot.batch;
        let (Some(given), Some(first)) = (&batch.given, batch.blocks.first()) else { return 1.0 };
        let left_out = (first.num_edges() * given.nodes.len()) as f64 / first.num_dst.max(1) as f64;
        let edges = batch.num_edges() as f64;
        if left_out > 0.0 { edges / (edges + left_out) } else { 1.0 }
    }

    /// Bytes of its arrays.
    pub fn num_array_bytes(&self) -> usize {
        self.slot.batch.num_bytes()
    }

    /// The nodes whose features are missing: all input nodes, or none. The content is not verified.
    pub fn missing_rows(&self) -> &[u32] {
        let batch = &self.slot.batch;
        if batch.features.is_some() { &[] } else { &batch.input_nodes }
    }

    /// Gathers the features of the input nodes, if the mini-batch has none.
    ///
    /// # Errors
    ///
    /// Mixed-up content, or a mini-batch that other work still reads.
    pub fn gather(&mut self, matrix: &FeatureMatrix) -> Result<()> {
        if self.content()?.features.is_some() {
            return Ok(());
        }
        let expected = with_features(&self.slot.batch, matrix);
        gather_features(&mut self.exclusive()?.batch, matrix);
        self.expected = expected;
        self.content().map(|_| ())
    }

    /// Changes the content without its digest, as a mix-up of buffers would; for tests of the detection.
    ///
    /// # Errors
    ///
    /// Other work still reads the mini-batch.
    pub fn tamper(&mut self, change: impl FnOnce(&mut HostBatch)) -> Result<()> {
        change(&mut self.exclusive()?.batch);
        Ok(())
    }

    fn exclusive(&mut self) -> Result<&mut Slot> {
        let message = "its buffer is still read by work that is under way; wait for that first";
        Arc::get_mut(&mut self.slot).ok_or_else(|| Error::setting(self.id, message))
    }

    /// The mini-batch as the registry's type.
    pub fn into_batch(self) -> MiniBatch {
        MiniBatch::Device(Box::new(self))
    }
}

/// Gathers the features of the input nodes of a mini-batch that has none.
pub fn gather_features(batch: &mut HostBatch, matrix: &FeatureMatrix) {
    let mut features = BatchFeatures::like(matrix);
    matrix.gather_rows(&batch.input_nodes, features.resize(batch.input_nodes.len(), matrix.dim(), matrix.dtype()));
    batch.features = Some(features);
}

impl DeviceBatch for SimBatch {
    fn id(&self) -> BatchId {
        self.id
    }

    fn place(&self) -> Place {
        self.device.place().clone()
    }

    fn num_seeds(&self) -> usize {
        self.num_seeds
    }

    fn first_layer_rows(&self) -> FirstLayerRows {
        self.slot.batch.first_layer_rows()
    }

    fn to_host(&self) -> Result<HostBatch> {
        self.content().cloned()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for SimBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimBatch({} at {})", self.id, self.device.place())
    }
}
