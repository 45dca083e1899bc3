//! The graph as policies read it.

use morphgl_graph_store::Topology;
use morphgl_registry::Result;

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

    fn topology(&self) -> Option<&Topology> {
        Some(self)
    }
}
