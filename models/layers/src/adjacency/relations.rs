//! The edges of a block by type: a block for each edge type.

use std::sync::Arc;

use morphgl_graph_store::{FeatureMatrix, Types};
use morphgl_model_core::{ModelKind, ModelSpec};
use morphgl_registry::Block;

use super::{Adjacency, Coefficients, FeaturedEdges};

/// A block divided by edge types and by the node types of its destinations.
#[derive(Debug)]
pub(crate) struct TypedBlock {
    pub(crate) num_src: usize,
    pub(crate) relations: Vec<Relation>,
    /// Rows of the destinations of each node type that has one: type and rows.
    pub(crate) destinations: Vec<(usize, Vec<i32>)>,
    /// From the destinations of all relations, followed by those of all node types, to the block's destinations.
    pub(crate) sum: Arc<Adjacency>,
}

/// The edges of one type of a block, as a bipartite block of their own.
#[derive(Debug)]
pub(crate) struct Relation {
    pub(crate) edge_type: usize,
    /// Row in the block of each source, destinations first.
    pub(crate) sources: Vec<i32>,
    pub(crate) adjacency: Arc<Adjacency>,
    /// The edges with their features, where the model reads these.
    pub(crate) featured: Option<FeaturedEdges>,
}

impl TypedBlock {
    /// Divides a block of nodes of a graph with types.
    ///
    /// # Panics
    ///
    /// When the block has no edge types, or a destination no node of the graph.
    pub(crate) fn new(
        spec: &ModelSpec,
        block: &Block,
        types: &Types,
        nodes: &[u32],
        edge_features: &[Option<FeatureMatrix>],
    ) -> Self {
        let relations = relations(spec, block, types.edge_types().len(), edge_features);
        let destinations = destinations_by_type(types, &nodes[..block.num_dst]);
        let of_relations = relations.iter().flat_map(|relation| &relation.sources[..relation.adjacency.num_dst]);
        let rows: Vec<i32> = of_relations.chain(destinations.iter().flat_map(|(_, rows)| rows)).copied().collect();
        Self { num_src: block.num_src, relations, destinations, sum: Arc::new(sum_of(&rows, block.num_dst)) }
    }
}

/// The rows of the nodes of each type that has one: type and rows.
pub(crate) fn destinations_by_type(types: &Types, nodes: &[u32]) -> Vec<(usize, Vec<i32>)> {
    let mut by_type: Vec<(usize, Vec<i32>)> = (0..types.node_types().len()).map(|t| (t, Vec::new())).collect();
    for (row, &node) in (0..).zip(nodes) {
        by_type[types.node_type(node)].1.push(row);
    }
    by_type.retain(|(_, rows)| !rows.is_empty());
    by_type
}

/// The sum of the rows that are of each of `num_dst` destinations.
fn sum_of(rows: &[i32], num_dst: usize) -> Adjacency {
    let mut indptr = vec![0u32; num_dst + 1];
    rows.iter().for_each(|&row| indptr[row as usize + 1] += 1);
    for row in 0..num_dst {
        indptr[row + 1] += indptr[row];
    }
    let (mut next, mut indices) = (indptr.clone(), vec![0; rows.len()]);
    for (at, &row) in (0..).zip(rows) {
        indices[next[row as usize] as usize] = at;
        next[row as usize] += 1;
    }
    let block = Block { num_dst, num_src: rows.len(), indptr, indices, ..Block::default() };
    Adjacency::new(&block, Coefficients::Ones, None)
}

/// The edges of each type that has one, as blocks.
fn relations(
    spec: &ModelSpec,
    block: &Block,
    num_types: usize,
    edge_features: &[Option<FeatureMatrix>],
) -> Vec<Relation> {
    let kind = spec.kind;
    let edge_types = block.edge_types.as_deref().expect("a block with edge types");
    let mut blocks: Vec<(Block, Vec<i32>)> = vec![Default::default(); num_types];
    // Destinations of each type, and where their edges end.
    for row in 0..block.num_dst {
        let (mut start, end) = (block.indptr[row] as usize, block.indptr[row + 1] as usize);
        for of_type in edge_types[start..end].chunk_by(|a, b| a == b) {
            let (of_edges, sources) = &mut blocks[usize::from(of_type[0])];
            if of_edges.indptr.is_empty() {
                of_edges.indptr.push(0);
                of_edges.weights = block.weights.as_ref().map(|_| Vec::new());
                of_edges.edge_ids = block.edge_ids.as_ref().map(|_| Vec::new());
            }
            sources.push(row as i32);
            of_edges.num_dst += 1;
            let edges = start..start + of_type.len();
            of_edges.indices.extend(&block.indices[edges.clone()]);
            of_edges.indptr.push(of_edges.indices.len() as u32);
            if let (Some(own), Some(weights)) = (&mut of_edges.weights, &block.weights) {
                own.extend(&weights[edges.clone()]);
            }
            if let (Some(own), Some(ids)) = (&mut of_edges.edge_ids, &block.edge_ids) {
                own.extend(&ids[edges.clone()]);
            }
            start = edges.end;
        }
    }
    // Position of each source among those of the type, where `seen` is the type's number.
    let (mut position, mut seen) = (vec![0u32; block.num_src], vec![usize::MAX; block.num_src]);
    let of_type = |(edge_type, (mut of_edges, mut sources)): (usize, (Block, Vec<i32>))| {
        for (at, &row) in (0..).zip(&sources) {
            (position[row as usize], seen[row as usize]) = (at, edge_type);
        }
        for source in &mut of_edges.indices {
            let row = *source as usize;
            if seen[row] != edge_type {
                (position[row], seen[row]) = (sources.len() as u32, edge_type);
                sources.push(row as i32);
            }
            *source = position[row];
        }
        (of_edges.num_src, of_edges.importance) = (sources.len(), block.importance);
        let adjacency = if kind == ModelKind::Rgat { Adjacency::edges(&of_edges) } else { Adjacency::mean(&of_edges) };
        let features = edge_features.get(edge_type).and_then(Option::as_ref).filter(|_| spec.edge_width(edge_type) > 0);
        let featured = features.map(|all| FeaturedEdges::new(&of_edges, Adjacency::edges(&of_edges), all));
        Relation { edge_type, sources, adjacency: Arc::new(adjacency), featured }
    };
    blocks.into_iter().enumerate().filter(|(_, (of_edges, _))| of_edges.num_dst > 0).map(of_type).collect()
}
