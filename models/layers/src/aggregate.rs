//! Weighted sums over the edges of a block, and their backward over the transposed block.
//!
//! Every output row is summed by one task in a fixed order: no atomics, and the same bits on any number of threads.

use std::sync::Arc;

use burn::tensor::Tensor;

use crate::adjacency::{Adjacency, Coefficients};
use crate::bridge::{HostOp, Keeps, Kept, apply1};
use crate::matrix::{Matrix, MatrixRef, axpy, for_rows};

/// The weighted sum of each row's sources: `[num_src, width]` to `[num_dst, width]`.
pub fn aggregate(x: Tensor<2>, adjacency: &Arc<Adjacency>) -> Tensor<2> {
    apply1(Aggregate { adjacency: Arc::clone(adjacency), beside_self: false }, x)
}

/// The weighted sum of each row's sources, and beside it the row's own node: `[num_src, width]` to `[num_dst, 2 width]`.
pub fn aggregate_beside_self(x: Tensor<2>, adjacency: &Arc<Adjacency>) -> Tensor<2> {
    apply1(Aggregate { adjacency: Arc::clone(adjacency), beside_self: true }, x)
}

#[derive(Debug)]
struct Aggregate {
    adjacency: Arc<Adjacency>,
    beside_self: bool,
}

impl HostOp for Aggregate {
    fn forward(&self, inputs: &[MatrixRef<'_>]) -> Matrix {
        let (x, adjacency) = (inputs[0], self.adjacency.as_ref());
        assert_eq!(x.rows, adjacency.num_src, "rows to aggregate and source nodes");
        let width = x.cols;
        let mut out = Matrix::zeros(adjacency.num_dst, if self.beside_self { 2 * width } else { width });
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
            if !own.is_empty() {
                own.copy_from_slice(x.row(row));
            }
        });
        out
    }

    fn keeps(&self) -> Keeps {
        Keeps::default()
    }

    fn backward(&self, grad: MatrixRef<'_>, _: &Kept<'_>, wanted: &[bool]) -> Vec<Option<Matrix>> {
        let adjacency = self.adjacency.as_ref();
        let width = if self.beside_self { grad.cols / 2 } else { grad.cols };
        vec![wanted[0].then(|| {
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
                    if self.beside_self {
                        axpy(out, 1.0, &grad.row(src)[width..]);
                    }
                }
            });
            out
        })]
    }
}
