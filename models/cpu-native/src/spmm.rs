//! SpMM: weighted sums of feature rows over each CSR row. Forward runs over a block's rows, backward over its sources.
//!
//! Every output row is summed by one task in the order of its edges, in registers, for any element type.

use std::ops::Range;

use morphgl_graph_store::FeatureView;
use morphgl_platform::SimdLevel;

use crate::csr::check_offsets;
use crate::simd::by_type;

mod kernel;

/// A sparse matrix in CSR form, with optional scales of its rows and a diagonal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Csr<'a> {
    // Invariant: offsets ascend and end at the number of columns; columns and the nodes of self loops are below `num_rows`;
    // there are as many coefficients as columns.
    indptr: &'a [u32],
    /// The input row of each entry.
    columns: &'a [u32],
    /// Number of input rows.
    num_rows: usize,
    /// Coefficient of each entry; 1 without.
    coefficients: Option<&'a [f32]>,
    /// Scale of each output row's sum, before its self loop is added.
    scales: Option<&'a [f32]>,
    /// Coefficients of the self loops of the first output rows.
    loops: Option<&'a [f32]>,
    /// Input rows of the self loops, where they differ from the output rows.
    loop_rows: Option<&'a [u32]>,
}

impl<'a> Csr<'a> {
    /// A matrix of these offsets, columns and number of input rows.
    ///
    /// # Panics
    ///
    /// When offsets, columns or coefficients do not fit.
    pub(crate) fn new(
        (indptr, columns, num_rows): (&'a [u32], &'a [u32], usize),
        coefficients: Option<&'a [f32]>,
        scales: Option<&'a [f32]>,
        loops: Option<&'a [f32]>,
    ) -> Self {
        check_offsets(indptr, columns.len());
        check_rows(columns, num_rows);
        assert!(coefficients.is_none_or(|c| c.len() == columns.len()), "a coefficient per entry");
        assert!(scales.is_none_or(|s| s.len() == indptr.len() - 1), "one scale per row");
        assert!(loops.is_none_or(|l| l.len() <= num_rows), "an input row per self-loop");
        Self { indptr, columns, num_rows, coefficients, scales, loops, loop_rows: None }
    }

    /// The same matrix with self loops, of which that of output row i reads input row `nodes[i]`. There may be more of them than input
    /// rows, since seeds may repeat.
    ///
    /// # Panics
    ///
    /// When a self loop has no node, or its node no row.
    pub(crate) fn with_loops_of(self, loops: Option<&'a [f32]>, nodes: &'a [u32]) -> Self {
        let loop_rows = &nodes[..loops.map_or(0, <[f32]>::len)];
        check_rows(loop_rows, self.num_rows);
        Self { loops, loop_rows: Some(loop_rows), ..self }
    }

    fn row(&self, row: usize) -> Range<usize> {
        self.indptr[row] as usize..self.indptr[row + 1] as usize
    }

    /// The input rows of an output row, each with its coefficient; that of the self loop comes last.
    pub(crate) fn entries(&self, row: usize) -> impl Iterator<Item = (f32, usize)> {
        let scale = self.scales.map_or(1.0, |scales| scales[row]);
        let entry =
            move |entry: usize| (scale * self.coefficients.map_or(1.0, |c| c[entry]), self.columns[entry] as usize);
        self.row(row).map(entry).chain(self.self_loop(row))
    }

    /// The coefficient and the input row of an output row's self loop.
    #[inline(always)]
    fn self_loop(&self, row: usize) -> Option<(f32, usize)> {
        let coefficient = self.loops.and_then(|l| l.get(row)).copied()?;
        Some((coefficient, self.loop_rows.map_or(row, |nodes| nodes[row] as usize)))
    }
}

/// Checks that there are such input rows, in one pass without branches.
fn check_rows(rows: &[u32], num_rows: usize) {
    let largest = rows.iter().fold(0, |largest, &row| largest.max(row));
    assert!(rows.is_empty() || (largest as usize) < num_rows, "row {largest} of {num_rows}");
}

/// Writes output rows `rows` of the sparse matrix times `x`, rows of `width` elements.
///
/// # Panics
///
/// When `x` or `out` is too short.
pub(crate) fn spmm(
    level: SimdLevel,
    csr: &Csr<'_>,
    rows: Range<usize>,
    x: FeatureView<'_>,
    width: usize,
    out: &mut [f32],
) {
    assert!(x.len() >= csr.num_rows * width, "{} rows of {width} elements", csr.num_rows);
    assert!(rows.end < csr.indptr.len() && out.len() == rows.len() * width, "an output of {rows:?}");
    if width > 0 {
        by_type!(x, |x| kernel::run(level, csr, rows, x, width, out));
    }
}

#[cfg(test)]
mod tests;
