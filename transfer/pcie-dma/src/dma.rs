//! The operator.

use std::collections::VecDeque;
use std::sync::Arc;

use morphgl_cuda::{CudaBatch, CudaBlock, CudaFeatures, Device, Event, LastUse, Stream, pending};
use morphgl_graph_store::{Dataset, Dtype};
use morphgl_registry::{
    Block, Counters, Error, Handle, HostBatch, LINK_BYTES, MiniBatch, Place, Result, Transferring, TransferringContext,
};
use serde::Deserialize;

use crate::KEY;
use crate::arena::Arena;

/// Bytes of features above which they are gathered on the current rayon pool.
const PARALLEL_BYTES: usize = 1 << 20;

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
    device: Device,
    stream: Stream,
    depth: usize,
    /// Ends of the copies in flight, the oldest first.
    in_flight: VecDeque<Event>,
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
            return Err(Error::setting(KEY, format!("it reads mini-batches in host memory, not at {from}; give host")));
        }
        let options = Option::<Options>::deserialize(options);
        let options = options.map_err(|e| Error::setting(KEY, format!("options: {e}")))?.unwrap_or_default();
        let depth = options.depth.unwrap_or(3);
        if depth == 0 {
            return Err(Error::setting(KEY, "a depth of 0 moves nothing; give 1 or more"));
        }
        let device = Device::open(to, &KEY)?;
        let stream = Stream::new(&device, true)?;
        let (dataset, in_flight) = (Arc::clone(dataset), VecDeque::with_capacity(depth));
        Ok(Self { dataset, gather: *gather, device, stream, depth, in_flight })
    }

    /// Shape of the features of `batch` on the device: rows, elements per row, element type.
    fn features(&self, batch: &HostBatch) -> Option<(usize, usize, Dtype)> {
        match (&batch.features, &self.dataset.features) {
            (Some(features), _) => Some((features.num_rows(), features.dim, features.dtype)),
            (None, Some(matrix)) if self.gather => Some((batch.input_nodes.len(), matrix.dim(), matrix.dtype())),
            _ => None,
        }
    }

    fn write_features(&self, batch: &HostBatch, out: &mut [u8]) {
        match (&batch.features, &self.dataset.features) {
            (Some(features), _) => out.copy_from_slice(features.as_bytes()),
            (None, Some(matrix)) if out.len() > PARALLEL_BYTES => matrix.par_gather_rows(&batch.input_nodes, out),
            (None, Some(matrix)) => matrix.gather_rows(&batch.input_nodes, out),
            (None, None) => {}
        }
    }

    /// Stages a mini-batch in pinned memory and queues its copies; returns also the number of bytes.
    fn send(&self, batch: &HostBatch) -> Result<(CudaBatch, usize)> {
        let features = self.features(batch);
        let feature_bytes = features.map(|(rows, dim, dtype)| rows * dim * dtype.size());
        let num_bytes = sizes(batch).chain(feature_bytes).sum();
        let mut arena = Arena::new(&self.device, sizes(batch).chain(feature_bytes))?;
        let stream = &self.stream;
        // Features first: their copy, the longest, overlaps the staging of the others.
        let features = features.zip(feature_bytes).map(|((_, dim, dtype), len)| {
            let bytes = arena.send_with(stream, len, |out| self.write_features(batch, out))?;
            Ok(CudaFeatures { dim, dtype, bytes })
        });
        let features = features.transpose()?;
        let mut blocks = Vec::with_capacity(batch.blocks.len());
        for Block { num_dst, num_src, indptr, indices, weights, importance } in &batch.blocks {
            blocks.push(CudaBlock {
                num_dst: *num_dst,
                num_src: *num_src,
                indptr: arena.send(stream, indptr)?,
                indices: arena.send(stream, indices)?,
                weights: weights.as_ref().map(|w| arena.send(stream, w)).transpose()?,
                importance: *importance,
            });
        }
        let sent = CudaBatch {
            device: self.device.clone(),
            id: batch.id,
            num_seeds: batch.num_seeds,
            input_nodes: arena.send(stream, &batch.input_nodes)?,
            degrees: arena.send(stream, &batch.degrees)?,
            labels: arena.send(stream, &batch.labels)?,
            blocks,
            features,
            ready: stream.record(false)?,
            last_use: LastUse::default(),
        };
        Ok((sent, num_bytes))
    }
}

/// Bytes of every array but the features.
fn sizes(batch: &HostBatch) -> impl Iterator<Item = usize> + '_ {
    let block = |b: &Block| [b.indptr.len(), b.indices.len(), b.weights.as_ref().map_or(0, Vec::len)];
    let others = [batch.input_nodes.len(), batch.degrees.len(), batch.labels.len()];
    batch.blocks.iter().flat_map(block).chain(others).map(|elements| 4 * elements)
}

impl Transferring for PcieDma {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let batch = batch.into_host()?;
        while self.in_flight.len() >= self.depth {
            self.in_flight.pop_front().expect("depth is positive").synchronize()?;
        }
        let start = self.stream.record(true)?;
        let (sent, num_bytes) = self.send(&batch)?;
        self.in_flight.push_back(self.stream.record(false)?);
        let sent = pending(start, self.stream.record(true)?, move || Ok(sent.into_batch()));
        Ok(sent.counting(Counters::NONE.with(&LINK_BYTES, num_bytes as u64)))
    }
}
