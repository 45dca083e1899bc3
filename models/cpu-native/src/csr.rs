//! The edges of a block sorted by source: a counting sort in parallel.
//!
//! Each thread counts the edges of its own run of rows, a sum over sources and runs says where each run's edges of a
//! source begin, and each thread places its own. The order is by row within a source however the rows are cut.

use std::ops::Range;

use crate::buffer::resize;
use crate::parallel;

/// Checks that offsets are those of so many edges.
///
/// # Panics
///
/// When they do not begin with 0, ascend, and end with the number of edges.
pub(crate) fn check_offsets(indptr: &[u32], edges: usize) {
    let ends = (indptr.first().copied(), indptr.last().map(|&end| end as usize));
    assert_eq!(ends, (Some(0), Some(edges)), "first and last offset of {edges} edges");
    // Without branches: it is done before every sum.
    assert!(indptr.windows(2).fold(true, |all, w| all & (w[0] <= w[1])), "offsets that ascend");
}

/// What the sort writes, a number an edge; positions and coefficients only where there is room for them.
pub(crate) struct Sorted<'a> {
    pub(crate) rows: &'a mut [u32],
    pub(crate) edges: &'a mut [u32],
    pub(crate) coefficients: &'a mut [f32],
}

/// Edges below which one thread sorts faster than several.
const ALONE: usize = 1 << 14;

/// ParameterRanges that tasks write to, each another one.
#[derive(Clone, Copy)]
struct Slots<T>(*mut T, usize);

// SAFETY: tasks write to places of their own alone; see `Slots::write`.
unsafe impl<T: Send> Send for Slots<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Slots<T> {
    fn new(values: &mut [T]) -> Self {
        Self(values.as_mut_ptr(), values.len())
    }

    /// # Safety
    ///
    /// No other task reads or writes this place.
    unsafe fn write(&self, place: usize, value: T) {
        assert!(place < self.1, "place {place} of {}", self.1);
        // SAFETY: inside of the slice, and the caller's own.
        unsafe { self.0.add(place).write(value) }
    }
}

/// Sorts the edges of rows (offsets, sources, number of sources): `indptr` gets the offsets of the sources, `counts` is scratch.
pub(crate) fn sort_by_source(
    (offsets, sources, num_src): (&[u32], &[u32], usize),
    indptr: &mut Vec<u32>,
    counts: &mut Vec<u32>,
    sorted: Sorted<'_>,
    coefficient: &(impl Fn(usize, usize) -> f32 + Sync),
) {
    let (num_dst, num_edges) = (offsets.len() - 1, sources.len());
    check_offsets(offsets, num_edges);
    let runs = if num_edges < ALONE { 1 } else { rayon::current_num_threads() };
    resize(indptr, num_src + 1);
    resize(counts, runs * num_src);
    // The rows of a run: about as many edges in each.
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
    let (slots, positions) = (Slots::new(sorted.rows), Slots::new(sorted.edges));
    let coefficients = Slots::new(sorted.coefficients);
    assert_eq!(slots.1, num_edges, "room for every edge");
    parallel::pieces(counts, num_src.max(1), &|run, next| {
        for row in rows(run) {
            for edge in offsets[row] as usize..offsets[row + 1] as usize {
                let next = &mut next[sources[edge] as usize];
                let place = *next as usize;
                *next += 1;
                // SAFETY: a run counts up from its own first place of a source, once for each of its edges of the
                // source, and the next run's first place lies behind them; so no place is written twice.
                unsafe {
                    slots.write(place, row as u32);
                    if positions.1 > 0 {
                        positions.write(place, edge as u32);
                    }
                    if coefficients.1 > 0 {
                        coefficients.write(place, coefficient(row, edge));
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use morphgl_registry::Block;

    use super::*;

    #[test]
    fn any_number_of_threads_sorts_alike() {
        let (num_src, num_dst) = (9_000usize, 3_000usize);
        let mut block = Block { num_dst, num_src, indptr: vec![0], ..Block::default() };
        for row in 0..num_dst {
            block.indices.extend((0..row % 17).map(|i| ((row * 31 + i * i * 977) % num_src) as u32));
            block.indptr.push(block.indices.len() as u32);
        }
        let num_edges = block.num_edges();
        assert!(num_edges > ALONE);
        let sort = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            let (mut indptr, mut counts) = (Vec::new(), Vec::new());
            let (mut rows, mut edges, mut values) = (vec![0; num_edges], vec![0; num_edges], vec![0.0; num_edges]);
            pool.install(|| {
                let sorted = Sorted { rows: &mut rows, edges: &mut edges, coefficients: &mut values };
                sort_by_source(
                    (&block.indptr, &block.indices, num_src),
                    &mut indptr,
                    &mut counts,
                    sorted,
                    &|row, edge| (row + edge) as f32,
                );
            });
            (indptr, rows, edges, values)
        };
        let mut expected: Vec<(u32, u32)> = block.indices.iter().zip(0..).map(|(&src, edge)| (src, edge)).collect();
        expected.sort();
        let one = sort(1);
        assert!(one.2.iter().eq(expected.iter().map(|(_, edge)| edge)));
        for (place, (src, edge)) in expected.iter().enumerate() {
            assert!((one.0[*src as usize]..one.0[*src as usize + 1]).contains(&(place as u32)));
            assert!(block.row(one.1[place] as usize).contains(src));
            assert_eq!(one.3[place], (one.1[place] + edge) as f32);
        }
        for threads in [2, 3, 5] {
            assert_eq!(sort(threads), one);
        }
    }
}
