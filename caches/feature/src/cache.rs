//! Rows of the nodes held.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::NodeMap;

/// Cache hits and misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hits {
    /// Requested rows in the cache.
    pub hits: u64,
    /// Requested rows not in the cache.
    pub misses: u64,
}

impl Hits {
    /// Hit ratio; NaN without a request.
    pub fn rate(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses) as f64
    }
}

/// Rows of fixed length, of some nodes; what it holds does not change.
pub struct FeatureCache {
    map: NodeMap,
    row_bytes: usize,
    // Invariant: `map.len() * row_bytes` bytes, in the order of the map.
    rows: Vec<u8>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl fmt::Debug for FeatureCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FeatureCache({} rows of {} bytes)", self.map.len(), self.row_bytes)
    }
}

impl FeatureCache {
    /// A cache of the rows of `map`'s nodes, which `fill` writes, one after another in ascending order of their nodes.
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
        Ok(Self { map, row_bytes, rows, hits: AtomicU64::new(0), misses: AtomicU64::new(0) })
    }

    /// Bytes it takes: map and rows.
    pub fn num_bytes(&self) -> u64 {
        self.map.num_bytes() + self.rows.len() as u64
    }

    /// The nodes whose rows are held.
    pub fn map(&self) -> &NodeMap {
        &self.map
    }

    /// The row of `node`, where it is held.
    #[inline]
    pub fn get(&self, node: u32) -> Option<&[u8]> {
        let at = self.map.get(node)? * self.row_bytes;
        Some(&self.rows[at..at + self.row_bytes])
    }

    /// Copies the rows of `nodes` that are held to their places in `out`, as many rows as nodes; calls `missing` with the
    /// index and node of each other one.
    ///
    /// # Panics
    ///
    /// When `out` is not as long as the rows together.
    pub fn gather(&self, nodes: &[u32], out: &mut [u8], mut missing: impl FnMut(usize, u32)) {
        assert_eq!(out.len(), nodes.len() * self.row_bytes, "room for the rows, and their bytes");
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
        self.hits.fetch_add(hits, Ordering::Relaxed);
        self.misses.fetch_add(nodes.len() as u64 - hits, Ordering::Relaxed);
    }

    /// Hits and misses of [`FeatureCache::gather`].
    pub fn hits(&self) -> Hits {
        Hits { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests;
