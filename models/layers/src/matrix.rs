//! Matrices in host memory, and parallel loops over their rows.

use rayon::prelude::*;

/// A row-major matrix.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Matrix {
    /// The elements, row after row.
    pub(crate) values: Vec<f32>,
    /// Number of rows.
    pub(crate) rows: usize,
    /// Number of columns.
    pub(crate) cols: usize,
}

/// A borrowed row-major matrix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MatrixRef<'a> {
    /// The elements, row after row.
    pub(crate) values: &'a [f32],
    /// Number of rows.
    pub(crate) rows: usize,
    /// Number of columns.
    pub(crate) cols: usize,
}

impl Matrix {
    /// A matrix of zeros.
    pub(crate) fn zeros(rows: usize, cols: usize) -> Self {
        Self { values: vec![0.0; rows * cols], rows, cols }
    }

    /// A matrix of `rows * cols` elements.
    pub(crate) fn new(values: Vec<f32>, rows: usize, cols: usize) -> Self {
        assert_eq!(values.len(), rows * cols, "elements of a {rows} x {cols} matrix");
        Self { values, rows, cols }
    }

    /// The matrix, borrowed.
    pub(crate) fn view(&self) -> MatrixRef<'_> {
        MatrixRef { values: &self.values, rows: self.rows, cols: self.cols }
    }
}

impl MatrixRef<'_> {
    /// Row `row`.
    #[inline]
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.cols..(row + 1) * self.cols]
    }
}

/// Rows per task: enough to amortise its start, few enough to balance rows of unequal length.
pub(crate) const TASK_ROWS: usize = 32;

/// Calls `each(row, values)` for every row of `out`, in parallel.
pub(crate) fn for_rows(out: &mut Matrix, each: impl Fn(usize, &mut [f32]) + Sync) {
    for_slices(&mut out.values, out.cols, each);
}

/// Calls `each(row, values)` for every `cols` elements of `out`, in parallel.
pub(crate) fn for_slices(out: &mut [f32], cols: usize, each: impl Fn(usize, &mut [f32]) + Sync) {
    if cols == 0 {
        return;
    }
    out.par_chunks_mut(TASK_ROWS * cols).enumerate().for_each(|(task, rows)| {
        for (i, row) in rows.chunks_exact_mut(cols).enumerate() {
            each(task * TASK_ROWS + i, row);
        }
    });
}

/// `out += a * x`.
#[inline]
pub(crate) fn axpy(out: &mut [f32], a: f32, x: &[f32]) {
    for (o, &x) in out.iter_mut().zip(x) {
        *o += a * x;
    }
}

/// Dot product, in eight fixed partial sums so that the compiler can use vector registers.
#[inline]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a8, a1) = a.as_chunks::<8>();
    let (b8, b1) = b.as_chunks::<8>();
    let mut sums = [0.0f32; 8];
    for (a, b) in a8.iter().zip(b8) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f32>() + a1.iter().zip(b1).map(|(a, b)| a * b).sum::<f32>()
}

/// Rows summed by one task of a reduction. A constant, so that the sum does not depend on the number of threads.
const SUM_ROWS: usize = 1024;

/// Column sums over `rows` rows in a fixed order: `each(row, sums)` adds one row to `sums`.
pub(crate) fn sum_rows(rows: usize, cols: usize, each: impl Fn(usize, &mut [f32]) + Sync) -> Vec<f32> {
    let part = |task: usize| {
        let mut sums = vec![0.0; cols];
        for row in task * SUM_ROWS..((task + 1) * SUM_ROWS).min(rows) {
            each(row, &mut sums);
        }
        sums
    };
    let parts: Vec<Vec<f32>> = (0..rows.div_ceil(SUM_ROWS)).into_par_iter().map(part).collect();
    let mut total = vec![0.0; cols];
    for part in parts {
        axpy(&mut total, 1.0, &part);
    }
    total
}

/// The transposed matrix, in tiles that stay in the cache.
pub(crate) fn transpose(x: MatrixRef<'_>) -> Matrix {
    const TILE: usize = 32;
    let mut out = Matrix::zeros(x.cols, x.rows);
    if x.rows == 0 || x.cols == 0 {
        return out;
    }
    out.values.par_chunks_mut(TILE * x.rows).enumerate().for_each(|(tile, rows)| {
        for start in (0..x.rows).step_by(TILE) {
            let end = (start + TILE).min(x.rows);
            for (i, row) in rows.chunks_exact_mut(x.rows).enumerate() {
                let column = tile * TILE + i;
                for (r, o) in (start..end).zip(&mut row[start..end]) {
                    *o = x.values[r * x.cols + column];
                }
            }
        }
    });
    out
}
