//! Mini-batches of the host, copied to a device through pinned memory.

use std::collections::VecDeque;

use bytemuck::Pod;
use morphgl_graph_store::{Dtype, FeatureMatrix};
use morphgl_registry::{Block, Error, HostBatch, Key, OptionSpec, OptionType, Result};
use rayon::prelude::*;

use crate::{
    Buffer, CudaBatch, CudaBlock, CudaFeatures, CudaGivenRows, CudaPairs, CudaRows, CudaTargets, Device, Event,
    LastUse, Pinned, Stream,
};

/// Alignment of staged arrays: the copy engine is fastest from aligned lines.
const ALIGNMENT: usize = 256;
/// Bytes of an array above which it is staged on the current rayon pool, in pieces of this length: one thread copies 5
/// to 10 GB/s, and a PCIe 5 link moves 55.
const PARALLEL_BYTES: usize = 1 << 20;
const DEFAULT_DEPTH: usize = 3;

/// Copies mini-batches of the host by the device's copy engine: each is written once into one piece of pinned memory, and
/// copied from there array by array. A limited number of them is in pinned memory at a time.
#[derive(Debug)]
pub struct Staging {
    depth: usize,
    /// Ends of the copies in flight, the oldest first.
    in_flight: VecDeque<Event>,
}

impl Staging {
    /// The option `depth` of the operators that stage mini-batches.
    pub const DEPTH: OptionSpec =
        OptionSpec::new("depth", OptionType::Count, "3", "mini-batches in pinned memory at a time, at least 1")
            .such_as(&["1"])
            .in_unit("mini-batches");

    /// Staging for `operator`, of at most `depth` mini-batches at a time; 3 for `None`.
    ///
    /// # Errors
    ///
    /// A depth of 0.
    pub fn new(operator: &Key, depth: Option<usize>) -> Result<Self> {
        let depth = depth.unwrap_or(DEFAULT_DEPTH);
        if depth == 0 {
            return Err(Error::setting(operator, "a depth of 0 moves nothing; give 1 or more"));
        }
        Ok(Self { depth, in_flight: VecDeque::with_capacity(depth) })
    }

    /// Blocks until there is room for another mini-batch in pinned memory.
    pub fn wait_for_room(&mut self) -> Result<()> {
        while self.in_flight.len() >= self.depth {
            self.in_flight.pop_front().expect("depth is positive").synchronize()?;
        }
        Ok(())
    }

    /// Stages a mini-batch and queues its copies on `stream`; returns also the number of bytes. Features that it lacks are
    /// gathered from `matrix` into pinned memory, if one is given.
    ///
    /// # Errors
    ///
    /// Pinned memory or the device's memory is full.
    ///
    /// # Complexity
    ///
    /// O(bytes of the mini-batch) on the host.
    pub fn send(
        &mut self,
        stream: &Stream,
        batch: &HostBatch,
        matrix: Option<&FeatureMatrix>,
    ) -> Result<(CudaBatch, u64)> {
        let features = Features::of(batch, matrix);
        let feature_bytes = features.as_ref().map(Features::num_bytes);
        let num_bytes: usize = sizes(batch).chain(feature_bytes).sum();
        let mut arena = Arena::new(stream.device(), sizes(batch).chain(feature_bytes))?;
        // Features and given rows first: their copies, the longest, overlap the staging of the others.
        let features = features.map(|features| {
            let bytes = arena.send_with(stream, features.num_bytes(), |out| features.write(out))?;
            Ok(CudaFeatures { dim: features.dim, dtype: features.dtype, rows: CudaRows::Packed(bytes) })
        });
        let features = features.transpose()?;
        let given = batch.given.as_ref().map(|given| -> Result<CudaGivenRows> {
            Ok(CudaGivenRows {
                rows: arena.send(stream, &given.rows)?,
                inputs: given.inputs.iter().map(|input| arena.send(stream, input)).collect::<Result<_>>()?,
                nodes: arena.send(stream, &given.nodes)?,
                degrees: arena.send(stream, &given.degrees)?,
                version: given.version,
            })
        });
        let given = given.transpose()?;
        let pairs = batch.pairs.as_ref().map(|pairs| -> Result<CudaPairs> {
            let ends = arena.send(stream, pairs.ends.as_flattened())?;
            Ok(CudaPairs { num_positives: pairs.num_positives, ends, edge_types: pairs.edge_types.clone() })
        });
        let pairs = pairs.transpose()?;
        let mut blocks = Vec::with_capacity(batch.blocks.len());
        for Block { num_dst, num_src, indptr, indices, weights, importance, edge_types, edge_ids: _ } in &batch.blocks {
            blocks.push(CudaBlock {
                num_dst: *num_dst,
                num_src: *num_src,
                indptr: arena.send(stream, indptr)?,
                indices: arena.send(stream, indices)?,
                weights: weights.as_ref().map(|w| arena.send(stream, w)).transpose()?,
                importance: *importance,
                edge_types: edge_types.as_ref().map(|types| arena.send(stream, types)).transpose()?,
            });
        }
        let sent = CudaBatch {
            device: stream.device().clone(),
            id: batch.id,
            num_seeds: batch.num_seeds,
            input_nodes: arena.send(stream, &batch.input_nodes)?,
            degrees: arena.send(stream, &batch.degrees)?,
            labels: arena.send(stream, &batch.labels)?,
            targets: CudaTargets { width: batch.targets.width, values: arena.send(stream, &batch.targets.values)? },
            blocks,
            features,
            given,
            trees: None,
            pairs,
            ready: stream.record(false)?,
            last_use: LastUse::default(),
        };
        self.in_flight.push_back(stream.record(false)?);
        Ok((sent, num_bytes as u64))
    }
}

impl Staging {
    /// Gathers the rows of `nodes` in `matrix` into pinned memory and queues their copy on `stream`; returns also the number of bytes.
    ///
    /// # Errors
    ///
    /// Pinned memory or the device's memory is full.
    ///
    /// # Complexity
    ///
    /// O(bytes of the rows) on the host.
    pub fn send_rows(&mut self, stream: &Stream, nodes: &[u32], matrix: &FeatureMatrix) -> Result<(CudaFeatures, u64)> {
        let (dim, dtype) = (matrix.dim(), matrix.dtype());
        let rows = Features { rows: nodes.len(), dim, dtype, from: Source::Rows(matrix, nodes) };
        let num_bytes = rows.num_bytes();
        let mut arena = Arena::new(stream.device(), std::iter::once(num_bytes))?;
        let bytes = arena.send_with(stream, num_bytes, |out| rows.write(out))?;
        self.in_flight.push_back(stream.record(false)?);
        Ok((CudaFeatures { dim, dtype, rows: CudaRows::Packed(bytes) }, num_bytes as u64))
    }
}

/// Bytes of every array but the features.
fn sizes(batch: &HostBatch) -> impl Iterator<Item = usize> + '_ {
    let block = |b: &Block| [b.indptr.len(), b.indices.len(), b.weights.as_ref().map_or(0, Vec::len)];
    let others = [batch.input_nodes.len(), batch.degrees.len(), batch.labels.len(), batch.targets.values.len()];
    let given = batch.given.iter().flat_map(|given| {
        let inputs = given.inputs.iter().map(Vec::len);
        [given.nodes.len(), given.degrees.len(), given.rows.len()].into_iter().chain(inputs)
    });
    let pairs = batch.pairs.iter().map(|pairs| 2 * pairs.ends.len());
    let types = batch.blocks.iter().flat_map(|block| block.edge_types.as_ref()).map(|types| 2 * types.len());
    let words = batch.blocks.iter().flat_map(block).chain(others).chain(given).chain(pairs);
    words.map(|elements| 4 * elements).chain(types)
}

/// Features to stage: those of a mini-batch, or rows of a matrix.
struct Features<'a> {
    rows: usize,
    dim: usize,
    dtype: Dtype,
    from: Source<'a>,
}

enum Source<'a> {
    Batch(&'a [u8]),
    Rows(&'a FeatureMatrix, &'a [u32]),
}

impl<'a> Features<'a> {
    fn of(batch: &'a HostBatch, matrix: Option<&'a FeatureMatrix>) -> Option<Self> {
        if let Some(f) = &batch.features {
            return Some(Self { rows: f.num_rows(), dim: f.dim, dtype: f.dtype, from: Source::Batch(f.as_bytes()) });
        }
        let (matrix, nodes) = (matrix?, &batch.input_nodes);
        let from = Source::Rows(matrix, nodes);
        Some(Self { rows: nodes.len(), dim: matrix.dim(), dtype: matrix.dtype(), from })
    }

    fn num_bytes(&self) -> usize {
        self.rows * self.dim * self.dtype.size()
    }

    fn write(&self, out: &mut [u8]) {
        match self.from {
            Source::Batch(bytes) => copy(bytes, out),
            Source::Rows(matrix, nodes) if out.len() > PARALLEL_BYTES => matrix.par_gather_rows(nodes, out),
            Source::Rows(matrix, nodes) => matrix.gather_rows(nodes, out),
        }
    }
}

/// Copies an array, a large one on the current rayon pool.
fn copy(from: &[u8], to: &mut [u8]) {
    if to.len() <= PARALLEL_BYTES {
        return to.copy_from_slice(from);
    }
    let pieces = to.par_chunks_mut(PARALLEL_BYTES).zip(from.par_chunks(PARALLEL_BYTES));
    pieces.for_each(|(to, from)| to.copy_from_slice(from));
}

/// Bump allocator for a mini-batch's arrays: pinned memory, filled from the beginning.
struct Arena {
    bytes: Pinned<u8>,
    used: usize,
}

impl Arena {
    /// Allocates memory for arrays of the given sizes in bytes.
    fn new(device: &Device, sizes: impl Iterator<Item = usize>) -> Result<Self> {
        let capacity = sizes.map(|size| size.next_multiple_of(ALIGNMENT)).sum();
        Ok(Self { bytes: Pinned::new(device, capacity)?, used: 0 })
    }

    /// Stages `values` and queues their copy to the device.
    fn send<T: Pod>(&mut self, stream: &Stream, values: &[T]) -> Result<Buffer<T>> {
        self.send_with(stream, values.len(), |staged| {
            copy(bytemuck::cast_slice(values), bytemuck::cast_slice_mut(staged))
        })
    }

    /// [`Arena::send`] of `len` elements written by `write`.
    fn send_with<T: Pod>(&mut self, stream: &Stream, len: usize, write: impl FnOnce(&mut [T])) -> Result<Buffer<T>> {
        let range = self.used..self.used + len * size_of::<T>();
        self.used = range.end.next_multiple_of(ALIGNMENT);
        write(bytemuck::cast_slice_mut(&mut self.bytes[range.clone()]));
        let mut buffer = Buffer::new(stream, len)?;
        stream.copy_bytes(&self.bytes, range, &mut buffer)?;
        Ok(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::{PARALLEL_BYTES, copy};

    #[test]
    fn arrays_of_any_length_are_copied() {
        if crate::sanitizer() == Some("thread") {
            return; // it does not see rayon's synchronisation
        }
        for len in [0, 5, PARALLEL_BYTES, PARALLEL_BYTES + 1, 3 * PARALLEL_BYTES + 77] {
            let from: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let mut to = vec![0; len];
            copy(&from, &mut to);
            assert!(from == to, "{len} bytes");
        }
    }
}
