//! The graph as policies read it.

use morphgl_graph_store::{Topology, Types};
use morphgl_registry::{Error, Result};

/// In-neighbours of a node by edges of one type.
#[derive(Debug, Clone, Copy)]
pub struct SubRow<'a> {
    /// The node.
    pub node: u32,
    /// Number of the edge type.
    pub edge_type: u16,
    /// Number of the node's edges of the type.
    pub degree: u64,
    /// All of their sources, or some consecutive ones.
    pub neighbors: &'a [u32],
}

/// A graph whose rows can be scanned in order, in memory or on disk.
pub trait Graph {
    /// Number of nodes.
    fn num_nodes(&self) -> usize;

    /// Number of in-neighbours of `node`.
    ///
    /// # Errors
    ///
    /// The disk fails, if degrees are read from it.
    fn degree(&self, node: u32) -> Result<u64>;

    /// Calls `row` with each node that has in-neighbours, and with these, in the order of nodes; a long row may come in
    /// several calls.
    ///
    /// # Errors
    ///
    /// The disk fails, or an in-neighbour does not exist.
    fn scan(&self, row: &mut dyn FnMut(u32, &[u32])) -> Result<()>;

    /// The types of nodes and edges, where the graph has any and its rows can be scanned by type.
    fn types(&self) -> Option<&Types> {
        None
    }

    /// Calls `row` with each sub-row of one edge type, in the order of nodes and edges; a long one may come in several calls.
    ///
    /// # Errors
    ///
    /// As [`Graph::scan`]; the graph has no types.
    fn scan_by_type(&self, row: &mut dyn FnMut(SubRow<'_>)) -> Result<()> {
        let _ = row;
        Err(Error::setting("graph", "it has no edge types to scan by; sample it by neighbours"))
    }

    /// The same graph as arrays that several threads can read at once; `None` where it can only be scanned.
    fn topology(&self) -> Option<&Topology> {
        None
    }
}

impl Graph for Topology {
    fn num_nodes(&self) -> usize {
        self.num_nodes()
    }

    fn degree(&self, node: u32) -> Result<u64> {
        Ok(self.degree(node))
    }

    fn scan(&self, row: &mut dyn FnMut(u32, &[u32])) -> Result<()> {
        for node in 0..self.num_nodes() as u32 {
            let neighbors = self.neighbors(node);
            if !neighbors.is_empty() {
                row(node, neighbors);
            }
        }
        Ok(())
    }

    fn types(&self) -> Option<&Types> {
        self.types().map(|types| &**types)
    }

    fn scan_by_type(&self, row: &mut dyn FnMut(SubRow<'_>)) -> Result<()> {
        for node in 0..self.num_nodes() as u32 {
            for (edge_type, edges) in self.sub_rows(node) {
                let neighbors = &self.indices()[edges];
                row(SubRow { node, edge_type: edge_type as u16, degree: neighbors.len() as u64, neighbors });
            }
        }
        Ok(())
    }

    fn topology(&self) -> Option<&Topology> {
        Some(self)
    }
}
