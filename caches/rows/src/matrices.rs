//! A static cache of rows of several matrices.

use std::fmt;
use std::ops::Range;

use crate::NodeMap;

/// A matrix with a row for each of a range of nodes: the features of one node type, or of all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMatrix {
    /// The nodes, in the order of their rows.
    pub nodes: Range<u32>,
    /// Bytes of a row.
    pub row_bytes: usize,
}

/// Cached rows of some nodes, which are in matrices of rows of different length; immutable. One map has the nodes of all of them.
pub struct MatricesCache {
    map: NodeMap,
    // Invariant: ranges of nodes are disjoint and ascending, and have all nodes of the map.
    matrices: Vec<CachedMatrix>,
    rows: Vec<u8>,
}

struct CachedMatrix {
    matrix: NodeMatrix,
    /// Index in the map of the first cached node.
    first: usize,
    /// Where its row begins.
    start: usize,
}

impl fmt::Debug for MatricesCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MatricesCache({} rows of {} matrices, ", self.map.len(), self.matrices.len())?;
        write!(f, "{} bytes)", self.rows.len())
    }
}

impl MatricesCache {
    /// A cache of the rows of `map`'s nodes. `fill` writes those of each matrix, by its index, in the order of the nodes.
    ///
    /// # Errors
    ///
    /// Those of `fill`.
    ///
    /// # Panics
    ///
    /// When ranges of nodes overlap or descend, or a node of the map is in none.
    pub fn new<E>(
        map: NodeMap,
        matrices: Vec<NodeMatrix>,
        mut fill: impl FnMut(usize, &mut dyn Iterator<Item = u32>, &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let (mut first, mut start, mut end) = (0, 0, 0);
        let matrices: Vec<CachedMatrix> = matrices
            .into_iter()
            .map(|matrix| {
                assert!(end <= matrix.nodes.start, "nodes from {} on, after {end}", matrix.nodes.start);
                assert_eq!(map.rank(matrix.nodes.start), first, "nodes of no matrix are cached");
                let cached = CachedMatrix { first, start, matrix };
                end = cached.matrix.nodes.end;
                let next = map.rank(end);
                start += (next - first) * cached.matrix.row_bytes;
                first = next;
                cached
            })
            .collect();
        assert_eq!(first, map.len(), "nodes of no matrix are cached");
        let mut rows = vec![0; start];
        let mut rest = &mut rows[..];
        for (index, CachedMatrix { matrix, first, .. }) in matrices.iter().enumerate() {
            let count = map.rank(matrix.nodes.end) - first;
            let own = rest.split_off_mut(..count * matrix.row_bytes).expect("the sum of all matrices");
            if count > 0 {
                fill(index, &mut map.nodes().filter(|node| matrix.nodes.contains(node)), own)?;
            }
        }
        Ok(Self { map, matrices, rows })
    }

    /// Bytes of map and rows.
    pub fn num_bytes(&self) -> u64 {
        self.map.num_bytes() + self.rows.len() as u64
    }

    /// The nodes whose rows are cached.
    pub fn map(&self) -> &NodeMap {
        &self.map
    }

    /// Number of rows of a matrix that are cached, and their bytes.
    ///
    /// # Panics
    ///
    /// When there is no such matrix. So do the other methods.
    pub fn cached(&self, matrix: usize) -> (usize, u64) {
        let CachedMatrix { matrix, first, .. } = &self.matrices[matrix];
        let count = self.map.rank(matrix.nodes.end) - first;
        (count, (count * matrix.row_bytes) as u64)
    }

    /// The row of a node of a matrix, if it is cached.
    #[inline]
    pub fn get(&self, matrix: usize, node: u32) -> Option<&[u8]> {
        let CachedMatrix { matrix: NodeMatrix { nodes, row_bytes }, first, start } = &self.matrices[matrix];
        debug_assert!(nodes.contains(&node), "node {node} is not of the matrix of {nodes:?}");
        let at = start + (self.map.get(node)? - first) * row_bytes;
        Some(&self.rows[at..at + row_bytes])
    }

    /// Copies the cached rows of `nodes` of a matrix to their positions in `out`, of one row per node; calls `missing` with index and
    /// node of the other ones. Returns the number of cache hits.
    pub fn gather(&self, matrix: usize, nodes: &[u32], out: &mut [u8], mut missing: impl FnMut(usize, u32)) -> usize {
        let row_bytes = self.matrices[matrix].matrix.row_bytes;
        assert_eq!(out.len(), nodes.len() * row_bytes, "bytes of the output and of the rows");
        let mut hits = 0;
        for (i, &node) in nodes.iter().enumerate() {
            match self.get(matrix, node) {
                Some(row) => {
                    out[i * row_bytes..(i + 1) * row_bytes].copy_from_slice(row);
                    hits += 1;
                }
                None => missing(i, node),
            }
        }
        hits
    }
}
