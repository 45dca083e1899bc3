//! Transposition of a block (edges sorted by source), for backward aggregation.

use morphgl_cuda::{Argument, Kernel, Shape};
use morphgl_registry::Result;

use crate::arena::Region;
use crate::gpu::{Gpu, Words, arguments, each};

/// A block in device memory: CSC from source to destination nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block<'a> {
    pub(crate) num_dst: usize,
    pub(crate) num_src: usize,
    pub(crate) num_edges: usize,
    pub(crate) indptr: Words<'a>,
    /// Where the entries of each row end; absent: where those of the next one begin.
    pub(crate) ends: Option<Words<'a>>,
    pub(crate) indices: Words<'a>,
    pub(crate) weights: Option<Words<'a>>,
    /// Whether the weights are the edges' importance, by which GraphSAGE weighs its mean.
    pub(crate) importance: bool,
}

/// The transposed block: offsets by source, and for each edge (in edge order within a source) its row and edge id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transposed {
    pub(crate) indptr: Region,
    pub(crate) rows: Region,
    pub(crate) edges: Region,
}

/// Threads per block and edges per tile, as in kernels/transpose.cu.
const SORT: usize = 256;
const TILE: usize = 8 * SORT;
/// Maximum bits of a digit: one thread per digit value.
const DIGIT: usize = SORT.trailing_zeros() as usize;
/// Maximum number of thread blocks.
pub(crate) const BLOCKS: usize = 1024;

/// Radix sort of the edges by source, on at most `blocks` thread blocks; `row_of` is the row of each edge, if known.
///
/// # Complexity
///
/// O(edges) per eight bits of the number of sources, whatever their degrees.
pub(crate) fn transpose(
    gpu: &mut Gpu,
    block: Block<'_>,
    row_of: Option<Words<'_>>,
    blocks: usize,
) -> Result<Transposed> {
    let Block { num_dst, num_src, num_edges, indptr, indices, .. } = block;
    let rows = gpu.take(num_edges)?;
    let of_edges = Rows { indptr, count: num_dst, row_of, sorted: rows };
    let (indptr, edges) = sort_by_source(gpu, indices, [num_src, num_edges], Some(of_edges), blocks)?;
    Ok(Transposed { indptr, rows, edges })
}

/// The rows of edges, which are sorted with them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    indptr: Words<'a>,
    count: usize,
    /// The row of each edge, if known.
    row_of: Option<Words<'a>>,
    /// Receives the rows of the sorted edges.
    sorted: Region,
}

/// Stable radix sort of edges by their sources: the offset of each source's edges, and the edges' numbers in that order.
///
/// # Complexity
///
/// As [`transpose`].
pub(crate) fn sort_by_source<'a>(
    gpu: &mut Gpu,
    sources: Words<'a>,
    [num_src, num_edges]: [usize; 2],
    of_edges: Option<Rows<'a>>,
    blocks: usize,
) -> Result<(Region, Region)> {
    let (indptr, edges) = (gpu.take(num_src + 1)?, gpu.take(num_edges)?);
    let mark = gpu.mark();
    let (keys, other) = ([gpu.take(num_edges)?, gpu.take(num_edges)?], gpu.take(num_edges)?);
    let row_of = of_edges.and_then(|rows| rows.row_of);
    let row_of_all = match of_edges {
        Some(Rows { row_of: None, .. }) => Some(gpu.take(num_edges)?.into()),
        _ => row_of,
    };
    // Digits of equal width, up to rounding.
    let bits = (usize::BITS - num_src.saturating_sub(1).leading_zeros()).max(1) as usize;
    let passes = bits.div_ceil(DIGIT);
    let digit = bits.div_ceil(passes);
    let share = num_edges.div_ceil(blocks).next_multiple_of(TILE).max(TILE);
    let blocks = num_edges.div_ceil(share).max(1);
    let (counts, totals) = (gpu.take(blocks << digit)?, gpu.take(1 << digit)?);
    let run = |kernel: &Kernel, shape: Shape, arguments: &mut [Argument<'_>]| {
        // SAFETY: each kernel's arguments, as kernels/transpose.cu has them: arrays of edges, whose sources are below their number,
        // and each has an offset; a count per value of the digit and block, a total per value.
        unsafe { gpu.launch(kernel, shape, arguments) }
    };
    let (kernels, ends) = (&gpu.kernels, of_edges.map(|rows| rows.indptr));
    let num_rows = of_edges.map_or(0, |rows| rows.count);
    let (shares, values) = (Shape::linear(blocks, SORT as u32), Shape::linear(1 << digit, SORT as u32));
    let (mut from, mut numbers) = (sources, None);
    for pass in 0..passes {
        let last = pass + 1 == passes;
        let shift = pass * digit;
        // The first pass computes the rows of edges, unless they are known.
        let new_rows = row_of_all.filter(|_| pass == 0 && row_of.is_none());
        let arguments = arguments![gpu, from, counts, ends, new_rows, num_rows, num_edges, share, shift, digit];
        run(&kernels.train_sort_count, shares, arguments)?;
        let arguments = arguments![gpu, counts, totals, blocks];
        run(&kernels.train_sort_scan, values, arguments)?;
        // Buffers alternate such that the last pass writes to the result.
        let (to, out) = (keys[pass % 2], if (passes - pass) % 2 == 1 { edges } else { other });
        let last_rows = of_edges.filter(|_| last).map(|rows| rows.sorted);
        let arguments = arguments![
            gpu, from, numbers, counts, totals, to, out, row_of_all, last_rows, num_edges, share, shift, digit
        ];
        run(&kernels.train_sort_move, shares, arguments)?;
        (from, numbers) = (to.into(), Some(out));
    }
    let arguments = arguments![gpu, from, indptr, num_src, num_edges];
    run(&kernels.train_sort_starts, each(num_src + 1), arguments)?;
    gpu.release(mark);
    Ok((indptr, edges))
}

/// The destination row of each edge.
pub(crate) fn rows_of_edges(gpu: &mut Gpu, block: Block<'_>) -> Result<Region> {
    let Block { num_dst, num_edges, indptr, .. } = block;
    let out = gpu.take(num_edges)?;
    let arguments = arguments![gpu, indptr, out, num_dst, num_edges];
    // SAFETY: the kernel's arguments; an edge has an output.
    unsafe { gpu.launch(&gpu.kernels.train_rows_of_edges, each(num_edges), arguments) }?;
    Ok(out)
}

#[cfg(all(test, feature = "emulate"))]
mod tests;
