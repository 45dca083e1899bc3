//! In-neighbours of a mapped file that was changed after the graph was checked.

use std::sync::atomic::{AtomicU64, Ordering};

use morphgl_graph_store::Topology;
use morphgl_registry::{BatchId, Error, Result};

/// Checks in-neighbours as they are read from a mapped file, which may be changed after the graph was checked as a whole.
///
/// Threads share it. Neighbours that do not exist are replaced, so that nothing is read beyond the graph's arrays, and
/// [`NeighborCheck::result`] refuses the mini-batch in the end.
#[derive(Debug)]
pub struct NeighborCheck<'a> {
    topology: &'a Topology,
    num_nodes: u32,
    /// A neighbour that does not exist; [`NONE`] if all exist.
    found: AtomicU64,
}

/// No node.
const NONE: u64 = u64::MAX;

impl<'a> NeighborCheck<'a> {
    /// The check of a mini-batch; `None` for a graph in memory, which does not change.
    pub fn new(topology: &'a Topology) -> Option<Self> {
        let check = || Self { topology, num_nodes: topology.num_nodes() as u32, found: AtomicU64::new(NONE) };
        topology.indices().is_mapped().then(check)
    }

    /// Replaces `nodes`, as they were read, by node 0 if any of them does not exist.
    pub fn nodes(&self, nodes: &mut [u32]) {
        if let Some(largest) = nodes.iter().copied().max().filter(|&largest| largest >= self.num_nodes) {
            self.note(largest);
            nodes.fill(0);
        }
    }

    /// The node, as it was read, or node 0 in place of one that does not exist.
    #[inline]
    pub fn node(&self, node: u32) -> u32 {
        if node < self.num_nodes {
            return node;
        }
        self.note(node);
        0
    }

    #[cold]
    fn note(&self, node: u32) {
        self.found.store(node.into(), Ordering::Relaxed);
    }

    /// Ends the check of the mini-batch `id`.
    ///
    /// # Errors
    ///
    /// A neighbour does not exist: names it, the file, and the cure.
    pub fn result(&self, id: BatchId) -> Result<()> {
        match self.found.load(Ordering::Relaxed) {
            NONE => Ok(()),
            node => Err(Error::failed(id, self.topology.unknown_neighbor(node as u32))),
        }
    }
}
