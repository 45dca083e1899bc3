//! Topology and edge weights.

use std::ops::Range;

use morphgl_graph_store::{DatasetWriter, Topology, write_blocks};
use morphgl_platform::{PagePool, Pages, prefetch};
use rayon::prelude::*;

use super::{Progress, group};
use crate::{Order, Result};

/// Edges of a block. A row may belong to several blocks, so hubs do not delay the others.
const BLOCK: u64 = 1 << 18;
/// Nodes per task.
const TASK: usize = 1 << 14;
/// Prefetch distance, in rows: of the row's start, and twice that of its offset.
const AHEAD: usize = 12;

/// Rows of the new dataset.
struct Rows<'a> {
    topology: &'a Topology,
    order: &'a Order,
    /// First edge of each new row, and the number of edges.
    starts: Vec<u64>,
}

/// Writes `indptr`, `indices` and `weights`.
pub(super) fn write(
    topology: &Topology,
    order: &Order,
    writer: &mut DatasetWriter,
    progress: Progress<'_>,
) -> Result<()> {
    let rows = Rows { topology, order, starts: starts(topology, order) };
    writer.array("indptr", &rows.starts, None)?;
    let num_edges = topology.num_edges();
    let mut indices = writer.stream::<u32>("indices")?;
    let mut weights = topology.weights().map(|_| writer.stream::<f32>("weights")).transpose()?;
    let (pool, weighted) = (PagePool::new(), weights.is_some());
    let make = |block: usize| {
        let edges = block as u64 * BLOCK..num_edges.min((block as u64 + 1) * BLOCK);
        let bytes = 4 * (edges.end - edges.start) as usize;
        let mut pages = [pool.take(), pool.take()];
        let [indices, weights] = pages.each_mut();
        let weights = weights.resize(if weighted { bytes } else { 0 });
        rows.fill(edges, bytemuck::cast_slice_mut(indices.resize(bytes)), bytemuck::cast_slice_mut(weights));
        pages
    };
    let write = |[block, block_weights]: [Pages; 2]| {
        indices.write(bytemuck::cast_slice(&block))?;
        if let Some(weights) = &mut weights {
            weights.write(bytemuck::cast_slice(&block_weights))?;
        }
        progress("edges", indices.len(), num_edges);
        Ok(())
    };
    write_blocks(num_edges.div_ceil(BLOCK) as usize, group(), make, write)?;
    writer.add("indices", indices.finish(None)?);
    if let Some(weights) = weights {
        writer.add("weights", weights.finish(None)?);
    }
    Ok(())
}

/// Offsets of the new rows.
fn starts(topology: &Topology, order: &Order) -> Vec<u64> {
    let indptr: &[u64] = topology.indptr();
    let old = order.old_of_new();
    let mut starts = vec![0; old.len() + 1];
    let tasks = starts[1..].par_chunks_mut(TASK).zip(old.par_chunks(TASK));
    tasks.for_each(|(degrees, old)| {
        for (i, (degree, &v)) in degrees.iter_mut().zip(old).enumerate() {
            if let Some(&later) = old.get(i + AHEAD) {
                prefetch(indptr, later as usize);
            }
            *degree = indptr[v as usize + 1] - indptr[v as usize];
        }
    });
    let mut end = 0;
    for start in &mut starts {
        end += *start;
        *start = end;
    }
    starts
}

impl Rows<'_> {
    /// Fills in the neighbours of consecutive edges of the new rows, and their weights, if there are any.
    fn fill(&self, edges: Range<u64>, mut neighbors: &mut [u32], mut weights: &mut [f32]) {
        let Self { topology, order, starts } = self;
        let (indptr, indices): (&[u64], &[u32]) = (topology.indptr(), topology.indices());
        let (old_of_new, new_of_old) = (order.old_of_new(), order.new_of_old());
        // The last row that starts there or before: the earlier ones are empty, or end there.
        let mut row = starts.partition_point(|&start| start <= edges.start) - 1;
        let mut at = edges.start;
        while at < edges.end {
            if let Some(&later) = old_of_new.get(row + 2 * AHEAD) {
                prefetch(indptr, later as usize);
            }
            if let Some(&later) = old_of_new.get(row + AHEAD) {
                prefetch(indices, indptr[later as usize] as usize);
            }
            let from = (indptr[old_of_new[row] as usize] + at - starts[row]) as usize;
            let end = starts[row + 1].min(edges.end);
            let old = from..from + (end - at) as usize;
            let new = neighbors.split_off_mut(..old.len()).expect("the block has all edges");
            for (new, &neighbor) in new.iter_mut().zip(&indices[old.clone()]) {
                *new = new_of_old[neighbor as usize];
            }
            if let (Some(all), Some(new)) = (topology.weights(), weights.split_off_mut(..old.len())) {
                new.copy_from_slice(&all[old]);
            }
            (row, at) = (row + 1, end);
        }
    }
}
