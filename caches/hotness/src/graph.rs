//! What a policy looks at of a graph.

use morphgl_graph_store::Topology;
use morphgl_registry::Result;

/// A graph whose rows can be passed over one after another, wherever they lie.
pub trait Graph {
    /// Number of nodes.
    fn num_nodes(&self) -> usize;

    /// Number of in-neighbours of `node`.
    ///
    /// # Errors
    ///
    /// The disk fails, where degrees lie there.
    fn degree(&self, node: u32) -> Result<u64>;

    /// Calls `row` with every node that has in-neighbours, in order, and these; long rows may come in pieces.
    ///
    /// # Errors
    ///
    /// The disk fails, or an in-neighbour does not exist.
    fn scan(&self, row: &mut dyn FnMut(u32, &[u32])) -> Result<()>;
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
}
