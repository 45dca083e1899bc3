//! Copies of mini-batches array by array, whatever the way of an array is.

use bytemuck::Pod;
use morphgl_registry::{BatchId, Result};

use crate::{
    Buffer, CudaBatch, CudaBlock, CudaFeatures, CudaGivenRows, CudaPairs, CudaRows, CudaTargets, LastUse, Stream,
};

/// The way of the arrays of a mini-batch to other memory.
pub(crate) trait CopyArrays {
    /// The stream of the copies.
    fn stream(&self) -> &Stream;
    /// Queues the copy of an array.
    fn array<T: Pod>(&mut self, from: &Buffer<T>) -> Result<Buffer<T>>;
    /// The feature rows of a mini-batch.
    fn rows(&mut self, id: BatchId, rows: &CudaRows) -> Result<CudaRows>;
}

/// Queues the copy of a mini-batch, which may be dropped once the stream's work is ordered before its other uses.
pub(crate) fn copy_batch(copies: &mut impl CopyArrays, batch: &CudaBatch) -> Result<CudaBatch> {
    let mut blocks = Vec::with_capacity(batch.blocks.len());
    for CudaBlock { num_dst, num_src, indptr, indices, weights, importance, edge_types } in &batch.blocks {
        blocks.push(CudaBlock {
            num_dst: *num_dst,
            num_src: *num_src,
            indptr: copies.array(indptr)?,
            indices: copies.array(indices)?,
            weights: weights.as_ref().map(|weights| copies.array(weights)).transpose()?,
            importance: *importance,
            edge_types: edge_types.as_ref().map(|types| copies.array(types)).transpose()?,
        });
    }
    let features = batch.features.as_ref().map(|CudaFeatures { dim, dtype, rows }| -> Result<_> {
        Ok(CudaFeatures { dim: *dim, dtype: *dtype, rows: copies.rows(batch.id, rows)? })
    });
    let features = features.transpose()?;
    let given = batch.given.as_ref().map(|CudaGivenRows { nodes, degrees, rows, inputs, version }| -> Result<_> {
        Ok(CudaGivenRows {
            nodes: copies.array(nodes)?,
            degrees: copies.array(degrees)?,
            rows: copies.array(rows)?,
            inputs: inputs.iter().map(|input| copies.array(input)).collect::<Result<_>>()?,
            version: *version,
        })
    });
    let given = given.transpose()?;
    let pairs = batch.pairs.as_ref().map(|CudaPairs { num_positives, ends, edge_types }| -> Result<_> {
        Ok(CudaPairs { num_positives: *num_positives, ends: copies.array(ends)?, edge_types: edge_types.clone() })
    });
    let pairs = pairs.transpose()?;
    Ok(CudaBatch {
        given,
        trees: batch.trees.as_ref().map(|trees| copies.array(trees)).transpose()?,
        pairs,
        device: copies.stream().device().clone(),
        id: batch.id,
        num_seeds: batch.num_seeds,
        input_nodes: copies.array(&batch.input_nodes)?,
        degrees: copies.array(&batch.degrees)?,
        labels: copies.array(&batch.labels)?,
        targets: CudaTargets { width: batch.targets.width, values: copies.array(&batch.targets.values)? },
        blocks,
        features,
        ready: copies.stream().record(false)?,
        last_use: LastUse::default(),
    })
}

/// Copies on one device, by its stream.
pub(crate) struct OnDevice<'a>(pub(crate) &'a Stream);

impl CopyArrays for OnDevice<'_> {
    fn stream(&self) -> &Stream {
        self.0
    }

    fn array<T: Pod>(&mut self, from: &Buffer<T>) -> Result<Buffer<T>> {
        let mut to = Buffer::new(self.0, from.len())?;
        self.0.copy(from, 0..from.len(), &mut to, 0)?;
        Ok(to)
    }

    /// Rows of a table are shared.
    fn rows(&mut self, _: BatchId, rows: &CudaRows) -> Result<CudaRows> {
        Ok(match rows {
            CudaRows::Packed(bytes) => CudaRows::Packed(self.array(bytes)?),
            CudaRows::OfNodes(table) => CudaRows::OfNodes(table.clone()),
        })
    }
}
