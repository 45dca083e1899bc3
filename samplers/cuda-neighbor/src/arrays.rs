//! The arrays of a block in device memory, by bounds.

use bytemuck::Pod;
use morphgl_cuda::{Buffer, CudaBlock, Stream};
use morphgl_registry::Result;

use crate::bounds::HopBounds;
use crate::buffer::{check_len, grow};

/// Output arrays of a hop or subgraph.
#[derive(Debug)]
pub(crate) struct HopArrays {
    pub(crate) indptr: Buffer<u32>,
    /// Global ids first, then local ids.
    pub(crate) indices: Buffer<u32>,
    pub(crate) weights: Option<Buffer<f32>>,
    /// Number of the type of each edge, where edges are sampled by type.
    pub(crate) types: Option<Buffer<u16>>,
}

impl HopArrays {
    /// Arrays of nothing.
    pub(crate) fn empty(stream: &Stream) -> Result<Self> {
        Ok(Self { indptr: Buffer::new(stream, 0)?, indices: Buffer::new(stream, 0)?, weights: None, types: None })
    }

    /// Grows the offsets to at least `rows` rows.
    pub(crate) fn grow_rows(&mut self, stream: &Stream, rows: u64) -> Result<()> {
        grow(stream, &mut self.indptr, rows + 1, 0)
    }

    /// Grows the edges, with `weights` or without, to at least so many.
    pub(crate) fn grow_edges(&mut self, stream: &Stream, edges: u64, weights: bool) -> Result<()> {
        grow(stream, &mut self.indices, edges, 0)?;
        self.weights = weights.then(|| Buffer::new(stream, edges as usize)).transpose()?;
        Ok(())
    }

    /// Gives the edges types, as many as they have room for.
    pub(crate) fn grow_types(&mut self, stream: &Stream) -> Result<()> {
        self.types = Some(Buffer::new(stream, self.indices.len())?);
        Ok(())
    }

    /// Asserts that the arrays have capacity for the bounds.
    pub(crate) fn check(&self, bounds: &HopBounds) {
        check_len(&self.indptr, bounds.rows + 1);
        check_len(&self.indices, bounds.edges);
        self.weights.iter().for_each(|weights| check_len(weights, bounds.edges));
    }

    /// The block whose numbers of destination nodes, source nodes and edges are these entries of `counts`.
    pub(crate) fn of(self, dst: usize, src: usize, edges: u32) -> BoundedBlock {
        BoundedBlock { arrays: self, dst, src, edges: edges as usize }
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        let weights = self.weights.as_ref().map_or(0, Buffer::num_bytes);
        let types = self.types.as_ref().map_or(0, Buffer::num_bytes);
        self.indptr.num_bytes() + self.indices.num_bytes() + weights + types
    }
}

/// The arrays of a block with capacity for its bounds, and the entries of `counts` that have its sizes.
#[derive(Debug)]
pub(crate) struct BoundedBlock {
    arrays: HopArrays,
    dst: usize,
    src: usize,
    edges: usize,
}

impl BoundedBlock {
    /// Local ids of its edges.
    pub(crate) fn indices(&self) -> &Buffer<u32> {
        &self.arrays.indices
    }

    /// From now on this entry of `counts` has the number of source nodes.
    pub(crate) fn count_sources_by(&mut self, src: usize) {
        self.src = src;
    }

    /// The block, once its sizes are known.
    pub(crate) fn with(self, counts: &[u64], importance: bool) -> CudaBlock {
        let HopArrays { indptr, indices, weights, types } = self.arrays;
        let (num_dst, num_src, edges) = (counts[self.dst], counts[self.src], counts[self.edges]);
        CudaBlock {
            num_dst: num_dst as usize,
            num_src: num_src as usize,
            indptr: with_len(indptr, num_dst + 1),
            indices: with_len(indices, edges),
            weights: weights.map(|weights| with_len(weights, edges)),
            importance,
            edge_types: types.map(|types| with_len(types, edges)),
        }
    }
}

/// The buffer with so many elements.
pub(crate) fn with_len<T: Pod>(mut buffer: Buffer<T>, len: u64) -> Buffer<T> {
    buffer.set_len(len as usize);
    buffer
}
