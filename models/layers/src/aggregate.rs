//! Weighted sums over the edges of a block, and their backward over the transposed block.
//!
//! Every output row is summed by one task in a fixed order: no atomics, and the same bits on any number of threads.

use std::sync::Arc;

use burn_tensor::Tensor;

use crate::adjacency::{Adjacency, Coefficients};
use crate::bridge::{HostOp, apply};
use crate::matrix::{Matrix, MatrixRef, axpy, dot, for_rows, sum_rows};

/// The weighted sum of each row's sources: `[num_src, width]` to `[num_dst, width]`.
pub fn aggregate(x: Tensor<2>, adjacency: &Arc<Adjacency>) -> Tensor<2> {
    apply(Aggregate { adjacency: Arc::clone(adjacency), own_row: OwnRow::Unused }, [x])
}

/// The weighted sum of each row's sources, followed by the row's own node: `[num_src, width]` to `[num_dst, 2 width]`.
pub fn aggregate_beside_self(x: Tensor<2>, adjacency: &Arc<Adjacency>) -> Tensor<2> {
    apply(Aggregate { adjacency: Arc::clone(adjacency), own_row: OwnRow::Concatenated }, [x])
}

/// The weighted sum of each row's sources plus `1 + eps` times the row's own node; `eps` is `[1, 1]`.
pub fn aggregate_with_self(x: Tensor<2>, eps: Tensor<2>, adjacency: &Arc<Adjacency>) -> Tensor<2> {
    apply(Aggregate { adjacency: Arc::clone(adjacency), own_row: OwnRow::Added }, [x, eps])
}

/// Use of the row's own node.
#[derive(Debug, Clone, Copy, PartialEq)]
enum OwnRow {
    Unused,
    /// Appended to the sum.
    Concatenated,
    /// Added to the sum, times one plus the second input.
    Added,
}

#[derive(Debug)]
struct Aggregate {
    adjacency: Arc<Adjacency>,
    own_row: OwnRow,
}

impl HostOp for Aggregate {
    fn forward(&self, inputs: &[MatrixRef<'_>]) -> Matrix {
        let (x, adjacency) = (inputs[0], self.adjacency.as_ref());
        assert_eq!(x.rows, adjacency.num_src, "rows to aggregate and source nodes");
        let width = x.cols;
        let mut out =
            Matrix::zeros(adjacency.num_dst, if self.own_row == OwnRow::Concatenated { 2 * width } else { width });
        for_rows(&mut out, |row, out| {
            let (sum, own) = out.split_at_mut(width);
            let range = adjacency.row(row);
            match &adjacency.coefficients {
                Coefficients::Edges(all) => {
                    for (&src, &a) in adjacency.indices[range.clone()].iter().zip(&all[range]) {
                        axpy(sum, a, x.row(src as usize));
                    }
                }
                Coefficients::Ones | Coefficients::Rows(_) => {
                    let a = adjacency.coefficient(0, row);
                    for &src in &adjacency.indices[range] {
                        axpy(sum, 1.0, x.row(src as usize));
                    }
                    if a != 1.0 {
                        sum.iter_mut().for_each(|s| *s *= a);
                    }
                }
            }
            if let Some(loops) = &adjacency.self_loops {
                axpy(sum, loops[row], x.row(row));
            }
            match self.own_row {
                OwnRow::Unused => {}
                OwnRow::Concatenated => own.copy_from_slice(x.row(row)),
                OwnRow::Added => axpy(sum, 1.0 + inputs[1].values[0], x.row(row)),
            }
        });
        out
    }

    fn saves_inputs(&self) -> bool {
        self.own_row == OwnRow::Added
    }

    fn backward(&self, grad: MatrixRef<'_>, inputs: &[MatrixRef<'_>], wanted: &[bool]) -> Vec<Option<Matrix>> {
        let adjacency = self.adjacency.as_ref();
        let width = if self.own_row == OwnRow::Concatenated { grad.cols / 2 } else { grad.cols };
        let own_share = inputs.get(1).map_or(0.0, |eps| 1.0 + eps.values[0]);
        let of_x = || {
            let transposed = adjacency.transposed();
            let mut out = Matrix::zeros(adjacency.num_src, width);
            for_rows(&mut out, |src, out| {
                let range = transposed.indptr[src] as usize..transposed.indptr[src + 1] as usize;
                for (&row, &edge) in transposed.rows[range.clone()].iter().zip(&transposed.edges[range]) {
                    let a = adjacency.coefficient(edge as usize, row as usize);
                    axpy(out, a, &grad.row(row as usize)[..width]);
                }
                if src < adjacency.num_dst {
                    if let Some(loops) = &adjacency.self_loops {
                        axpy(out, loops[src], &grad.row(src)[..width]);
                    }
                    match self.own_row {
                        OwnRow::Unused => {}
                        OwnRow::Concatenated => axpy(out, 1.0, &grad.row(src)[width..]),
                        OwnRow::Added => axpy(out, own_share, grad.row(src)),
                    }
                }
            });
            out
        };
        let of_eps = || {
            let x = inputs[0];
            let sum = sum_rows(adjacency.num_dst, 1, |row, sum| sum[0] += dot(x.row(row), grad.row(row)));
            Matrix::new(sum, 1, 1)
        };
        let mut grads = vec![wanted[0].then(of_x)];
        grads.extend(wanted.get(1).map(|wanted| wanted.then(of_eps)));
        grads
    }
}
