//! The subgraph that given nodes induce, whoever sampled them.

use morphgl_graph_store::Topology;
use morphgl_registry::{BatchId, Block, Result};
use morphgl_sampler_core::{Excluded, Relabel};

use crate::shadow::induce::{Graph, Inducer};

/// Finds all edges among given nodes of one graph, call after call in the same memory, on the calling thread.
///
/// ```
/// use morphgl_batching_cpu::{InducedEdges, graph_store::Topology, registry::Block};
///
/// // Edges 1 → 0, 2 → 0 and 0 → 1.
/// let topology = Topology::new(vec![0, 2, 3, 3], vec![1, 2, 0], None)?;
/// let mut block = Block::default();
/// InducedEdges::new(&topology).among(&topology, &[1, 0], &mut block)?;
/// assert_eq!((block.indptr, block.indices), (vec![0, 1, 2], vec![1, 0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct InducedEdges {
    inducer: Inducer,
    relabel: Relabel,
    excluded: Excluded,
    /// Buffer for the nodes of the previous call.
    nodes: Vec<u32>,
}

impl InducedEdges {
    /// For mini-batches of `topology`. O(nodes) time; a bit per node and what [`Relabel::for_graph`] takes.
    pub fn new(topology: &Topology) -> Self {
        let num_nodes = topology.num_nodes();
        let relabel = Relabel::for_graph(num_nodes, |_| 0);
        Self { inducer: Inducer::new(num_nodes, 1), relabel, excluded: Excluded::default(), nodes: Vec::new() }
    }

    /// Sets `block` to all edges of `topology` among `nodes`: a row per node, slots in the order of the CSC row, with the weights, ids and types
    /// that the graph has of them. A node that repeats has a row per occurrence, and is the source of its edges at its first position.
    ///
    /// # Errors
    ///
    /// 2^32 edges or more; an in-neighbour that does not exist, in a mapped file that was changed.
    ///
    /// # Panics
    ///
    /// When a node is beyond the graph, or the graph is another one than [`InducedEdges::new`] was given and larger.
    ///
    /// # Complexity
    ///
    /// O(in-degrees of the nodes).
    pub fn among(&mut self, topology: &Topology, nodes: &[u32], block: &mut Block) -> Result<()> {
        let Self { inducer, relabel, excluded, nodes: buffer } = self;
        let graph = Graph { topology, excluded, types: topology.edge_types().map(|types| &**types) };
        inducer.induce(graph, BatchId::default(), nodes, block)?;
        relabel.start(std::mem::take(buffer));
        relabel.add_seeds(nodes);
        relabel.locals(&mut block.indices);
        *buffer = relabel.finish();
        (block.num_dst, block.num_src, block.importance) = (nodes.len(), nodes.len(), false);
        Ok(())
    }
}
