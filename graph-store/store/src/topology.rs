//! Compressed sparse columns: for each node, the list of its in-neighbours.

use std::path::Path;

use morphgl_platform::splitmix64;
use rayon::prelude::*;

use crate::{Access, Array, Error, unknown_neighbor};

/// A graph in CSC form. Row `v` lists the source nodes of the edges that end in `v`.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    // Invariant: `indptr` starts at 0, never decreases and ends at `indices.len()`; every index is below `num_nodes`;
    // `weights`, where there are any, are as many as the indices, finite and not negative. Checked by `new`.
    indptr: Array<u64>,
    indices: Array<u32>,
    weights: Option<Array<f32>>,
    // Invariant: a permutation of the nodes. Checked by `with_draw_keys`.
    draw_keys: Option<Array<u32>>,
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
        let topology = Self::from_checked(indptr.into(), indices.into(), weights);
        crate::check::topology(&topology.indptr, &topology.indices, topology.weights.as_deref())
            .map_err(|fault| format!("{}, element {}: {}", fault.array, fault.element, fault.what))?;
        Ok(topology)
    }

    /// Builds a graph from checked arrays.
    pub(crate) fn from_checked(indptr: Array<u64>, indices: Array<u32>, weights: Option<Array<f32>>) -> Self {
        Self { indptr, indices, weights, draw_keys: None }
    }

    /// The same graph with draw keys: `keys[v]` is the number that node `v` had before the graph was reordered, which
    /// samplers use in place of `v` in the counters of their random numbers. So the mini-batches of a reordered graph are
    /// those of the original one, but for the numbers of the nodes.
    ///
    /// # Errors
    ///
    /// A description of the first key that makes them no permutation of the nodes.
    ///
    /// # Complexity
    ///
    /// O(nodes) time, one bit of memory per node.
    pub fn with_draw_keys(self, keys: impl Into<Array<u32>>) -> Result<Self, String> {
        let keys = keys.into();
        crate::check::permutation("draw_keys", &keys, self.num_nodes())
            .map_err(|fault| format!("{}, element {}: {}", fault.array, fault.element, fault.what))?;
        Ok(self.with_checked_draw_keys(Some(keys)))
    }

    /// Sets keys that were checked.
    pub(crate) fn with_checked_draw_keys(self, draw_keys: Option<Array<u32>>) -> Self {
        Self { draw_keys, ..self }
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

    /// Whether every edge has its reverse, as often as itself; weights do not matter.
    ///
    /// Edges and reverses are compared by sums of two 64-bit hashes of them: another graph passes with a probability of 2^-128.
    ///
    /// # Complexity
    ///
    /// O(nodes + edges) time on the threads of the current rayon pool, no memory.
    pub fn is_symmetric(&self) -> bool {
        let row = |v: u32| {
            self.neighbors(v).iter().filter(|&&u| u != v).fold([0u64; 2], |sums, &u| {
                let (edge, reverse) = (hashes(u, v), hashes(v, u));
                std::array::from_fn(|i| sums[i].wrapping_add(edge[i]).wrapping_sub(reverse[i]))
            })
        };
        let rows = (0..self.num_nodes() as u32).into_par_iter().with_min_len(1 << 10).map(row);
        let add = |a: [u64; 2], b: [u64; 2]| [a[0].wrapping_add(b[0]), a[1].wrapping_add(b[1])];
        rows.reduce(|| [0; 2], add) == [0; 2]
    }

    /// Draw keys of the nodes, where the graph was reordered: see [`Topology::with_draw_keys`].
    pub fn draw_keys(&self) -> Option<&Array<u32>> {
        self.draw_keys.as_ref()
    }

    /// The number that stands for `node` in the counters of random numbers: its draw key, or else itself.
    #[inline]
    pub fn draw_key(&self, node: u32) -> u32 {
        self.draw_keys.as_ref().map_or(node, |keys| keys[node as usize])
    }

    /// Error for an in-neighbour `node` outside the graph: only possible where `indices` is a mapped file that was changed after the
    /// graph was checked.
    #[cold]
    pub fn unknown_neighbor(&self, node: u32) -> Error {
        unknown_neighbor(self.indices.file().unwrap_or(Path::new("indices")), node, self.num_nodes())
    }

    /// Advises the system how mapped arrays will be read.
    pub fn advise(&self, access: Access) {
        self.indptr.advise(access);
        self.indices.advise(access);
        if let Some(weights) = &self.weights {
            weights.advise(access);
        }
        if let Some(keys) = &self.draw_keys {
            keys.advise(access);
        }
    }
}

/// Two hashes of an edge: the finalizer of SplitMix64 (Steele et al., OOPSLA 2014, Fig. 13), from two streams.
fn hashes(source: u32, target: u32) -> [u64; 2] {
    let edge = u64::from(source) << 32 | u64::from(target);
    [0x9E37_79B9_7F4A_7C15u64, 0xD1B5_4A32_D192_ED03]
        .map(|stream| splitmix64(edge.wrapping_add(1).wrapping_mul(stream)))
}
