//! Caches of rows that change while they are used, for access that drifts.

mod index;
mod order;
pub(crate) mod shard;
pub(crate) mod slots;

use std::fmt;

use shard::Shard;

/// Least number of rows of a shard: with fewer, the shards' policies would differ from that of the whole.
const ROWS_A_SHARD: usize = 64;

/// Which row makes room for a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Eviction {
    /// SIEVE (Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024, algorithm 1): rows stand in the order of insertion, a hand
    /// goes from the oldest to the newest and evicts the first row that was not hit since it passed. A hit sets a mark, and
    /// takes no lock. For skewed access that stays: where the hot set moves as a whole, it keeps what was hit before.
    #[default]
    Sieve,
    /// The least recently used row (Unified CPU-GPU protocol, §4.3), for hot sets that move. A hit takes a lock after the copy,
    /// to move the row.
    Lru,
}

/// Rows of fixed length of some nodes, which come and go; used by many threads at once.
///
/// No lock is held while a row is copied: rows have sequence locks. A reader that meets a writer misses.
pub struct DynamicCache {
    shards: Box<[Shard]>,
    eviction: Eviction,
    row_bytes: usize,
    /// Rows of a shard.
    capacity: usize,
}

impl fmt::Debug for DynamicCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, shards) = (self.max_rows(), self.shards.len());
        write!(f, "DynamicCache({:?}, up to {rows} rows of {} bytes in {shards} shards)", self.eviction, self.row_bytes)
    }
}

impl DynamicCache {
    /// A cache of as many rows of `row_bytes` bytes as `budget` bytes hold, with all that is kept beside them: some 28
    /// bytes per row, and what fills its last word of 8 bytes. A budget below one row gives a cache without rows.
    ///
    /// Nodes are divided among at most `shards` shards by a hash, each of them a cache of its own with at least 64 rows. One
    /// shard evicts exactly as the policy says; more of them let more threads insert at once.
    pub fn new(eviction: Eviction, row_bytes: usize, budget: u64, shards: usize) -> Self {
        let bytes = |capacity: usize| Shard::num_bytes_of(eviction, capacity, row_bytes);
        // The largest number of rows whose bytes fit the budget; slot numbers have 32 bits.
        let fits = |budget: u64| {
            let (mut low, mut high) = (0, u32::MAX as usize - 1);
            while low < high {
                let middle = low + (high - low).div_ceil(2);
                if bytes(middle) <= budget { low = middle } else { high = middle - 1 }
            }
            low
        };
        let shards = shards.min(fits(budget) / ROWS_A_SHARD).max(1);
        let capacity = fits(budget / shards as u64);
        let shards = if capacity == 0 { 0 } else { shards };
        let shards = (0..shards).map(|_| Shard::new(eviction, capacity, row_bytes)).collect();
        Self { shards, eviction, row_bytes, capacity }
    }

    /// Bytes of a cache of one shard with room for so many rows; of one row, the least budget of a cache that holds any.
    pub fn num_bytes_of(eviction: Eviction, rows: usize, row_bytes: usize) -> u64 {
        Shard::num_bytes_of(eviction, rows, row_bytes)
    }

    /// Maximum number of rows.
    pub fn max_rows(&self) -> usize {
        self.shards.len() * self.capacity
    }

    /// Bytes of rows, index and order, whether rows are there yet or not: at most the budget.
    pub fn num_bytes(&self) -> u64 {
        self.shards.len() as u64 * Shard::num_bytes_of(self.eviction, self.capacity, self.row_bytes)
    }

    #[inline]
    fn shard(&self, node: u32) -> Option<&Shard> {
        self.shards.get((((index::hash(node) >> 32) * self.shards.len() as u64) >> 32) as usize)
    }

    /// Copies the row of `node` to `out`, and returns whether it is cached; if not, `out` has any bytes.
    ///
    /// What is copied is one row that was inserted for `node`, whole. While other threads insert, a cached row may be missed.
    ///
    /// # Panics
    ///
    /// When `out` has not the length of a row.
    ///
    /// # Complexity
    ///
    /// O(1) expected, and the copy.
    #[inline]
    pub fn get_into(&self, node: u32, out: &mut [u8]) -> bool {
        assert_eq!(out.len(), self.row_bytes, "bytes of the output and of a row");
        self.shard(node).is_some_and(|shard| shard.get_into(node, out))
    }

    /// Caches the row of `node`, evicting another one if there is no room; a row cached for `node` before is replaced.
    /// Returns whether it is cached: not so in a cache without rows, or while other threads write all rows of the shard.
    ///
    /// # Panics
    ///
    /// When `row` has not the length of a row.
    ///
    /// # Complexity
    ///
    /// O(1) expected, and the copy; SIEVE's hand passes each row once per hit, amortised.
    pub fn insert(&self, node: u32, row: &[u8]) -> bool {
        assert_eq!(row.len(), self.row_bytes, "bytes of the row and of a row of the cache");
        self.shard(node).is_some_and(|shard| shard.insert(node, row))
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
            match self.get_into(node, &mut out[i * self.row_bytes..(i + 1) * self.row_bytes]) {
                true => hits += 1,
                false => missing(i, node),
            }
        }
        hits
    }
}
