//! The first layer over features that are nearly all zeros: products by lists of nonzeros.
//!
//! A row's nonzeros times a weight are a sum of the weight's rows by a list, and a weight's gradient is one of the gradient's
//! rows by the lists of each column: both are sums as those over a block's edges, by `crate::gather`.

use std::ops::Range;

use morphgl_graph_store::FeatureView;
use morphgl_model_spec::Dropout;
use rayon::prelude::*;

use crate::buffer::{Buffer, resize};
use crate::csr::{Sorted, sort_by_source};
use crate::gather::{Lists, sum_rows};
use crate::parallel;
use morphgl_platform::SimdLevel;

/// Rows of a task that reads features.
const ROWS: usize = 256;
/// Columns of a task that sums a weight's gradient: some columns have far more nonzeros than others.
const COLUMNS: usize = 16;

/// The nonzeros of a feature matrix.
#[derive(Debug)]
pub(crate) struct Nonzeros {
    // Invariant: an offset a row and one more; columns ascend in a row and are below `dim`.
    indptr: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f32>,
    dim: usize,
}

impl Nonzeros {
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

    /// Bytes that a row's nonzeros take on average.
    pub(crate) fn row_bytes(&self) -> usize {
        8 * self.columns.len() / (self.indptr.len() - 1).max(1)
    }

    fn row(&self, row: usize) -> Range<usize> {
        self.indptr[row]..self.indptr[row + 1]
    }
}

/// The nonzeros of a mini-batch's input rows. All memory is used again.
#[derive(Debug, Default)]
pub(crate) struct Sparse {
    dim: usize,
    indptr: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<f32>,
    all: ByColumn,
    first: ByColumn,
}

/// The nonzeros of the first rows by column, rows ascending.
#[derive(Debug, Default)]
struct ByColumn {
    num_rows: usize,
    indptr: Vec<u32>,
    rows: Vec<u32>,
    values: Vec<f32>,
    counts: Vec<u32>,
}

/// Which rows of a mini-batch a weight multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The source nodes: all rows.
    All,
    /// The destination nodes: the first rows.
    First,
}

impl Sparse {
    /// Reads the rows of `nodes`, or without nodes the first `num_rows` rows. An element that is dropped stays in its list, as 0.
    ///
    /// # Panics
    ///
    /// When there are 2^32 nonzeros.
    pub(crate) fn read(&mut self, from: &Nonzeros, nodes: Option<&[u32]>, num_rows: usize, dropout: Option<&Dropout>) {
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
        let Self { indptr, columns, values, dim, .. } = self;
        let tasks = num_rows.div_ceil(ROWS);
        let rows = |task: usize| task * ROWS..(task * ROWS + ROWS).min(num_rows);
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
                let Some(dropout) = dropout else { continue };
                for (value, &column) in own.iter_mut().zip(&from.columns[row(i)]) {
                    let kept = dropout.keeps((i * *dim) as u64 + u64::from(column));
                    *value = if kept { *value * dropout.scale() } else { 0.0 };
                }
            }
        });
    }

    /// Sorts the nonzeros of the first `num_rows` rows by column, for [`Sparse::gradient`].
    pub(crate) fn sort(&mut self, side: Side, num_rows: usize) {
        let Self { dim, indptr, columns, values, all, first } = self;
        let by_column = if side == Side::All { all } else { first };
        let (indptr, count) = (&indptr[..=num_rows], indptr[num_rows] as usize);
        by_column.num_rows = num_rows;
        resize(&mut by_column.rows, count);
        resize(&mut by_column.values, count);
        let ByColumn { rows, values: sorted, indptr: starts, counts, .. } = by_column;
        let sorted = Sorted { rows, edges: &mut [], coefficients: sorted };
        sort_by_source((indptr, &columns[..count], *dim), starts, counts, sorted, &|_, nonzero| values[nonzero]);
    }

    /// The rows' nonzeros: what sums a transposed weight's rows to their products.
    pub(crate) fn lists(&self) -> Lists<'_> {
        Lists::new((&self.indptr, &self.columns, self.dim), Some(&self.values), None, None)
    }

    /// Adds to a weight's gradient, `[width, dim]`, that of its products with the rows of a side; `grad` has a row of `width`
    /// elements for each of them. `sums` is scratch.
    pub(crate) fn gradient(
        &self,
        level: SimdLevel,
        side: Side,
        (grad, width): (&[f32], usize),
        sums: &mut Buffer,
        out: &mut [f32],
    ) {
        let ByColumn { num_rows, indptr, rows, values, .. } = if side == Side::All { &self.all } else { &self.first };
        let lists = Lists::new((indptr, rows, *num_rows), Some(values), None, None);
        let sums = sums.get(self.dim * width);
        parallel::pieces(sums, COLUMNS * width, &|task, out| {
            let columns = task * COLUMNS..task * COLUMNS + out.len() / width.max(1);
            sum_rows(level, &lists, columns, FeatureView::F32(grad), width, out);
        });
        transpose(sums, [self.dim, width], out, true);
    }
}

/// Writes the transposed matrix of `rows` x `columns`, or adds it to `out`.
pub(crate) fn transpose(from: &[f32], [rows, columns]: [usize; 2], out: &mut [f32], add: bool) {
    // Rows of the result that a task writes, and rows that it reads at a time: a line of either stays in the cache.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Products and gradients are those of all elements, in exact arithmetic on small whole numbers.
        #[test]
        fn lists_multiply_as_matrices_do(
            num_rows in 1usize..600,
            dim in 1usize..70,
            width in 1usize..40,
            share in 1u32..12,
            seed: u32,
        ) {
            let number = |i: usize, most: u32| ((i as u32 ^ seed).wrapping_mul(2_654_435_761) >> 16) % most;
            let dense: Vec<f32> = (0..num_rows * dim).map(|i| {
                let x = number(i, 40);
                if x < share { 1.0 + (x % 3) as f32 } else { 0.0 }
            }).collect();
            let weight: Vec<f32> = (0..width * dim).map(|i| number(i + 7, 5) as f32 - 2.0).collect();
            let grad: Vec<f32> = (0..num_rows * width).map(|i| number(i + 3, 7) as f32 - 3.0).collect();
            let nonzeros = Nonzeros::of(FeatureView::F32(&dense), dim);
            prop_assert_eq!(nonzeros.columns.len(), dense.iter().filter(|x| **x != 0.0).count());
            // Every second row, from the last to the first.
            let nodes: Vec<u32> = (0..num_rows as u32).rev().step_by(2).collect();
            let first = nodes.len() / 2;
            let mut sparse = Sparse::default();
            sparse.read(&nonzeros, Some(&nodes), nodes.len(), None);
            sparse.sort(Side::All, nodes.len());
            sparse.sort(Side::First, first);
            let mut transposed = vec![0.0; dim * width];
            transpose(&weight, [width, dim], &mut transposed, false);
            for level in SimdLevel::available().rev() {
                let mut out = vec![0.0; nodes.len() * width];
                sum_rows(level, &sparse.lists(), 0..nodes.len(), FeatureView::F32(&transposed), width, &mut out);
                for (i, &node) in nodes.iter().enumerate() {
                    for w in 0..width {
                        let x = &dense[node as usize * dim..][..dim];
                        let exact: f32 = x.iter().zip(&weight[w * dim..]).map(|(x, y)| x * y).sum();
                        prop_assert_eq!(out[i * width + w], exact);
                    }
                }
                for (side, rows) in [(Side::All, nodes.len()), (Side::First, first)] {
                    let mut out = vec![1.0; width * dim];
                    sparse.gradient(level, side, (&grad[..rows * width], width), &mut Buffer::default(), &mut out);
                    for w in 0..width {
                        for d in 0..dim {
                            let of = |i: usize| grad[i * width + w] * dense[nodes[i] as usize * dim + d];
                            prop_assert_eq!(out[w * dim + d], 1.0 + (0..rows).map(of).sum::<f32>());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_dropped_is_zero() {
        let dense: Vec<f32> = (0..40 * 100).map(|i| f32::from(i % 9 == 0)).collect();
        let dropout = Dropout::new(3, 1, 2, 0, morphgl_model_spec::DropoutSite::Input, 0.4).expect("it drops");
        let mut expected = dense.clone();
        dropout.apply(0, &mut expected);
        let mut sparse = Sparse::default();
        sparse.read(&Nonzeros::of(FeatureView::F32(&dense), 100), None, 40, Some(&dropout));
        let mut found = vec![0.0; 40 * 100];
        for row in 0..40 {
            for i in sparse.indptr[row] as usize..sparse.indptr[row + 1] as usize {
                found[row * 100 + sparse.columns[i] as usize] = sparse.values[i];
            }
        }
        assert_eq!(found, expected);
    }
}
