//! Transposed CSR: edges sorted by source, by a parallel counting sort.
//!
//! Each thread counts the edges of its run of rows, a prefix sum over sources and runs gives the position of each run's
//! first edge of a source, and each thread writes its edges. Within a source, edges are in row order for any number of runs.

use std::ops::Range;

use crate::buffer::resize;
use crate::parallel;

/// Checks the offsets of a CSR with this number of edges.
///
/// # Panics
///
/// Unless they begin with 0, ascend, and end with the number of edges.
pub(crate) fn check_offsets(indptr: &[u32], edges: usize) {
    let ends = (indptr.first().copied(), indptr.last().map(|&end| end as usize));
    assert_eq!(ends, (Some(0), Some(edges)), "first and last offset of {edges} edges");
    // Without branches, since every SpMM checks its offsets.
    assert!(indptr.windows(2).fold(true, |all, w| all & (w[0] <= w[1])), "offsets that ascend");
}

/// Outputs of the sort, one element per edge; positions and coefficients are skipped where their slices are empty.
pub(crate) struct Sorted<'a> {
    pub(crate) rows: &'a mut [u32],
    pub(crate) edges: &'a mut [u32],
    pub(crate) coefficients: &'a mut [f32],
}

/// Number of edges below which one thread sorts faster than several.
const SERIAL: usize = 1 << 14;

/// A slice that tasks write to in parallel, each at its own indices.
#[derive(Clone, Copy)]
struct SharedSlice<T>(*mut T, usize);

// SAFETY: no two tasks access the same index; see `SharedSlice::write`.
unsafe impl<T: Send> Send for SharedSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedSlice<T> {}

impl<T> SharedSlice<T> {
    fn new(values: &mut [T]) -> Self {
        Self(values.as_mut_ptr(), values.len())
    }

    /// # Safety
    ///
    /// No other task reads or writes this index.
    unsafe fn write(&self, index: usize, value: T) {
        assert!(index < self.1, "index {index} of {}", self.1);
        // SAFETY: the index is inside of the slice and, by the caller's promise, accessed by this task alone.
        unsafe { self.0.add(index).write(value) }
    }
}

/// Sorts the edges of a CSR (offsets, sources, number of sources) by source; writes the sources' offsets to `indptr`.
///
/// `coefficient(row, edge)` is the coefficient of an edge; `counts` is scratch.
pub(crate) fn sort_by_source(
    (offsets, sources, num_src): (&[u32], &[u32], usize),
    indptr: &mut Vec<u32>,
    counts: &mut Vec<u32>,
    sorted: Sorted<'_>,
    coefficient: &(impl Fn(usize, usize) -> f32 + Sync),
) {
    let (num_dst, num_edges) = (offsets.len() - 1, sources.len());
    check_offsets(offsets, num_edges);
    let runs = if num_edges < SERIAL { 1 } else { rayon::current_num_threads() };
    resize(indptr, num_src + 1);
    resize(counts, runs * num_src);
    // Runs have about equally many edges.
    let rows = |run: usize| -> Range<usize> {
        let row = |run: usize| offsets.partition_point(|&p| (p as usize) < num_edges * run / runs).min(num_dst);
        (if run == 0 { 0 } else { row(run) })..(if run + 1 == runs { num_dst } else { row(run + 1) })
    };
    let edges = |run: usize| offsets[rows(run).start] as usize..offsets[rows(run).end] as usize;
    parallel::pieces(counts, num_src.max(1), &|run, counts| {
        counts.fill(0);
        sources[edges(run)].iter().for_each(|&src| counts[src as usize] += 1);
    });
    let mut sum = 0;
    for (v, first) in indptr[..num_src].iter_mut().enumerate() {
        *first = sum;
        for run in 0..runs {
            sum += std::mem::replace(&mut counts[run * num_src + v], sum);
        }
    }
    indptr[num_src] = sum;
    let (dst_rows, positions) = (SharedSlice::new(sorted.rows), SharedSlice::new(sorted.edges));
    let coefficients = SharedSlice::new(sorted.coefficients);
    assert_eq!(dst_rows.1, num_edges, "an output for every edge");
    parallel::pieces(counts, num_src.max(1), &|run, next| {
        for row in rows(run) {
            for edge in offsets[row] as usize..offsets[row + 1] as usize {
                let next = &mut next[sources[edge] as usize];
                let index = *next as usize;
                *next += 1;
                // SAFETY: a run counts up from its first index of a source, once for each of its edges of the source, and
                // the next run's first index comes after them; so no index is written twice.
                unsafe {
                    dst_rows.write(index, row as u32);
                    if positions.1 > 0 {
                        positions.write(index, edge as u32);
                    }
                    if coefficients.1 > 0 {
                        coefficients.write(index, coefficient(row, edge));
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests;
