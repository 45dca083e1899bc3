//! Edges with their features.

use std::sync::Arc;

use morphgl_graph_store::FeatureMatrix;
use morphgl_registry::Block;

use super::Adjacency;
use crate::matrix::{Matrix, axpy, for_rows};

/// The edges that a layer reads, with the features of each.
#[derive(Debug)]
pub(crate) struct FeaturedEdges {
    /// The edges; a self loop that was added is the last of its row.
    pub(crate) edges: Arc<Adjacency>,
    /// A row per edge.
    pub(crate) features: Matrix,
    /// Position of each edge in its row of the block, of an added self loop the row's length.
    pub(crate) entries: Vec<u32>,
}

impl FeaturedEdges {
    /// The edges of a block, which `edges` is made of. Rows of `features` are the block's edge ids.
    ///
    /// # Panics
    ///
    /// A block without edge ids, or an id that is no row.
    pub(crate) fn new(block: &Block, edges: Adjacency, features: &FeatureMatrix) -> Self {
        let ids = block.edge_ids.as_deref().expect("a block with edge ids");
        let entries = block.indptr.windows(2).flat_map(|ends| 0..ends[1] - ends[0]).collect();
        Self { edges: Arc::new(edges), features: rows(features, ids), entries }
    }

    /// The edges of a block with one self loop of each row in place of those of the graph. Its features are the mean of those of the
    /// row's other edges, 0 without any (PyG's `fill_value="mean"`).
    ///
    /// # Panics
    ///
    /// As [`FeaturedEdges::new`].
    pub(crate) fn with_self_loops(block: &Block, features: &FeatureMatrix) -> Self {
        let all = Self::new(block, Adjacency::edges(block), features);
        let (width, num_edges) = (all.features.cols, block.num_edges() + block.num_dst);
        let mut looped = Block { num_dst: block.num_dst, num_src: block.num_src, ..Block::default() };
        let (mut entries, mut values) = (Vec::with_capacity(num_edges), Vec::with_capacity(num_edges * width));
        let mut mean = vec![0.0; width];
        looped.indptr.push(0);
        for row in 0..block.num_dst {
            let edges = block.indptr[row] as usize..block.indptr[row + 1] as usize;
            let length = edges.len() as u32;
            mean.fill(0.0);
            let mut count = 0;
            for edge in edges.filter(|&edge| block.indices[edge] as usize != row) {
                let of_edge = all.features.view();
                looped.indices.push(block.indices[edge]);
                entries.push(all.entries[edge]);
                values.extend_from_slice(of_edge.row(edge));
                axpy(&mut mean, 1.0, of_edge.row(edge));
                count += 1;
            }
            looped.indices.push(row as u32);
            entries.push(length);
            values.extend(mean.iter().map(|sum| sum / count.max(1) as f32));
            looped.indptr.push(looped.indices.len() as u32);
        }
        let features = Matrix::new(values, looped.indices.len(), width);
        Self { edges: Arc::new(Adjacency::edges(&looped)), features, entries }
    }
}

/// The rows `ids` of a matrix, as f32.
fn rows(matrix: &FeatureMatrix, ids: &[u32]) -> Matrix {
    let (view, dim) = (matrix.view(), matrix.dim());
    let mut out = Matrix::zeros(ids.len(), dim);
    for_rows(&mut out, |row, out| view.part(ids[row] as usize * dim, dim).to_f32(out));
    out
}
