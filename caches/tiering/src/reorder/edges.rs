//! Topology and edge weights.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use morphgl_graph_store::{DatasetWriter, Element, Topology, write_blocks};
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
/// Edges of a cache line.
const LINE: usize = 16;
/// Edges of a row that are prefetched, from its first on; the hardware prefetches the others.
const HEAD: usize = 3 * LINE;
/// Edges that are relabelled together, while they are in the first-level cache.
const PIECE: usize = 1 << 11;

/// Rows of the new dataset.
struct ReorderedRows<'a> {
    topology: &'a Topology,
    order: &'a Order,
    /// First edge of each new row, and the number of edges.
    starts: Vec<u64>,
    /// A neighbour that does not exist, in a mapped file that was changed; [`NONE`] without.
    unknown: AtomicU64,
}

/// No node.
const NONE: u64 = u64::MAX;

/// Writes `indptr`, `indices`, and weights, types, times and ids of edges.
pub(super) fn write(
    topology: &Topology,
    order: &Order,
    writer: &mut DatasetWriter,
    progress: Progress<'_>,
) -> Result<()> {
    let rows = ReorderedRows { topology, order, starts: starts(topology, order), unknown: AtomicU64::new(NONE) };
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
        indices.write_pages(block)?;
        if let Some(weights) = &mut weights {
            weights.write_pages(block_weights)?;
        }
        progress("edges", indices.len(), num_edges);
        Ok(())
    };
    write_blocks(num_edges.div_ceil(BLOCK) as usize, group(), make, write)?;
    match rows.unknown.load(Ordering::Relaxed) {
        NONE => writer.add("indices", indices.finish(None)?),
        node => return Err(topology.unknown_neighbor(node as u32).into()),
    }
    if let Some(weights) = weights {
        writer.add("weights", weights.finish(None)?);
    }
    let types = topology.edge_types().map(|types| rows.column("edge_types", types, writer, progress));
    let times = topology.edge_times().map(|times| rows.column("edge_times", times, writer, progress));
    let ids = topology.edge_ids().map(|ids| rows.column("edge_ids", ids, writer, progress));
    types.into_iter().chain(times).chain(ids).collect()
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

impl ReorderedRows<'_> {
    /// Writes the array `name`, which has an element per edge of the old graph.
    fn column<T: Element>(
        &self,
        name: &str,
        all: &[T],
        writer: &mut DatasetWriter,
        progress: Progress<'_>,
    ) -> Result<()> {
        let (indptr, num_edges) = (self.topology.indptr(), self.topology.num_edges());
        let mut stream = writer.stream::<T>(name)?;
        let pool = PagePool::new();
        let make = |block: usize| {
            let mut at = block as u64 * BLOCK;
            let end = num_edges.min(at + BLOCK);
            let mut pages = pool.take();
            let mut out: &mut [T] = bytemuck::cast_slice_mut(pages.resize((end - at) as usize * size_of::<T>()));
            let mut row = self.starts.partition_point(|&start| start <= at) - 1;
            while at < end {
                let row_end = self.starts[row + 1].min(end);
                let from = (indptr[self.order.old_of_new()[row] as usize] + at - self.starts[row]) as usize;
                let old = &all[from..from + (row_end - at) as usize];
                out.split_off_mut(..old.len()).expect("the block has all edges").copy_from_slice(old);
                (at, row) = (row_end, row + 1);
            }
            pages
        };
        let write = |pages: Pages| {
            stream.write_pages(pages)?;
            progress(name, stream.len(), num_edges);
            Ok(())
        };
        write_blocks(num_edges.div_ceil(BLOCK) as usize, group(), make, write)?;
        writer.add(name, stream.finish(None)?);
        Ok(())
    }

    /// Fills in the neighbours of consecutive edges of the new rows, and their weights, if there are any.
    ///
    /// Rows are copied a piece at a time, and then relabelled without regard to where they end: a loop over each row ends in a
    /// mispredicted branch, after which few look-ups are in flight. Of rows of 30 edges it took 3.8 ns per edge instead
    /// of 5.4, as much as with prefetched look-ups (a Zen 3 core at AVX2, ranks of 6 MB).
    fn fill(&self, edges: Range<u64>, neighbors: &mut [u32], mut weights: &mut [f32]) {
        let Self { topology, order, starts, unknown } = self;
        let (indptr, indices): (&[u64], &[u32]) = (topology.indptr(), topology.indices());
        let old_of_new = order.old_of_new();
        // The last row that starts there or before: the earlier ones are empty, or end there.
        let mut row = starts.partition_point(|&start| start <= edges.start) - 1;
        let mut at = edges.start;
        for piece in neighbors.chunks_mut(PIECE) {
            let end = at + piece.len() as u64;
            let mut unfilled = &mut *piece;
            while at < end {
                if let Some(&later) = old_of_new.get(row + 2 * AHEAD) {
                    prefetch(indptr, later as usize);
                }
                if let Some(&later) = old_of_new.get(row + AHEAD) {
                    let from = indptr[later as usize] as usize;
                    (0..HEAD).step_by(LINE).for_each(|edge| prefetch(indices, from + edge));
                }
                let from = (indptr[old_of_new[row] as usize] + at - starts[row]) as usize;
                let row_end = starts[row + 1];
                let old = from..from + (row_end.min(end) - at) as usize;
                let new = unfilled.split_off_mut(..old.len()).expect("the piece has all edges");
                new.copy_from_slice(&indices[old.clone()]);
                if let (Some(all), Some(new)) = (topology.weights(), weights.split_off_mut(..old.len())) {
                    new.copy_from_slice(&all[old]);
                }
                at = row_end.min(end);
                row += usize::from(at == row_end);
            }
            let new_of_old = order.new_of_old();
            for node in piece {
                match new_of_old.get(*node as usize) {
                    Some(&new) => *node = new,
                    None => unknown.store(u64::from(*node), Ordering::Relaxed),
                }
            }
        }
    }
}
