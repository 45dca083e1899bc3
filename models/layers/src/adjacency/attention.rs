//! The edges of a block by type: one block, whose sources are told apart by edge type.

use std::collections::HashMap;
use std::sync::Arc;

use morphgl_graph_store::Types;
use morphgl_registry::Block;

use super::{Adjacency, destinations_by_type};

/// A block whose sources are told apart by the edge type that they are read by.
#[derive(Debug)]
pub(crate) struct HgtBlock {
    pub(crate) num_src: usize,
    /// Number of each edge type that has edges, and rows of its sources.
    pub(crate) sources: Vec<(usize, Vec<i32>)>,
    /// Rows of the destinations of each node type.
    pub(crate) destinations: Vec<(usize, Vec<i32>)>,
    /// The edges, from the sources of all edge types, one type after the other, and rows of zeros where they are fewer than destinations.
    pub(crate) edges: Arc<Adjacency>,
}

impl HgtBlock {
    pub(crate) fn new(block: &Block, types: &Types, nodes: &[u32]) -> Self {
        let edge_types = block.edge_types.as_deref().expect("a block with edge types");
        let mut sources = vec![Vec::new(); types.edge_types().len()];
        let mut number = HashMap::new();
        let of_edge = block.indices.iter().zip(edge_types).map(|(&row, &of_type)| {
            let rows: &mut Vec<i32> = &mut sources[usize::from(of_type)];
            let at = *number.entry((of_type, row)).or_insert_with(|| {
                rows.push(row as i32);
                rows.len() - 1
            });
            (usize::from(of_type), at)
        });
        let of_edge: Vec<(usize, usize)> = of_edge.collect();
        let mut starts = vec![0];
        sources.iter().for_each(|rows| starts.push(starts[starts.len() - 1] + rows.len()));
        let indices = of_edge.into_iter().map(|(of_type, at)| (starts[of_type] + at) as u32).collect();
        let num_src = starts[sources.len()].max(block.num_dst);
        let edges =
            Block { num_dst: block.num_dst, num_src, indptr: block.indptr.clone(), indices, ..Block::default() };
        Self {
            num_src: block.num_src,
            sources: sources.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()).collect(),
            destinations: destinations_by_type(types, &nodes[..block.num_dst]),
            edges: Arc::new(Adjacency::edges(&edges)),
        }
    }
}
