//! Input features of a layer: dense, or sparse rows if most elements of a first layer's input are zero.
//!
//! Bag-of-words features are stored dense and are at least 98 % zeros. A mini-batch whose features are sparse is scanned
//! once into (column, value) lists, and its GEMM with a weight reads only the nonzeros.

use std::sync::{Arc, OnceLock};

use burn_tensor::{Device, Int, Tensor, TensorData};
use morphgl_graph_store::FeatureView;
use rayon::prelude::*;

use crate::bridge::{HostOp, apply};
use crate::mask::Mask;
use crate::matrix::{Matrix, MatrixRef, TASK_ROWS, axpy, for_rows, transpose};

/// A layer's input.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "one per layer, and usually the large variant")]
pub enum Features {
    /// All elements.
    Dense(Tensor<2>),
    /// The nonzeros.
    Sparse(Arc<SparseRows>),
}

/// Rows as lists of (column, value).
#[derive(Debug)]
pub struct SparseRows {
    num_rows: usize,
    dim: usize,
    // Invariant: `indptr` has `num_rows + 1` offsets into `columns` and `values`; columns are below `dim`, ascending in a row.
    indptr: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f32>,
    by_column: OnceLock<Columns>,
}

/// The same nonzeros by column, rows ascending.
#[derive(Debug)]
struct Columns {
    indptr: Vec<usize>,
    rows: Vec<u32>,
    values: Vec<f32>,
}

impl Features {
    /// Reads the rows of `view`, `dim` elements each, with `dropout`.
    ///
    /// The rows alone decide whether the result is sparse.
    ///
    /// # Complexity
    ///
    /// O(rows · dim), bound by memory bandwidth.
    pub fn read(view: FeatureView<'_>, dim: usize, dropout: Option<&Mask>, device: &Device) -> Self {
        let num_rows = view.len() / dim.max(1);
        assert_eq!(view.len(), num_rows * dim, "elements in rows of {dim}");
        if view.is_sparse(dim) {
            return Features::Sparse(Arc::new(SparseRows::read(view, dim, num_rows, |row| row, dropout)));
        }
        let mut values = vec![0.0; view.len()];
        if dim > 0 {
            values.par_chunks_mut(TASK_ROWS * dim).enumerate().for_each(|(task, out)| {
                let start = task * TASK_ROWS * dim;
                view.part(start, out.len()).to_f32(out);
                if let Some(mask) = dropout {
                    mask.apply(task * TASK_ROWS, dim, out);
                }
            });
        }
        Features::Dense(Tensor::from_data(TensorData::new(values, [num_rows, dim]), device))
    }

    /// Gathers the rows of `nodes` from the matrix `view`, with `dropout`.
    ///
    /// # Complexity
    ///
    /// O(nodes · dim).
    pub fn gather(view: FeatureView<'_>, dim: usize, nodes: &[u32], dropout: Option<&Mask>, device: &Device) -> Self {
        if view.is_sparse(dim) {
            let rows = SparseRows::read(view, dim, nodes.len(), |row| nodes[row] as usize, dropout);
            return Features::Sparse(Arc::new(rows));
        }
        let mut out = Matrix::zeros(nodes.len(), dim);
        for_rows(&mut out, |row, out| {
            view.part(nodes[row] as usize * dim, dim).to_f32(out);
            if let Some(mask) = dropout {
                mask.apply(row, dim, out);
            }
        });
        Features::Dense(Tensor::from_data(TensorData::new(out.values, [nodes.len(), dim]), device))
    }

    /// Approximate bytes of a row that [`Features::gather`] returns.
    pub fn gathered_row_bytes(view: FeatureView<'_>, dim: usize) -> usize {
        if view.is_sparse(dim) { 16 + (8.0 * view.density(dim) * dim as f64) as usize } else { 4 * dim }
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        match self {
            Features::Dense(x) => x.dims()[0],
            Features::Sparse(x) => x.num_rows,
        }
    }

    /// Width of a row.
    pub fn dim(&self) -> usize {
        match self {
            Features::Dense(x) => x.dims()[1],
            Features::Sparse(x) => x.dim,
        }
    }

    /// The first `rows` rows as a matrix.
    pub(crate) fn dense(&self, rows: usize, device: &Device) -> Tensor<2> {
        match self {
            Features::Dense(x) => prefix(x.clone(), rows),
            Features::Sparse(_) => self.linear(Tensor::eye(self.dim(), device), rows),
        }
    }

    /// The first `rows` rows times the transposed `weight` (`[out, in]`).
    pub fn linear(&self, weight: Tensor<2>, rows: usize) -> Tensor<2> {
        match self {
            Features::Dense(x) => prefix(x.clone(), rows).matmul(weight.transpose()),
            Features::Sparse(x) => apply(SparseLinear { x: Arc::clone(x), rows }, [weight]),
        }
    }
}

/// The first `rows` rows.
pub(crate) fn prefix(x: Tensor<2>, rows: usize) -> Tensor<2> {
    if x.dims()[0] == rows { x } else { x.narrow(0, 0, rows) }
}

/// The rows of these numbers.
pub(crate) fn select(x: Tensor<2>, rows: &[i32]) -> Tensor<2> {
    let device: Device = x.device();
    let rows = TensorData::new(rows.to_vec(), [rows.len()]);
    x.select(0, Tensor::<1, Int>::from_data(rows, &device))
}

impl SparseRows {
    /// Scans row `source(row)` of `view` for each of `num_rows` rows; dropout applies to nonzeros alone.
    fn read(
        view: FeatureView<'_>,
        dim: usize,
        num_rows: usize,
        source: impl Fn(usize) -> usize + Sync,
        dropout: Option<&Mask>,
    ) -> Self {
        let task = |task: usize| {
            let (mut ends, mut columns, mut values) = (Vec::with_capacity(TASK_ROWS), Vec::new(), Vec::new());
            for row in task * TASK_ROWS..((task + 1) * TASK_ROWS).min(num_rows) {
                view.part(source(row) * dim, dim).for_nonzeros(|column, value| {
                    if dropout.is_none_or(|mask| mask.dropout.keeps(mask.nodes[row], column as u64)) {
                        columns.push(column as u32);
                        values.push(dropout.map_or(value, |mask| value * mask.dropout.scale()));
                    }
                });
                ends.push(columns.len());
            }
            (ends, columns, values)
        };
        let parts: Vec<_> = (0..num_rows.div_ceil(TASK_ROWS)).into_par_iter().map(task).collect();
        let total = parts.iter().map(|(_, columns, _)| columns.len()).sum();
        let mut indptr = Vec::with_capacity(num_rows + 1);
        let (mut columns, mut values) = (Vec::with_capacity(total), Vec::with_capacity(total));
        indptr.push(0);
        for (ends, part_columns, part_values) in parts {
            indptr.extend(ends.into_iter().map(|end| columns.len() + end));
            columns.extend_from_slice(&part_columns);
            values.extend_from_slice(&part_values);
        }
        Self { num_rows, dim, indptr, columns, values, by_column: OnceLock::new() }
    }

    fn row(&self, row: usize) -> impl Iterator<Item = (usize, f32)> {
        let range = self.indptr[row]..self.indptr[row + 1];
        self.columns[range.clone()].iter().map(|&c| c as usize).zip(self.values[range].iter().copied())
    }

    fn by_column(&self) -> &Columns {
        self.by_column.get_or_init(|| {
            let mut indptr = vec![0; self.dim + 1];
            for &column in &self.columns {
                indptr[column as usize + 1] += 1;
            }
            for c in 0..self.dim {
                indptr[c + 1] += indptr[c];
            }
            let mut next = indptr.clone();
            let (mut rows, mut values) = (vec![0; self.columns.len()], vec![0.0; self.columns.len()]);
            for row in 0..self.num_rows {
                for (column, value) in self.row(row) {
                    rows[next[column]] = row as u32;
                    values[next[column]] = value;
                    next[column] += 1;
                }
            }
            Columns { indptr, rows, values }
        })
    }
}

/// The first `rows` rows of `x` times the transposed weight.
#[derive(Debug)]
struct SparseLinear {
    x: Arc<SparseRows>,
    rows: usize,
}

impl HostOp for SparseLinear {
    fn forward(&self, inputs: &[MatrixRef<'_>]) -> Matrix {
        assert_eq!(inputs[0].cols, self.x.dim, "a weight per column");
        assert!(self.rows <= self.x.num_rows, "{} of {} rows", self.rows, self.x.num_rows);
        let weight = transpose(inputs[0]);
        let weight = weight.view();
        let mut out = Matrix::zeros(self.rows, weight.cols);
        for_rows(&mut out, |row, out| {
            for (column, value) in self.x.row(row) {
                axpy(out, value, weight.row(column));
            }
        });
        out
    }

    fn saves_inputs(&self) -> bool {
        false
    }

    fn backward(&self, grad: MatrixRef<'_>, _: &[MatrixRef<'_>], wanted: &[bool]) -> Vec<Option<Matrix>> {
        vec![wanted[0].then(|| {
            let columns = self.x.by_column();
            let mut out = Matrix::zeros(self.x.dim, grad.cols);
            for_rows(&mut out, |column, out| {
                let range = columns.indptr[column]..columns.indptr[column + 1];
                let rows = columns.rows[range.clone()].iter().zip(&columns.values[range]);
                for (&row, &value) in rows.take_while(|(row, _)| (**row as usize) < self.rows) {
                    axpy(out, value, grad.row(row as usize));
                }
            });
            transpose(out.view())
        })]
    }
}
