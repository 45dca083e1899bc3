//! A static cache of feature rows.

use std::fmt;

use crate::NodeMap;

/// Cached rows of fixed length of some nodes; immutable.
pub struct FeatureCache {
    map: NodeMap,
    row_bytes: usize,
    // Invariant: `map.len() * row_bytes` bytes, in the order of the map.
    rows: Vec<u8>,
}

impl fmt::Debug for FeatureCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FeatureCache({} rows of {} bytes)", self.map.len(), self.row_bytes)
    }
}

impl FeatureCache {
    /// A cache of the rows of `map`'s nodes, which `fill` writes in ascending order of their nodes.
    ///
    /// # Errors
    ///
    /// Those of `fill`.
    pub fn new<E>(
        map: NodeMap,
        row_bytes: usize,
        fill: impl FnOnce(&NodeMap, &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut rows = vec![0; map.len() * row_bytes];
        fill(&map, &mut rows)?;
        Ok(Self { map, row_bytes, rows })
    }

    /// Bytes of map and rows.
    pub fn num_bytes(&self) -> u64 {
        self.map.num_bytes() + self.rows.len() as u64
    }

    /// The nodes whose rows are cached.
    pub fn map(&self) -> &NodeMap {
        &self.map
    }

    /// The row of `node`, if it is cached.
    #[inline]
    pub fn get(&self, node: u32) -> Option<&[u8]> {
        let at = self.map.get(node)? * self.row_bytes;
        Some(&self.rows[at..at + self.row_bytes])
    }

    /// Copies the cached rows of `nodes` to their positions in `out`, of one row per node; calls `missing` with index and
    /// node of the other ones. Returns the number of cache hits.
    ///
    /// # Panics
    ///
    /// When `out` is not as long as the rows together.
    pub fn gather(&self, nodes: &[u32], out: &mut [u8], mut missing: impl FnMut(usize, u32)) -> usize {
        assert_eq!(out.len(), nodes.len() * self.row_bytes, "bytes of the output and of the rows");
        let mut hits = 0;
        for (i, &node) in nodes.iter().enumerate() {
            match self.get(node) {
                Some(row) => {
                    out[i * self.row_bytes..(i + 1) * self.row_bytes].copy_from_slice(row);
                    hits += 1;
                }
                None => missing(i, node),
            }
        }
        hits
    }
}

#[cfg(test)]
mod tests;
