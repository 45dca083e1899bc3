//! Sparse features in the first layer: SpMM over the nonzeros instead of GEMM.
//!
//! The product of sparse rows and a weight sums rows of the weight; the weight's gradient sums rows of the output's gradient
//! by column. Both are SpMMs as those over a block's edges (`crate::spmm`).

use std::ops::Range;

use morphgl_graph_store::FeatureView;
use morphgl_model_core::Dropout;
use rayon::prelude::*;

use crate::buffer::{Buffer, resize};
use crate::csr::{Sorted, sort_by_source};
use crate::parallel;
use crate::spmm::{Csr, spmm};
use morphgl_platform::SimdLevel;

/// Rows of a task that reads features.
const ROWS: usize = 256;
/// Columns of a task that computes a weight's gradient; few, since some columns have far more nonzeros than others.
const COLUMNS: usize = 16;

/// The nonzeros of a feature matrix in CSR form.
#[derive(Debug)]
pub(crate) struct Nonzeros {
    // Invariant: `indptr` has the number of rows + 1 offsets; columns ascend in a row and are below `dim`.
    indptr: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f32>,
    dim: usize,
}

impl Nonzeros {
    /// Bytes of a nonzero: its column and its value.
    pub(crate) const BYTES: usize = 8;

    /// Reads rows of `dim` elements.
    ///
    /// # Complexity
    ///
    /// O(elements), at the speed at which memory is read.
    pub(crate) fn of(view: FeatureView<'_>, dim: usize) -> Self {
        let num_rows = view.len() / dim;
        let task = |task: usize| {
            let (mut lengths, mut columns, mut values) = (Vec::with_capacity(ROWS), Vec::new(), Vec::new());
            for row in task * ROWS..((task + 1) * ROWS).min(num_rows) {
                let before = columns.len();
                view.part(row * dim, dim).for_nonzeros(|column, value| {
                    columns.push(column as u32);
                    values.push(value);
                });
                lengths.push(columns.len() - before);
            }
            (lengths, columns, values)
        };
        let parts: Vec<_> = (0..num_rows.div_ceil(ROWS)).into_par_iter().map(task).collect();
        let total = parts.iter().map(|(_, columns, _)| columns.len()).sum();
        let (mut columns, mut values) = (Vec::with_capacity(total), Vec::with_capacity(total));
        let (mut indptr, mut end) = (vec![0], 0);
        indptr.reserve_exact(num_rows);
        for (lengths, part_columns, part_values) in parts {
            indptr.extend(lengths.into_iter().map(|length| {
                end += length;
                end
            }));
            columns.extend_from_slice(&part_columns);
            values.extend_from_slice(&part_values);
        }
        Self { indptr, columns, values, dim }
    }

    /// Average bytes of a row's nonzeros.
    pub(crate) fn row_bytes(&self) -> usize {
        Self::BYTES * self.columns.len() / (self.indptr.len() - 1).max(1)
    }

    fn row(&self, row: usize) -> Range<usize> {
        self.indptr[row]..self.indptr[row + 1]
    }
}

/// The nonzeros of a mini-batch's input rows in CSR form, and by column. All memory is reused.
#[derive(Debug, Default)]
pub(crate) struct SparseInput {
    dim: usize,
    indptr: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<f32>,
    sources: Csc,
    destinations: Csc,
}

/// The nonzeros of the first rows in CSC form; rows ascend within a column.
#[derive(Debug, Default)]
struct Csc {
    num_rows: usize,
    indptr: Vec<u32>,
    rows: Vec<u32>,
    values: Vec<f32>,
    /// Scratch of the sort.
    counts: Vec<u32>,
}

/// The input rows that a weight multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// All rows.
    Sources,
    /// The first rows.
    Destinations,
}

impl SparseInput {
    /// Reads the rows of `nodes`, or without nodes the first `num_rows` rows. Dropped elements stay in their rows, as 0;
    /// beside the dropout is the node of each row.
    ///
    /// # Panics
    ///
    /// When there are 2^32 nonzeros.
    pub(crate) fn read(
        &mut self,
        from: &Nonzeros,
        nodes: Option<&[u32]>,
        num_rows: usize,
        dropout: Option<(Dropout, &[u32])>,
    ) {
        let row = |i: usize| from.row(nodes.map_or(i, |nodes| nodes[i] as usize));
        self.dim = from.dim;
        resize(&mut self.indptr, num_rows + 1);
        let mut end = 0usize;
        for (i, last) in self.indptr[1..].iter_mut().enumerate() {
            end += row(i).len();
            *last = end as u32;
        }
        self.indptr[0] = 0;
        assert!(u32::try_from(end).is_ok(), "{end} nonzeros in a mini-batch; make it smaller");
        resize(&mut self.columns, end);
        resize(&mut self.values, end);
        let Self { indptr, columns, values, .. } = self;
        let tasks = num_rows.div_ceil(ROWS);
        let rows = |task: usize| parallel::block(task, ROWS, num_rows);
        let starts = |task: usize| [indptr[(task * ROWS).min(num_rows)] as usize];
        parallel::split(0..tasks, &starts, [columns], &|task, [mut out]| {
            for from_row in rows(task).map(row) {
                let own = out.split_off_mut(..from_row.len()).expect("its nonzeros were counted");
                own.copy_from_slice(&from.columns[from_row]);
            }
        });
        parallel::split(0..tasks, &starts, [values], &|task, [mut out]| {
            for i in rows(task) {
                let own = out.split_off_mut(..row(i).len()).expect("its nonzeros were counted");
                own.copy_from_slice(&from.values[row(i)]);
                let Some((dropout, nodes)) = dropout else { continue };
                for (value, &column) in own.iter_mut().zip(&from.columns[row(i)]) {
                    let kept = dropout.keeps(nodes[i], u64::from(column));
                    *value = if kept { *value * dropout.scale() } else { 0.0 };
                }
            }
        });
    }

    /// Sorts the nonzeros of a side's `num_rows` rows by column, for [`SparseInput::gradient`].
    pub(crate) fn sort(&mut self, side: Side, num_rows: usize) {
        let Self { dim, indptr, columns, values, sources, destinations } = self;
        let csc = if side == Side::Sources { sources } else { destinations };
        let (indptr, count) = (&indptr[..=num_rows], indptr[num_rows] as usize);
        csc.num_rows = num_rows;
        resize(&mut csc.rows, count);
        resize(&mut csc.values, count);
        let Csc { rows, values: sorted, indptr: starts, counts, .. } = csc;
        let sorted = Sorted { rows, edges: &mut [], coefficients: sorted };
        sort_by_source((indptr, &columns[..count], *dim), starts, counts, sorted, &|_, nonzero| values[nonzero]);
    }

    /// The matrix to multiply by a transposed weight.
    pub(crate) fn csr(&self) -> Csr<'_> {
        Csr::new((&self.indptr, &self.columns, self.dim), Some(&self.values), None, None)
    }

    /// Adds row `row` times `factor` to `out`.
    fn add_row(&self, row: usize, factor: f32, out: &mut [f32]) {
        let row = self.indptr[row] as usize..self.indptr[row + 1] as usize;
        self.columns[row.clone()].iter().zip(&self.values[row]).for_each(|(&c, v)| out[c as usize] += factor * v);
    }

    /// Writes the first `num_rows` rows to `out`, with zeros; or, with a sparse matrix, its rows of the product with these.
    pub(crate) fn densify(&self, matrix: Option<&Csr<'_>>, num_rows: usize, out: &mut [f32]) {
        parallel::row_blocks(num_rows, [(out, self.dim)], &|rows, [out]| {
            out.fill(0.0);
            for (row, out) in rows.zip(out.chunks_exact_mut(self.dim)) {
                match matrix {
                    Some(csr) => csr.entries(row).for_each(|(factor, source)| self.add_row(source, factor, out)),
                    None => self.add_row(row, 1.0, out),
                }
            }
        });
    }

    /// Adds the gradient of a weight, `[width, dim]`, that multiplies the rows of a side, to `out`; `grad` is the gradient of
    /// the product, `width` elements per row, and `sums` is scratch.
    pub(crate) fn gradient(
        &self,
        level: SimdLevel,
        side: Side,
        (grad, width): (&[f32], usize),
        sums: &mut Buffer,
        out: &mut [f32],
    ) {
        let csc = if side == Side::Sources { &self.sources } else { &self.destinations };
        let csr = Csr::new((&csc.indptr, &csc.rows, csc.num_rows), Some(&csc.values), None, None);
        let sums = sums.get(self.dim * width);
        parallel::pieces(sums, COLUMNS * width, &|task, out| {
            let columns = task * COLUMNS..task * COLUMNS + out.len() / width.max(1);
            spmm(level, &csr, columns, FeatureView::F32(grad), width, out);
        });
        transpose(sums, [self.dim, width], out, true);
    }
}

/// Writes the transpose of a `rows` x `columns` matrix to `out`, or adds it.
pub(crate) fn transpose(from: &[f32], [rows, columns]: [usize; 2], out: &mut [f32], add: bool) {
    // Output rows of a task, and input rows that it reads at a time: the cache lines of both stay in the cache.
    const TILE: usize = 16;
    assert!(from.len() == rows * columns && out.len() == rows * columns, "{rows} x {columns} elements");
    parallel::pieces(out, TILE * rows, &|task, out| {
        for start in (0..rows).step_by(TILE) {
            let end = (start + TILE).min(rows);
            for (c, out) in out.chunks_exact_mut(rows).enumerate() {
                for (r, out) in (start..end).zip(&mut out[start..end]) {
                    let x = from[r * columns + task * TILE + c];
                    *out = if add { *out + x } else { x };
                }
            }
        }
    });
}

#[cfg(test)]
mod tests;
