//! Mini-batches in device memory, the form in which CUDA operators exchange them.

use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use morphgl_graph_store::Dtype;
use morphgl_registry::{
    BatchFeatures, BatchId, BatchPairs, Block, DeviceBatch, Error, ErrorKind, FirstLayerRows, GivenRows, HostBatch,
    MiniBatch, Place, Result, TargetValues,
};

use crate::lock::lock;
use crate::memory::Block as MemoryBlock;
use crate::{Buffer, Device, Event, Pinned, Stream};

/// A block (one hop) in device memory; fields as those of [`Block`].
#[derive(Debug)]
pub struct CudaBlock {
    /// Number of destination nodes.
    pub num_dst: usize,
    /// Number of source nodes, the destination nodes included.
    pub num_src: usize,
    /// Row offsets, `num_dst + 1` of them.
    pub indptr: Buffer<u32>,
    /// Local ids of the source nodes, row by row.
    pub indices: Buffer<u32>,
    /// Edge weights, if the graph has any.
    pub weights: Option<Buffer<f32>>,
    /// Whether the weights are the edges' importance by the sampler.
    pub importance: bool,
    /// Number of the type of each edge, ascending in every row, where edges are sampled by type.
    pub edge_types: Option<Buffer<u16>>,
}

/// Features in device memory: a row per input node.
#[derive(Debug)]
pub struct CudaFeatures {
    /// Elements per row.
    pub dim: usize,
    /// Element type: f32, f16, bf16 or u8.
    pub dtype: Dtype,
    /// The rows.
    pub rows: CudaRows,
}

/// Where the feature rows of a mini-batch lie.
#[derive(Debug)]
pub enum CudaRows {
    /// One row per input node, packed.
    Packed(Buffer<u8>),
    /// In a table of the rows of all nodes: an input node has the row of its number. The mini-batch has no copy of them.
    OfNodes(RowTable),
}

/// The rows of all nodes in a device's memory, which mini-batches share: one part of a pool. Nobody writes to it.
#[derive(Debug, Clone)]
pub struct RowTable {
    parts: Arc<[Buffer<u8>]>,
    part: usize,
}

impl RowTable {
    /// The rows of part `part`.
    ///
    /// # Panics
    ///
    /// When there are not so many parts.
    pub fn new(parts: Arc<[Buffer<u8>]>, part: usize) -> Self {
        assert!(part < parts.len(), "part {part} of {}", parts.len());
        Self { parts, part }
    }
}

impl Deref for RowTable {
    type Target = Buffer<u8>;

    fn deref(&self) -> &Buffer<u8> {
        &self.parts[self.part]
    }
}

/// Given rows in device memory; fields as those of [`GivenRows`].
#[derive(Debug)]
pub struct CudaGivenRows {
    /// Their nodes, as global ids.
    pub nodes: Buffer<u32>,
    /// In-degree of each node in the whole graph.
    pub degrees: Buffer<f32>,
    /// The rows, one per node, before dropout.
    pub rows: Buffer<f32>,
    /// What each of the first layer's weights multiplies for these nodes.
    pub inputs: Vec<Buffer<f32>>,
    /// Optimizer steps before the parameters that the rows were computed with.
    pub version: u64,
}

/// The pairs of a mini-batch in device memory; as [`BatchPairs`].
#[derive(Debug)]
pub struct CudaPairs {
    /// Number of positives, which come first.
    pub num_positives: usize,
    /// Source and destination of each pair, as local ids: two numbers per pair.
    pub ends: Buffer<u32>,
    /// Edge types of the pairs, in host memory: no operator on a device reads them.
    pub edge_types: Vec<u16>,
}

/// Real-valued targets of each seed in device memory; as [`TargetValues`].
#[derive(Debug)]
pub struct CudaTargets {
    /// Values per seed.
    pub width: usize,
    /// The values, `width` per seed.
    pub values: Buffer<f32>,
}

/// A mini-batch in the memory of a CUDA device; fields as those of [`HostBatch`].
///
/// A stream that reads it waits for `ready` first; a change replaces `ready`.
#[derive(Debug)]
pub struct CudaBatch {
    /// Its device.
    pub device: Device,
    /// Event after which the content is complete.
    pub ready: Event,
    /// Epoch and batch index.
    pub id: BatchId,
    /// Number of seeds.
    pub num_seeds: usize,
    /// Nodes whose features the first layer reads, as global ids.
    pub input_nodes: Buffer<u32>,
    /// In-degree of each input node in the whole graph.
    pub degrees: Buffer<f32>,
    /// Blocks, the one farthest from the seeds first.
    pub blocks: Vec<CudaBlock>,
    /// Features of the input nodes; `None` if transferring fills them in or the graph has none.
    pub features: Option<CudaFeatures>,
    /// Rows of the first layer's output that are not computed.
    pub given: Option<CudaGivenRows>,
    /// Class of each seed; empty if the graph has no labels.
    pub labels: Buffer<i32>,
    /// Real-valued targets of the seeds.
    pub targets: CudaTargets,
    /// Index of the seed whose tree each input node is in, where the device has sampled disjoint trees. Copies of the host's mini-batches
    /// have none.
    pub trees: Option<Buffer<u32>>,
    /// The pairs whose end nodes the seeds are; `None` where the seeds are nodes.
    pub pairs: Option<CudaPairs>,
    /// Event after its last use: see [`CudaBatch::done_after`].
    pub last_use: LastUse,
}

/// Event after all work on a mini-batch, if its last user has recorded one.
#[derive(Debug, Default)]
pub struct LastUse(Mutex<Option<Event>>);

impl CudaBatch {
    /// Borrows a mini-batch in the memory of `device`.
    ///
    /// # Errors
    ///
    /// The mini-batch is in another memory.
    pub fn on<'a>(device: &Device, batch: &'a MiniBatch) -> Result<&'a Self> {
        let ours = match batch {
            MiniBatch::Host(_) => None,
            MiniBatch::Device(batch) => batch.as_any().downcast_ref::<Self>(),
        };
        ours.filter(|ours| ours.device.is(device)).ok_or_else(|| {
            let message = format!("expected on the device at {}, lies at {}", device.place(), batch.place());
            Error::new(format!("{}, {}", device.operator(), batch.id()), ErrorKind::Misplaced(message))
        })
    }

    /// Takes ownership of a mini-batch in the memory of `device`, and forgets its last use, as the new owner queues more work on it.
    ///
    /// # Errors
    ///
    /// The mini-batch is in another memory.
    pub fn into_on(device: &Device, batch: MiniBatch) -> Result<Box<Self>> {
        Self::on(device, &batch)?;
        let MiniBatch::Device(batch) = batch else { unreachable!("the mini-batch is on the device") };
        let batch: Box<Self> = batch.into_any().downcast().expect("the type was checked above");
        // The new owner will queue more work on it.
        *batch.last_use() = None;
        Ok(batch)
    }

    /// Declares all work on the mini-batch done at `event`. If the event has happened when the mini-batch is dropped, its
    /// memory is reused without waiting for its streams, which by then have the work of later mini-batches.
    ///
    /// # Safety
    ///
    /// All work on its buffers so far comes before `event`. Later work is waited for, or followed by another call, before the
    /// mini-batch is dropped.
    pub unsafe fn done_after(&self, event: Event) {
        *self.last_use() = Some(event);
    }

    /// Forgets the streams that used its memory, so that the next user does not wait for their later work.
    ///
    /// # Safety
    ///
    /// All work on its buffers is done: an event after it has happened.
    pub unsafe fn settle(&self) {
        // SAFETY: the caller's promise.
        self.memory().for_each(|block| unsafe { block.settle() });
    }

    pub(crate) fn memory(&self) -> impl Iterator<Item = &MemoryBlock> {
        let nodes = [self.input_nodes.block(), self.degrees.block(), self.labels.block(), self.targets.values.block()];
        let hops = self.blocks.iter().flat_map(|block| {
            let types = block.edge_types.as_ref().map(Buffer::block);
            let arrays = [block.indptr.block(), block.indices.block()].into_iter().chain(types);
            arrays.chain(block.weights.as_ref().map(Buffer::block))
        });
        let given = self.given.iter().flat_map(|CudaGivenRows { nodes, degrees, rows, inputs, .. }| {
            [nodes.block(), degrees.block(), rows.block()].into_iter().chain(inputs.iter().map(Buffer::block))
        });
        let features = self.features.as_ref().and_then(|features| match &features.rows {
            CudaRows::Packed(bytes) => Some(bytes.block()),
            CudaRows::OfNodes(_) => None,
        });
        let pairs = self.pairs.iter().map(|pairs| pairs.ends.block());
        let nodes = nodes.into_iter().chain(self.trees.as_ref().map(Buffer::block));
        nodes.chain(hops).chain(features).chain(given).chain(pairs)
    }

    fn last_use(&self) -> MutexGuard<'_, Option<Event>> {
        lock(&self.last_use.0)
    }

    /// Uploads a mini-batch of the host, array by array.
    ///
    /// # Errors
    ///
    /// Memory is full, or the driver fails.
    pub fn upload(stream: &Stream, batch: &HostBatch) -> Result<Self> {
        let block = |block: &Block| -> Result<CudaBlock> {
            Ok(CudaBlock {
                num_dst: block.num_dst,
                num_src: block.num_src,
                indptr: Buffer::of(stream, &block.indptr)?,
                indices: Buffer::of(stream, &block.indices)?,
                weights: block.weights.as_deref().map(|w| Buffer::of(stream, w)).transpose()?,
                importance: block.importance,
                edge_types: block.edge_types.as_deref().map(|types| Buffer::of(stream, types)).transpose()?,
            })
        };
        let features = batch.features.as_ref().map(|f| -> Result<CudaFeatures> {
            Ok(CudaFeatures { dim: f.dim, dtype: f.dtype, rows: CudaRows::Packed(Buffer::of(stream, f.as_bytes())?) })
        });
        let given = batch.given.as_ref().map(|given| -> Result<CudaGivenRows> {
            Ok(CudaGivenRows {
                nodes: Buffer::of(stream, &given.nodes)?,
                degrees: Buffer::of(stream, &given.degrees)?,
                rows: Buffer::of(stream, &given.rows)?,
                inputs: given.inputs.iter().map(|input| Buffer::of(stream, input)).collect::<Result<_>>()?,
                version: given.version,
            })
        });
        let pairs = batch.pairs.as_ref().map(|pairs| -> Result<CudaPairs> {
            let ends = Buffer::of(stream, pairs.ends.as_flattened())?;
            Ok(CudaPairs { num_positives: pairs.num_positives, ends, edge_types: pairs.edge_types.clone() })
        });
        Ok(Self {
            device: stream.device().clone(),
            id: batch.id,
            num_seeds: batch.num_seeds,
            input_nodes: Buffer::of(stream, &batch.input_nodes)?,
            degrees: Buffer::of(stream, &batch.degrees)?,
            blocks: batch.blocks.iter().map(block).collect::<Result<_>>()?,
            features: features.transpose()?,
            given: given.transpose()?,
            labels: Buffer::of(stream, &batch.labels)?,
            targets: CudaTargets { width: batch.targets.width, values: Buffer::of(stream, &batch.targets.values)? },
            trees: None,
            pairs: pairs.transpose()?,
            ready: stream.record(false)?,
            last_use: LastUse::default(),
        })
    }

    /// The mini-batch as the registry's type.
    pub fn into_batch(self) -> MiniBatch {
        MiniBatch::Device(Box::new(self))
    }
}

impl Drop for CudaBatch {
    fn drop(&mut self) {
        if self.last_use().take().is_some_and(|event| event.has_happened()) {
            // SAFETY: all work on the buffers came before the event, or was waited for.
            unsafe { self.settle() };
        }
    }
}

impl DeviceBatch for CudaBatch {
    fn id(&self) -> BatchId {
        self.id
    }

    fn place(&self) -> Place {
        self.device.place().clone()
    }

    fn num_seeds(&self) -> usize {
        self.num_seeds
    }

    fn num_bytes(&self) -> Option<u64> {
        Some(self.memory().map(MemoryBlock::num_bytes).sum())
    }

    fn first_layer_rows(&self) -> FirstLayerRows {
        FirstLayerRows {
            computed: self.blocks.first().map_or(0, |block| block.num_dst),
            given: self.given.as_ref().map_or(0, |given| given.nodes.len()),
            version: self.given.as_ref().map(|given| given.version),
        }
    }

    fn to_host(&self) -> Result<HostBatch> {
        let stream = Stream::new(&self.device, false)?;
        stream.wait(&self.ready)?;
        let block = |block: &CudaBlock| -> Result<Block> {
            Ok(Block {
                num_dst: block.num_dst,
                num_src: block.num_src,
                indptr: block.indptr.to_vec(&stream)?,
                indices: block.indices.to_vec(&stream)?,
                weights: block.weights.as_ref().map(|w| w.to_vec(&stream)).transpose()?,
                importance: block.importance,
                edge_types: block.edge_types.as_ref().map(|types| types.to_vec(&stream)).transpose()?,
                edge_ids: None,
            })
        };
        let features = self.features.as_ref().map(|f| -> Result<BatchFeatures> {
            let bytes = match &f.rows {
                CudaRows::Packed(bytes) => bytes.to_vec(&stream)?,
                CudaRows::OfNodes(table) => {
                    let row_bytes = f.dim * f.dtype.size();
                    let nodes = self.input_nodes.to_vec(&stream)?;
                    let mut rows = Pinned::new(&self.device, nodes.len() * row_bytes)?;
                    for (i, &node) in nodes.iter().enumerate() {
                        let start = node as usize * row_bytes;
                        stream.copy(&**table, start..start + row_bytes, &mut rows, i * row_bytes)?;
                    }
                    stream.synchronize()?;
                    rows.to_vec()
                }
            };
            let mut features = BatchFeatures::zeros(0, f.dim, f.dtype);
            let rows = bytes.len() / (f.dim * f.dtype.size()).max(1);
            features.resize(rows, f.dim, f.dtype).copy_from_slice(&bytes);
            Ok(features)
        });
        let given = self.given.as_ref().map(|given| -> Result<Box<GivenRows>> {
            Ok(Box::new(GivenRows {
                nodes: given.nodes.to_vec(&stream)?,
                degrees: given.degrees.to_vec(&stream)?,
                rows: given.rows.to_vec(&stream)?,
                inputs: given.inputs.iter().map(|input| input.to_vec(&stream)).collect::<Result<_>>()?,
                version: given.version,
            }))
        });
        let pairs = self.pairs.as_ref().map(|pairs| -> Result<Box<BatchPairs>> {
            let ends = bytemuck::cast_slice(&pairs.ends.to_vec(&stream)?).to_vec();
            Ok(Box::new(BatchPairs { num_positives: pairs.num_positives, ends, edge_types: pairs.edge_types.clone() }))
        });
        Ok(HostBatch {
            id: self.id,
            num_seeds: self.num_seeds,
            input_nodes: self.input_nodes.to_vec(&stream)?,
            degrees: self.degrees.to_vec(&stream)?,
            blocks: self.blocks.iter().map(block).collect::<Result<_>>()?,
            features: features.transpose()?,
            given: given.transpose()?,
            labels: self.labels.to_vec(&stream)?,
            targets: TargetValues { width: self.targets.width, values: self.targets.values.to_vec(&stream)? },
            features_by_type: Vec::new(),
            trees: self.trees.as_ref().map(|trees| trees.to_vec(&stream)).transpose()?,
            pairs: pairs.transpose()?,
        })
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
