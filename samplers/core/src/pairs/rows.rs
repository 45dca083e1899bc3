//! Rows of single nodes, wherever the graph is stored.

use morphgl_graph_store::Topology;
use morphgl_platform::prefetch;
use morphgl_registry::Result;
use rayon::prelude::*;

/// Prefetch distance in rows.
const AHEAD: usize = 8;

/// Reads whole CSR rows.
pub trait ReadRows {
    /// Whether every row is known to be in ascending order.
    fn are_sorted(&self) -> bool;

    /// Calls `row` for each of `nodes`, in order, with its index in `nodes`, the position of its first edge in the graph's
    /// indices, and its in-neighbours, which are read from a mapped file without a check.
    ///
    /// # Errors
    ///
    /// The graph cannot be read.
    fn read_rows(&mut self, nodes: &[u32], row: &mut dyn FnMut(usize, u64, &[u32])) -> Result<()>;
}

/// The rows of a graph in host memory.
#[derive(Debug, Clone, Copy)]
pub struct HostRows<'a> {
    topology: &'a Topology,
    sorted: bool,
}

impl<'a> HostRows<'a> {
    /// The rows of `topology`, which are in ascending order if they are `sorted` ([`HostRows::check_sorted`]).
    pub fn new(topology: &'a Topology, sorted: bool) -> Self {
        Self { topology, sorted }
    }

    /// Whether all rows are in ascending order.
    ///
    /// # Complexity
    ///
    /// O(nodes + edges), on the threads of the current rayon pool.
    pub fn check_sorted(topology: &Topology) -> bool {
        let (indptr, indices): (&[u64], &[u32]) = (topology.indptr(), topology.indices());
        indptr.par_windows(2).with_min_len(1 << 10).all(|row| indices[row[0] as usize..row[1] as usize].is_sorted())
    }
}

impl ReadRows for HostRows<'_> {
    fn are_sorted(&self) -> bool {
        self.sorted
    }

    fn read_rows(&mut self, nodes: &[u32], row: &mut dyn FnMut(usize, u64, &[u32])) -> Result<()> {
        let (indptr, indices): (&[u64], &[u32]) = (self.topology.indptr(), self.topology.indices());
        for (i, &node) in nodes.iter().enumerate() {
            if let Some(&later) = nodes.get(i + 2 * AHEAD) {
                prefetch(indptr, later as usize);
            }
            if let Some(&later) = nodes.get(i + AHEAD) {
                let edges = self.topology.edge_range(later);
                let quarters = if self.sorted { [1, 2, 3] } else { [0; 3] };
                // A search begins in the middle, and goes on at a quarter.
                quarters.iter().for_each(|quarter| prefetch(indices, edges.start + edges.len() * quarter / 4));
            }
            let edges = self.topology.edge_range(node);
            row(i, edges.start as u64, &indices[edges]);
        }
        Ok(())
    }
}
