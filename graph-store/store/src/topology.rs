//! Compressed sparse columns: for each node, the list of its in-neighbours.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use morphgl_platform::splitmix64;
use rayon::prelude::*;

use crate::check::Fault;
use crate::{Access, Array, Error, Types, unknown_neighbor};

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
    // Of typed graphs: the types, and the type of each edge in the order of `indices`. Checked by `with_types`.
    types: Option<(Arc<Types>, Array<u16>)>,
    // Times of nodes and of edges, as many as there are nodes and edges. Checked by `with_times`.
    edge_ids: Option<Array<u32>>,
    node_times: Option<Array<i64>>,
    edge_times: Option<Array<i64>>,
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
            .map_err(Fault::describe)?;
        Ok(topology)
    }

    /// Builds a graph from checked arrays.
    pub(crate) fn from_checked(indptr: Array<u64>, indices: Array<u32>, weights: Option<Array<f32>>) -> Self {
        Self {
            indptr,
            indices,
            weights,
            draw_keys: None,
            types: None,
            edge_ids: None,
            node_times: None,
            edge_times: None,
        }
    }

    /// The same graph with types: `edge_types[e]` is the number of the type of edge `e`, in the order of `indices`; the edges of a row
    /// are sorted by it.
    ///
    /// # Errors
    ///
    /// A description of the first edge whose type does not exist, is out of order, or is of other node types.
    ///
    /// # Complexity
    ///
    /// O(nodes + edges log node types) time on the threads of the current rayon pool.
    pub fn with_types(self, types: Types, edge_types: impl Into<Array<u16>>) -> Result<Self, String> {
        let edge_types = edge_types.into();
        crate::check::edge_types(&types, &self.indptr, &self.indices, &edge_types).map_err(Fault::describe)?;
        Ok(self.with_checked_types(types, edge_types))
    }

    /// Sets types that were checked.
    pub(crate) fn with_checked_types(self, types: Types, edge_types: Array<u16>) -> Self {
        Self { types: Some((Arc::new(types), edge_types)), ..self }
    }

    /// The same graph with times of its nodes, its edges, or both, in any unit.
    ///
    /// # Errors
    ///
    /// Other numbers of times than of nodes or edges.
    pub fn with_times(self, nodes: Option<Array<i64>>, edges: Option<Array<i64>>) -> Result<Self, String> {
        let wrong = |of: &str, times: usize, count: usize| Err(format!("{times} times for {count} {of}"));
        match (&nodes, &edges) {
            (Some(times), _) if times.len() != self.num_nodes() => wrong("nodes", times.len(), self.num_nodes()),
            (_, Some(times)) if times.len() != self.indices.len() => wrong("edges", times.len(), self.indices.len()),
            _ => Ok(self.with_checked_times(nodes, edges)),
        }
    }

    /// Sets times of checked lengths.
    pub(crate) fn with_checked_times(self, node_times: Option<Array<i64>>, edge_times: Option<Array<i64>>) -> Self {
        Self { node_times, edge_times, ..self }
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
        crate::check::permutation("draw_keys", &keys, self.num_nodes()).map_err(Fault::describe)?;
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
    pub fn edge_range(&self, node: u32) -> Range<usize> {
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

    /// The row of each edge in the features of the graph's edges, or in those of its edge type, in the order of `indices`; where edges
    /// have features. Edges may share a row.
    pub fn edge_ids(&self) -> Option<&Array<u32>> {
        self.edge_ids.as_ref()
    }

    /// The graph with the rows of its edges' features, in the order of `indices`; none takes them away.
    ///
    /// # Errors
    ///
    /// Another number of edges.
    pub fn with_edge_ids(self, ids: Option<Array<u32>>) -> Result<Self, String> {
        match &ids {
            Some(ids) if ids.len() != self.indices.len() => {
                Err(format!("{} ids for {} edges", ids.len(), self.indices.len()))
            }
            _ => Ok(self.with_checked_edge_ids(ids)),
        }
    }

    pub(crate) fn with_checked_edge_ids(self, edge_ids: Option<Array<u32>>) -> Self {
        Self { edge_ids, ..self }
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

    /// Types of nodes and edges, where the graph has any.
    pub fn types(&self) -> Option<&Arc<Types>> {
        self.types.as_ref().map(|(types, _)| types)
    }

    /// Number of the type of each edge in the order of `indices`, where the graph has types.
    pub fn edge_types(&self) -> Option<&Array<u16>> {
        self.types.as_ref().map(|(_, edge_types)| edge_types)
    }

    /// The edges of `node`'s row by type: number of the edge type, and positions of its edges; types without edges are left out. The
    /// whole row as type 0 where the graph has no types.
    pub fn sub_rows(&self, node: u32) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        let row = self.edge_range(node);
        let mut start = row.start;
        let edge_types = self.edge_types();
        std::iter::from_fn(move || {
            let rest = start..row.end;
            let Some(edge_types) = edge_types else {
                start = row.end;
                return (!rest.is_empty()).then_some((0, rest));
            };
            let of = *edge_types[rest.clone()].first()?;
            let end = start + edge_types[rest].partition_point(|&edge_type| edge_type == of);
            Some((usize::from(of), std::mem::replace(&mut start, end)..end))
        })
    }

    /// Time of each node, where nodes have times.
    pub fn node_times(&self) -> Option<&Array<i64>> {
        self.node_times.as_ref()
    }

    /// Time of each edge in the order of `indices`, where edges have times.
    pub fn edge_times(&self) -> Option<&Array<i64>> {
        self.edge_times.as_ref()
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
        if let Some((_, edge_types)) = &self.types {
            edge_types.advise(access);
        }
        if let Some(ids) = &self.edge_ids {
            ids.advise(access);
        }
        [&self.node_times, &self.edge_times].into_iter().flatten().for_each(|times| times.advise(access));
    }
}

/// Two hashes of an edge: the finalizer of SplitMix64 (Steele et al., OOPSLA 2014, Fig. 13), from two streams.
fn hashes(source: u32, target: u32) -> [u64; 2] {
    let edge = u64::from(source) << 32 | u64::from(target);
    [0x9E37_79B9_7F4A_7C15u64, 0xD1B5_4A32_D192_ED03]
        .map(|stream| splitmix64(edge.wrapping_add(1).wrapping_mul(stream)))
}
