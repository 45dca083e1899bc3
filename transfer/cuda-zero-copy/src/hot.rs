//! Rows in the device's memory: which, by counted accesses, and where.

use morphgl_cuda::{Buffer, Device, Kernel, Pinned, Shape, Stream};
use morphgl_feature_cache::NodeMap;
use morphgl_graph_store::FeatureMatrix;
use morphgl_hotness::{Cut, Kind};
use morphgl_registry::Result;

use crate::KERNELS;

/// Bytes of rows that are gathered and sent at a time while a cache is filled.
const CHUNK: usize = 32 << 20;

/// Rows of some nodes, and the map of which: bit `node % 64` of word `node / 64` says whether a node is held, the bits
/// before it say where.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) held: Buffer<u64>,
    pub(crate) before: Buffer<u32>,
    pub(crate) rows: Buffer<u8>,
    len: usize,
}

impl Cache {
    /// Rows held.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The hottest rows of `matrix` that fit `budget` bytes, their map included; `None` where none is worth holding.
    pub(crate) fn fill(stream: &Stream, matrix: &FeatureMatrix, hotness: &[f32], budget: u64) -> Result<Option<Self>> {
        let (num_nodes, row_bytes) = (matrix.num_rows(), matrix.row_bytes());
        let Some(budget) = budget.checked_sub(NodeMap::num_bytes_of(num_nodes)) else { return Ok(None) };
        let kind = Kind { saving: &|node| hotness[node as usize], bytes: &|_| row_bytes as u64 };
        let mut cut = Cut::new(num_nodes as u32, &[kind], budget);
        let kind = Kind { saving: &|node| hotness[node as usize], bytes: &|_| row_bytes as u64 };
        let map = NodeMap::new(num_nodes, |node| cut.holds(&kind, node));
        if map.is_empty() {
            return Ok(None);
        }
        let (held, before): (Vec<u64>, Vec<u32>) = map.words().unzip();
        let mut cache = Self {
            held: send(stream, &held)?,
            before: send(stream, &before)?,
            rows: Buffer::new(stream, map.len() * row_bytes)?,
            len: map.len(),
        };
        let nodes: Vec<u32> = map.nodes().collect();
        let mut at = 0;
        for nodes in nodes.chunks((CHUNK / row_bytes.max(1)).max(1)) {
            let mut rows = Pinned::<u8>::new(stream.device(), nodes.len() * row_bytes)?;
            matrix.par_gather_rows(nodes, &mut rows);
            stream.copy(&rows, 0..rows.len(), &mut cache.rows, at)?;
            at += rows.len();
        }
        Ok(Some(cache))
    }
}

fn send<T: bytemuck::Pod>(stream: &Stream, values: &[T]) -> Result<Buffer<T>> {
    let mut buffer = Buffer::new(stream, values.len())?;
    stream.copy(&Pinned::of(stream.device(), values)?, 0..values.len(), &mut buffer, 0)?;
    Ok(buffer)
}

/// Counts of accesses while they are counted.
#[derive(Debug)]
pub(crate) struct Counts {
    accesses: Buffer<u32>,
    kernel: Kernel,
    /// Mini-batches still to count.
    left: u32,
}

impl Counts {
    pub(crate) fn new(stream: &Stream, num_nodes: usize, batches: u32) -> Result<Self> {
        let mut accesses = Buffer::new(stream, num_nodes)?;
        stream.fill(&mut accesses, 0)?;
        Ok(Self { accesses, kernel: KERNELS.kernel(stream.device(), "gather_count")?, left: batches })
    }

    /// Counts the first `len` of `nodes`; whether that was the last mini-batch to count.
    pub(crate) fn add(&mut self, stream: &Stream, nodes: &Buffer<u32>, len: usize) -> Result<bool> {
        let arguments = &mut [nodes.into(), (len as u32).into(), (&mut self.accesses).into()];
        // SAFETY: the arguments are the kernel's, and nodes are those of the dataset.
        unsafe { stream.launch(&self.kernel, Shape::covering(len, 256), arguments)? };
        self.left = self.left.saturating_sub(1);
        Ok(self.left == 0)
    }

    /// The counts, on the host.
    pub(crate) fn hotness(&self, device: &Device, stream: &Stream) -> Result<Vec<f32>> {
        let mut counts = Pinned::<u32>::new(device, self.accesses.len())?;
        stream.copy(&self.accesses, 0..self.accesses.len(), &mut counts, 0)?;
        stream.synchronize()?;
        Ok(counts.iter().map(|&count| count as f32).collect())
    }
}
