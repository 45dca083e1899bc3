//! Messages per edge: gathered from both ends, and summed by destination row.
//!
//! Edges are in the order of the block. Every row is summed by one task in that order: no atomics, and the same bits on any number
//! of threads.

use std::sync::Arc;

use burn_tensor::Tensor;

use crate::adjacency::Adjacency;
use crate::bridge::{HostOp, apply};
use crate::matrix::{Matrix, MatrixRef, axpy, for_rows};

/// The row of each edge's source node: `[num_src, width]` to `[num_edges, width]`.
pub fn edge_sources(x: Tensor<2>, adjacency: &Arc<Adjacency>) -> Tensor<2> {
    apply(Edges { adjacency: Arc::clone(adjacency), direction: Direction::FromSources }, [x])
}

/// The row of each edge's destination node: `[num_dst, width]` to `[num_edges, width]`.
pub fn edge_destinations(x: Tensor<2>, adjacency: &Arc<Adjacency>) -> Tensor<2> {
    apply(Edges { adjacency: Arc::clone(adjacency), direction: Direction::FromDestinations }, [x])
}

/// The sum of each row's messages, times the row's or the edge's coefficient: `[num_edges, width]` to `[num_dst, width]`.
pub fn sum_edges(messages: Tensor<2>, adjacency: &Arc<Adjacency>) -> Tensor<2> {
    apply(Edges { adjacency: Arc::clone(adjacency), direction: Direction::ToDestinations }, [messages])
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    FromSources,
    FromDestinations,
    ToDestinations,
}

#[derive(Debug)]
struct Edges {
    adjacency: Arc<Adjacency>,
    direction: Direction,
}

impl Edges {
    /// A row per edge: `row(edge, destination row)` of `x`, times `coefficient`.
    fn gather(&self, x: MatrixRef<'_>, coefficient: bool, sources: bool) -> Matrix {
        let adjacency = self.adjacency.as_ref();
        let destinations = adjacency.edge_rows();
        let mut out = Matrix::zeros(adjacency.num_edges(), x.cols);
        for_rows(&mut out, |edge, out| {
            let row = destinations[edge] as usize;
            let from = if sources { adjacency.indices[edge] as usize } else { row };
            axpy(out, if coefficient { adjacency.coefficient(edge, row) } else { 1.0 }, x.row(from));
        });
        out
    }

    /// The sum of each destination row's edges, times `coefficient`.
    fn sum_by_destination(&self, x: MatrixRef<'_>, coefficient: bool) -> Matrix {
        let adjacency = self.adjacency.as_ref();
        let mut out = Matrix::zeros(adjacency.num_dst, x.cols);
        for_rows(&mut out, |row, out| {
            for edge in adjacency.row(row) {
                axpy(out, if coefficient { adjacency.coefficient(edge, row) } else { 1.0 }, x.row(edge));
            }
        });
        out
    }

    fn sum_by_source(&self, x: MatrixRef<'_>) -> Matrix {
        let transposed = self.adjacency.transposed();
        let mut out = Matrix::zeros(self.adjacency.num_src, x.cols);
        for_rows(&mut out, |src, out| {
            for &edge in &transposed.edges[transposed.indptr[src] as usize..transposed.indptr[src + 1] as usize] {
                axpy(out, 1.0, x.row(edge as usize));
            }
        });
        out
    }
}

impl HostOp for Edges {
    fn forward(&self, inputs: &[MatrixRef<'_>]) -> Matrix {
        let (x, adjacency) = (inputs[0], self.adjacency.as_ref());
        let (what, rows) = match self.direction {
            Direction::FromSources => ("source nodes", adjacency.num_src),
            Direction::FromDestinations => ("destination nodes", adjacency.num_dst),
            Direction::ToDestinations => ("edges", adjacency.num_edges()),
        };
        assert_eq!(x.rows, rows, "rows and {what}");
        match self.direction {
            Direction::FromSources => self.gather(x, false, true),
            Direction::FromDestinations => self.gather(x, false, false),
            Direction::ToDestinations => self.sum_by_destination(x, true),
        }
    }

    fn saves_inputs(&self) -> bool {
        false
    }

    fn backward(&self, grad: MatrixRef<'_>, _: &[MatrixRef<'_>], wanted: &[bool]) -> Vec<Option<Matrix>> {
        vec![wanted[0].then(|| match self.direction {
            Direction::FromSources => self.sum_by_source(grad),
            Direction::FromDestinations => self.sum_by_destination(grad, false),
            Direction::ToDestinations => self.gather(grad, true, false),
        })]
    }
}
