//! A static cache of adjacency lists.

use std::fmt;

use crate::NodeMap;

/// Cached adjacency lists of some nodes, in CSR form; immutable.
pub struct AdjacencyCache {
    map: NodeMap,
    // Invariant: one more than cached nodes, ascending, and the last is the number of `neighbors`.
    starts: Vec<u32>,
    neighbors: Vec<u32>,
}

impl fmt::Debug for AdjacencyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdjacencyCache({} lists, {} neighbours)", self.map.len(), self.neighbors.len())
    }
}

impl AdjacencyCache {
    /// Bytes of a neighbour.
    pub const BYTES_A_NEIGHBOR: u64 = 4;
    /// Bytes of a list besides its neighbours: where it begins.
    pub const BYTES_A_LIST: u64 = 4;
    /// Bytes of a cache besides its map and its lists: where the last list ends.
    pub const BYTES: u64 = 4;
    /// Maximum number of neighbours of all lists together.
    pub const MAX_NEIGHBORS: u64 = u32::MAX as u64;

    /// A cache of the lists of `map`'s nodes. `degree` is the number of a node's neighbours, asked once for each node in
    /// ascending order; `fill` writes the lists one after another, in the same order.
    ///
    /// # Errors
    ///
    /// Those of `fill`.
    ///
    /// # Panics
    ///
    /// When the lists have more than [`Self::MAX_NEIGHBORS`] neighbours: a budget of four times as many bytes prevents it.
    pub fn new<E>(
        map: NodeMap,
        mut degree: impl FnMut(u32) -> u64,
        fill: impl FnOnce(&NodeMap, &mut [u32]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut starts = Vec::with_capacity(map.len() + 1);
        let mut end = 0u64;
        starts.push(0);
        for node in map.nodes() {
            end += degree(node);
            let start = u32::try_from(end);
            starts.push(start.unwrap_or_else(|_| panic!("{end} neighbours are more than a cache of 2^32 - 1 holds")));
        }
        let mut neighbors = vec![0; end as usize];
        fill(&map, &mut neighbors)?;
        Ok(Self { map, starts, neighbors })
    }

    /// A cache of the lists of the first nodes of a graph reordered by hotness: the front of its arrays `indptr` and
    /// `indices` (DUCATI, SIGMOD'23), with look-ups by comparison.
    ///
    /// # Panics
    ///
    /// When the graph has fewer than `len` nodes, or these more than [`Self::MAX_NEIGHBORS`] neighbours.
    pub fn prefix(len: u32, indptr: &[u64], indices: &[u32]) -> Self {
        let degree = |node: u32| indptr[node as usize + 1] - indptr[node as usize];
        let filled = Self::new(NodeMap::prefix(len), degree, |_, neighbors| {
            neighbors.copy_from_slice(&indices[..neighbors.len()]);
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(cache) = filled;
        cache
    }

    /// The neighbours of `node`, if its list is cached.
    #[inline]
    pub fn get(&self, node: u32) -> Option<&[u32]> {
        let list = self.map.get(node)?;
        Some(&self.neighbors[self.starts[list] as usize..self.starts[list + 1] as usize])
    }

    /// The nodes whose lists are cached.
    pub fn map(&self) -> &NodeMap {
        &self.map
    }

    /// Number of neighbours of all cached lists.
    pub fn num_neighbors(&self) -> usize {
        self.neighbors.len()
    }

    /// Bytes of map, offsets and neighbours.
    pub fn num_bytes(&self) -> u64 {
        let lists = Self::BYTES_A_LIST * self.map.len() as u64 + Self::BYTES_A_NEIGHBOR * self.neighbors.len() as u64;
        self.map.num_bytes() + Self::BYTES + lists
    }
}
