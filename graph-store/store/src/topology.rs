//! Compressed sparse columns: for each node, the list of its in-neighbours.

use crate::{Access, Array};

/// A graph in CSC form. Row `v` lists the source nodes of the edges that end in `v`.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    // Invariant: `indptr` starts at 0, never decreases and ends at `indices.len()`; every index is below `num_nodes`;
    // `weights`, where there are any, are as many as the indices, finite and not negative. Checked by `new`.
    indptr: Array<u64>,
    indices: Array<u32>,
    weights: Option<Array<f32>>,
}

impl Topology {
    /// Builds a graph from its arrays, after checking all of them in parallel.
    ///
    /// # Errors
    ///
    /// A description of the invalid array and element.
    ///
    /// # Complexity
    ///
    /// O(nodes + edges) time, one pass at memory speed.
    pub fn new(
        indptr: impl Into<Array<u64>>,
        indices: impl Into<Array<u32>>,
        weights: Option<Array<f32>>,
    ) -> Result<Self, String> {
        let topology = Self { indptr: indptr.into(), indices: indices.into(), weights };
        crate::check::topology(&topology.indptr, &topology.indices, topology.weights.as_deref())
            .map_err(|fault| format!("{}, element {}: {}", fault.array, fault.element, fault.what))?;
        Ok(topology)
    }

    /// Builds a graph from checked arrays.
    pub(crate) fn from_checked(indptr: Array<u64>, indices: Array<u32>, weights: Option<Array<f32>>) -> Self {
        Self { indptr, indices, weights }
    }

    /// Number of nodes.
    pub fn num_nodes(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of directed edges.
    pub fn num_edges(&self) -> u64 {
        self.indices.len() as u64
    }

    /// Number of in-neighbours of `node`.
    pub fn degree(&self, node: u32) -> u64 {
        self.edge_range(node).len() as u64
    }

    /// The CSR row of `node`: positions of its in-edges.
    pub fn edge_range(&self, node: u32) -> std::ops::Range<usize> {
        let v = node as usize;
        self.indptr[v] as usize..self.indptr[v + 1] as usize
    }

    /// In-neighbours of `node`, as stored.
    pub fn neighbors(&self, node: u32) -> &[u32] {
        &self.indices[self.edge_range(node)]
    }

    /// Row offsets, `num_nodes + 1` of them.
    pub fn indptr(&self) -> &Array<u64> {
        &self.indptr
    }

    /// Source nodes, row after row.
    pub fn indices(&self) -> &Array<u32> {
        &self.indices
    }

    /// Edge weights in the order of `indices`, where the graph has any.
    pub fn weights(&self) -> Option<&Array<f32>> {
        self.weights.as_ref()
    }

    /// Advises the system how mapped arrays will be read.
    pub fn advise(&self, access: Access) {
        self.indptr.advise(access);
        self.indices.advise(access);
        if let Some(weights) = &self.weights {
            weights.advise(access);
        }
    }
}
