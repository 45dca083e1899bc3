//! Mini-batches as arrays that other libraries read where they lie: int64 ids and one edge list, as PyG has them.

use std::sync::{Arc, Mutex};

use bytemuck::Pod;
use morphgl_graph_store::{Dataset, Dtype, TargetMatrix};
use morphgl_registry::{BatchId, MiniBatch, Place, Result};

use crate::copied::{OnDevice, copy_batch};
use crate::driver::Address;
use crate::foreign::ForeignStream;
use crate::lock::lock;
use crate::{Argument, Buffer, CudaBatch, CudaRows, Device, Event, Kernel, Pinned, Shape, Stream};

crate::kernels! {
    struct Kernels {
        EXPORT = "kernels/export.cu" {
            export_ids, export_rows, export_classes, export_pairs, export_table_rows_1, export_table_rows_4,
        }
    }
}

/// Threads of a block, those of a row of edges, and those of a row of a table, as in the kernels.
const BLOCK: usize = 256;
const LANES: usize = 8;
const WARP: usize = 32;

/// Which blocks of a mini-batch become its edge list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeList {
    /// All of them, the seeds' own hop first.
    AllHops,
    /// The first: of induced subgraphs all blocks are the same.
    OneHop,
    /// None.
    Nothing,
}

/// Makes arrays of mini-batches on a device, on a stream of its own.
#[derive(Debug)]
pub struct Exporter {
    stream: Arc<Stream>,
    released: Arc<Stream>,
    kernels: Kernels,
    max_blocks: usize,
    /// Those of all nodes.
    classes: Option<Buffer<i32>>,
    targets: Option<(Buffer<u8>, usize)>,
}

impl Exporter {
    /// Copies the classes and targets that `dataset` has of its nodes to the device: 4 bytes per node and value.
    ///
    /// # Errors
    ///
    /// The device's memory is full, or the driver fails.
    pub fn new(device: &Device, dataset: &Dataset) -> Result<Self> {
        let stream = Arc::new(Stream::new(device, false)?);
        let classes = dataset.node_labels().map(|classes| Buffer::of(&stream, classes)).transpose()?;
        let targets = dataset.node_targets().map(|targets: &TargetMatrix| {
            Ok((Buffer::of(&stream, bytemuck::cast_slice(targets.values()))?, targets.dim()))
        });
        Ok(Self {
            released: Arc::new(Stream::new(device, false)?),
            kernels: Kernels::load(device)?,
            max_blocks: device.properties()?.multiprocessors as usize * 16,
            classes,
            targets: targets.transpose()?,
            stream,
        })
    }

    /// Makes the arrays of a mini-batch, after the work that made it. O(nodes + edges) memory.
    ///
    /// # Errors
    ///
    /// It lies elsewhere, the device's memory is full, or the driver fails.
    pub fn export(&self, batch: MiniBatch, edges: EdgeList) -> Result<Arc<Exported>> {
        self.arrays(CudaBatch::into_on(self.stream.device(), batch)?, edges)
    }

    /// As [`Exporter::export`], of a copy of a mini-batch that stays its owner's: whatever is done with it later comes after the copy.
    ///
    /// # Errors
    ///
    /// As [`Exporter::export`].
    pub fn export_copy(&self, batch: &MiniBatch, edges: EdgeList) -> Result<Arc<Exported>> {
        let batch = CudaBatch::on(self.stream.device(), batch)?;
        self.stream.wait(&batch.ready)?;
        // Copies mark the arrays as this stream's, for which their next user waits.
        self.arrays(Box::new(copy_batch(&mut OnDevice(&self.stream), batch)?), edges)
    }

    fn arrays(&self, batch: Box<CudaBatch>, edges: EdgeList) -> Result<Arc<Exported>> {
        let stream = &*self.stream;
        stream.wait(&batch.ready)?;
        let nodes = &batch.input_nodes;
        let n_id = Buffer::new(stream, nodes.len())?;
        self.ids(nodes, &n_id, 0)?;
        let classes = self.classes.as_ref().map(|classes| self.classes(classes, nodes)).transpose()?;
        let targets = self.targets.as_ref().map(|(table, width)| self.rows((table, 4 * width), nodes)).transpose()?;
        // Packed rows are what the mini-batch has; those of a table of all nodes are copied.
        let table_rows = match &batch.features {
            Some(features) => match &features.rows {
                CudaRows::Packed(_) => None,
                CudaRows::OfNodes(table) => Some(self.rows((table, features.dim * features.dtype.size()), nodes)?),
            },
            None => None,
        };
        let edges = self.edges(&batch, edges)?;
        let pairs = batch.pairs.as_ref().map(|pairs| -> Result<Buffer<i64>> {
            let out = Buffer::new(stream, pairs.ends.len())?;
            let num_pairs = pairs.ends.len() / 2;
            let arguments = &mut [(&pairs.ends).into(), (num_pairs as u64).into(), (&out).into()];
            // SAFETY: each pair has two ends, and `out` as many elements.
            unsafe { self.launch(&self.kernels.export_pairs, num_pairs, arguments) }?;
            Ok(out)
        });
        let content = Content {
            pairs: pairs.transpose()?,
            ready: stream.record(false)?,
            released: Arc::clone(&self.released),
            batch,
            n_id,
            classes,
            targets: targets.zip(self.targets.as_ref().map(|(_, width)| *width)),
            table_rows,
            edges,
        };
        Ok(Arc::new(Exported { content: Some(content), readers: Mutex::default() }))
    }

    /// The edge list `[2, edges]`, and the edges' weights, where all have one.
    fn edges(&self, batch: &CudaBatch, edges: EdgeList) -> Result<Edges> {
        let stream = &*self.stream;
        let blocks: Vec<_> = match edges {
            EdgeList::AllHops => batch.blocks.iter().rev().collect(),
            EdgeList::OneHop => batch.blocks.iter().take(1).collect(),
            EdgeList::Nothing => return Ok(Edges { index: None, weights: None }),
        };
        let num_edges = blocks.iter().map(|block| block.indices.len()).sum();
        let edge_index = Buffer::new(stream, 2 * num_edges)?;
        let mut weights = match blocks.iter().all(|block| block.weights.is_some()) {
            true => Some(Buffer::new(stream, num_edges)?),
            false => None,
        };
        let mut at = 0;
        for block in blocks {
            self.ids(&block.indices, &edge_index, at)?;
            let arguments = &mut [
                (&block.indptr).into(),
                (block.num_dst as u64).into(),
                (&edge_index).into(),
                ((num_edges + at) as u64).into(),
            ];
            // SAFETY: a block has an offset more than rows, and the second half of the edge list has an element for each edge.
            unsafe { self.launch(&self.kernels.export_rows, block.num_dst * LANES, arguments) }?;
            if let (Some(of_block), Some(weights)) = (&block.weights, &mut weights) {
                stream.copy(of_block, 0..of_block.len(), weights, at)?;
            }
            at += block.indices.len();
        }
        Ok(Edges { index: Some(edge_index), weights })
    }

    /// Writes ids as int64, from element `at` of `out` on.
    fn ids(&self, ids: &Buffer<u32>, out: &Buffer<i64>, at: usize) -> Result<()> {
        assert!(at + ids.len() <= out.len(), "{} ids from {at} on of {}", ids.len(), out.len());
        let arguments = &mut [ids.into(), (ids.len() as u64).into(), out.into(), (at as u64).into()];
        // SAFETY: the output has as many elements from there on.
        unsafe { self.launch(&self.kernels.export_ids, ids.len(), arguments) }
    }

    fn classes(&self, classes: &Buffer<i32>, nodes: &Buffer<u32>) -> Result<Buffer<i64>> {
        let out = Buffer::new(&self.stream, nodes.len())?;
        let arguments = &mut [classes.into(), nodes.into(), (nodes.len() as u64).into(), (&out).into()];
        // SAFETY: all nodes have a class, and the output an element for each of these.
        unsafe { self.launch(&self.kernels.export_classes, nodes.len(), arguments) }?;
        Ok(out)
    }

    /// The rows of nodes in a table of all nodes' rows, each of so many bytes.
    fn rows(&self, (table, row_bytes): (&Buffer<u8>, usize), nodes: &Buffer<u32>) -> Result<Buffer<u8>> {
        let out = Buffer::new(&self.stream, nodes.len() * row_bytes)?;
        let (kernel, width) = match row_bytes % 4 {
            0 => (&self.kernels.export_table_rows_4, row_bytes / 4),
            _ => (&self.kernels.export_table_rows_1, row_bytes),
        };
        let (width, count) = (width as u64, nodes.len() as u64);
        let arguments = &mut [table.into(), width.into(), nodes.into(), count.into(), (&out).into()];
        // SAFETY: the table has a row of that width for each node, and the output one for each of these.
        unsafe { self.launch(kernel, nodes.len() * WARP, arguments) }?;
        Ok(out)
    }

    /// Launches a kernel on so many threads, or as many as a grid has.
    ///
    /// # Safety
    ///
    /// As of [`Stream::launch`].
    unsafe fn launch(&self, kernel: &Kernel, threads: usize, arguments: &mut [Argument<'_>]) -> Result<()> {
        let shape = Shape::linear(threads.div_ceil(BLOCK).clamp(1, self.max_blocks), BLOCK as u32);
        // SAFETY: the caller's promise.
        unsafe { self.stream.launch(kernel, shape, arguments) }
    }
}

/// A mini-batch and the arrays made of it, in a device's memory.
///
/// When it and its arrays are dropped, its memory is used again after the work that the streams which read it have been given by then
/// ([`ExportedArray::read_by`]).
#[derive(Debug)]
pub struct Exported {
    /// `Some` until the drop.
    content: Option<Content>,
    readers: Mutex<Vec<ForeignStream>>,
}

#[derive(Debug)]
struct Content {
    /// Event after which all arrays are complete.
    ready: Event,
    /// A stream that waits for readers, and does nothing else.
    released: Arc<Stream>,
    batch: Box<CudaBatch>,
    n_id: Buffer<i64>,
    classes: Option<Buffer<i64>>,
    /// With the number of a node's values.
    targets: Option<(Buffer<u8>, usize)>,
    table_rows: Option<Buffer<u8>>,
    edges: Edges,
    pairs: Option<Buffer<i64>>,
}

/// An edge list, sources first, and the edges' weights.
#[derive(Debug)]
struct Edges {
    index: Option<Buffer<i64>>,
    weights: Option<Buffer<f32>>,
}

/// A block of an exported mini-batch: rows of local sources, int32.
#[derive(Debug)]
pub struct ExportedBlock {
    /// Number of source nodes.
    pub num_src: usize,
    /// Number of destination nodes.
    pub num_dst: usize,
    /// Row offsets.
    pub indptr: ExportedArray,
    /// Local ids of the sources.
    pub indices: ExportedArray,
    /// Weights of the edges.
    pub weights: Option<ExportedArray>,
}

impl Exported {
    fn content(&self) -> &Content {
        self.content.as_ref().expect("the content is there until the drop")
    }

    /// Epoch and index.
    pub fn id(&self) -> BatchId {
        self.content().batch.id
    }

    /// Number of seeds.
    pub fn num_seeds(&self) -> usize {
        self.content().batch.num_seeds
    }

    /// Number of input nodes.
    pub fn num_nodes(&self) -> usize {
        self.content().n_id.len()
    }

    /// Number of positive pairs; 0 where the seeds are nodes.
    pub fn num_positives(&self) -> usize {
        self.content().batch.pairs.as_ref().map_or(0, |pairs| pairs.num_positives)
    }

    /// The device.
    pub fn place(&self) -> &Place {
        self.content().batch.device.place()
    }

    fn array<T: Pod>(self: &Arc<Self>, buffer: &Buffer<T>, shape: Vec<usize>, dtype: Dtype) -> ExportedArray {
        let bytes = buffer.len() * size_of::<T>();
        assert_eq!(bytes, shape.iter().product::<usize>() * dtype.size(), "bytes of the shape");
        ExportedArray { batch: Arc::clone(self), address: buffer.address(), shape, dtype }
    }

    fn list<T: Pod>(self: &Arc<Self>, buffer: &Buffer<T>, dtype: Dtype) -> ExportedArray {
        self.array(buffer, vec![buffer.len()], dtype)
    }

    /// Input nodes, int64.
    pub fn n_id(self: &Arc<Self>) -> ExportedArray {
        self.list(&self.content().n_id, Dtype::I64)
    }

    /// Class of each input node, int64, -1 for none; `None` where the dataset has none.
    pub fn classes(self: &Arc<Self>) -> Option<ExportedArray> {
        self.content().classes.as_ref().map(|classes| self.list(classes, Dtype::I64))
    }

    /// Targets `[nodes, targets]`, NaN where unknown; `None` where the dataset has none.
    pub fn targets(self: &Arc<Self>) -> Option<ExportedArray> {
        let (targets, width) = self.content().targets.as_ref()?;
        Some(self.array(targets, vec![self.num_nodes(), *width], Dtype::F32))
    }

    /// Features `[nodes, dim]` in their stored type.
    pub fn features(self: &Arc<Self>) -> Option<ExportedArray> {
        let content = self.content();
        let features = content.batch.features.as_ref()?;
        let rows = match (&content.table_rows, &features.rows) {
            (Some(rows), _) | (None, CudaRows::Packed(rows)) => rows,
            (None, CudaRows::OfNodes(_)) => unreachable!("rows of a table are copied when a mini-batch is exported"),
        };
        Some(self.array(rows, vec![self.num_nodes(), features.dim], features.dtype))
    }

    /// The edge list `[2, edges]` in positions of the input nodes, int64, sources first.
    pub fn edge_index(self: &Arc<Self>) -> Option<ExportedArray> {
        let edges = self.content().edges.index.as_ref()?;
        Some(self.array(edges, vec![2, edges.len() / 2], Dtype::I64))
    }

    /// Weight of each edge of the list, where all have one.
    pub fn edge_weight(self: &Arc<Self>) -> Option<ExportedArray> {
        self.content().edges.weights.as_ref().map(|weights| self.list(weights, Dtype::F32))
    }

    /// Pairs `[2, pairs]` in positions of the input nodes, int64, sources first, positives before negatives.
    pub fn pairs(self: &Arc<Self>) -> Option<ExportedArray> {
        let pairs = self.content().pairs.as_ref()?;
        Some(self.array(pairs, vec![2, pairs.len() / 2], Dtype::I64))
    }

    /// Class of each seed, or of each pair, int32, -1 for none; empty where there are none.
    pub fn labels(self: &Arc<Self>) -> ExportedArray {
        self.list(&self.content().batch.labels, Dtype::I32)
    }

    /// Targets of the seeds, or of the pairs, `[rows, targets]`, NaN where unknown; of width 0 where there are none.
    pub fn row_targets(self: &Arc<Self>) -> ExportedArray {
        let targets = &self.content().batch.targets;
        let rows = targets.values.len().checked_div(targets.width).unwrap_or(0);
        self.array(&targets.values, vec![rows, targets.width], Dtype::F32)
    }

    /// The blocks, the one farthest from the seeds first.
    pub fn blocks(self: &Arc<Self>) -> Vec<ExportedBlock> {
        let block = |block: &crate::CudaBlock| ExportedBlock {
            num_src: block.num_src,
            num_dst: block.num_dst,
            indptr: self.list(&block.indptr, Dtype::I32),
            indices: self.list(&block.indices, Dtype::I32),
            weights: block.weights.as_ref().map(|weights| self.list(weights, Dtype::F32)),
        };
        self.content().batch.blocks.iter().map(block).collect()
    }

    /// Sources, destinations and edges of each block, the one farthest from the seeds first.
    pub fn hops(&self) -> impl DoubleEndedIterator<Item = (usize, usize, usize)> {
        self.content().batch.blocks.iter().map(|block| (block.num_src, block.num_dst, block.indices.len()))
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        let Some(content) = self.content.take() else { return };
        let readers = std::mem::take(&mut *lock(&self.readers));
        let device = content.batch.device.clone();
        device.keeping_context(|| {
            if readers.iter().any(|reader| reader.precede(&content.released).is_err()) {
                // The device is in error, and a reader may still be at work: the memory is leaked.
                std::mem::forget(content);
                return;
            }
            // All work of ours came before the event, and the stream that waited for the readers takes the place of its streams.
            let done = content.ready.has_happened();
            for block in content.memory() {
                if done {
                    // SAFETY: the event after all work of ours has happened.
                    unsafe { block.settle() };
                }
                block.users().mark(&content.released);
            }
            drop(content);
        });
    }
}

impl Content {
    fn memory(&self) -> impl Iterator<Item = &crate::memory::Block> {
        let Self { n_id, classes, targets, table_rows, edges: Edges { index, weights }, pairs, .. } = self;
        let ids = [classes, index, pairs].into_iter().flatten().chain([n_id]).map(Buffer::block);
        let rows = targets.iter().map(|(targets, _)| targets).chain(table_rows).map(Buffer::block);
        self.batch.memory().chain(ids).chain(rows).chain(weights.iter().map(Buffer::block))
    }
}

/// An array of an exported mini-batch, contiguous in a device's memory. It keeps the mini-batch.
#[derive(Debug, Clone)]
pub struct ExportedArray {
    batch: Arc<Exported>,
    address: Address,
    shape: Vec<usize>,
    dtype: Dtype,
}

impl ExportedArray {
    /// Address of the first element on the device. Work that reads it is queued on streams given to [`Self::read_by`].
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Elements along each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The device's place.
    pub fn place(&self) -> &Place {
        self.batch.place()
    }

    /// Orders later work of a stream after what made the array. The memory is used again only after the work that the stream is given
    /// before the mini-batch and its arrays are dropped.
    ///
    /// # Errors
    ///
    /// The driver fails.
    ///
    /// # Safety
    ///
    /// As of [`ForeignStream::new`], until the mini-batch and its arrays are dropped.
    pub unsafe fn read_by(&self, stream: u64) -> Result<()> {
        let content = self.batch.content();
        // SAFETY: the caller's promise.
        let stream = unsafe { ForeignStream::new(&content.batch.device, stream) };
        stream.wait(&content.ready)?;
        let mut readers = lock(&self.batch.readers);
        if !readers.iter().any(|reader| reader.is(&stream)) {
            readers.push(stream);
        }
        Ok(())
    }

    /// A copy of the elements' bytes in host memory. Waits for what made the array, and for the copy.
    ///
    /// # Errors
    ///
    /// Host memory cannot be pinned, or the driver fails.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let content = self.batch.content();
        let device = &content.batch.device;
        device.keeping_context(|| {
            let bytes = self.shape.iter().product::<usize>() * self.dtype.size();
            if bytes == 0 {
                return Ok(Vec::new());
            }
            let stream = Stream::new(device, false)?;
            stream.wait(&content.ready)?;
            let host = Pinned::<u8>::new(device, bytes)?;
            host.users().mark(&stream);
            // SAFETY: both ranges have as many bytes, and stay until the stream is synchronized.
            device.check(unsafe { device.driver().copy(stream.id(), self.address, host.address(), bytes) })?;
            stream.synchronize()?;
            Ok(host.to_vec())
        })
    }
}

#[cfg(all(test, feature = "emulate"))]
mod tests;
