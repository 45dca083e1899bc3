//! Caches of feature rows: static, or of rows that come and go.

use morphgl_hotness::CachePolicy;
use morphgl_platform::direct::Fetch;
use morphgl_row_cache::{DynamicCache, Eviction, MatricesCache};

/// How rows are evicted from a cache that changes; `None` for the other ones.
pub(crate) fn eviction(policy: CachePolicy) -> Option<Eviction> {
    match policy {
        CachePolicy::Lru => Some(Eviction::Lru),
        CachePolicy::Sieve => Some(Eviction::Sieve),
        CachePolicy::Auto | CachePolicy::None | CachePolicy::By(_) => None,
    }
}

/// Shards of a cache that workers change at once.
const SHARDS: usize = 16;

/// Cached feature rows.
#[derive(Debug)]
pub(crate) enum CachedRows {
    /// Chosen before the first mini-batch.
    Static(MatricesCache),
    /// Every row of the only matrix that is read, until others take its place.
    Dynamic(DynamicCache),
}

impl CachedRows {
    /// A cache that changes, of at most `budget` bytes, and no more than `num_rows` rows of `row_bytes` bytes take.
    pub(crate) fn dynamic(eviction: Eviction, (num_rows, row_bytes): (usize, usize), budget: u64) -> Self {
        // A hash does not fill the shards equally: with an eighth and 64 rows per shard more, all rows have room.
        let all = DynamicCache::num_bytes_of(eviction, num_rows + num_rows / 8 + 64 * SHARDS, row_bytes);
        Self::Dynamic(DynamicCache::new(eviction, row_bytes, budget.min(all), SHARDS))
    }

    /// Copies the cached rows of `nodes` of a matrix to their positions in `out`; calls `missing` with index and node of the other ones.
    /// Returns the number of hits.
    pub(crate) fn gather(
        &self,
        matrix: usize,
        nodes: &[u32],
        out: &mut [u8],
        missing: impl FnMut(usize, u32),
    ) -> usize {
        match self {
            Self::Static(cache) => cache.gather(matrix, nodes, out, missing),
            Self::Dynamic(cache) => cache.gather(nodes, out, missing),
        }
    }

    /// Caches rows that were missing, where the cache changes: `fetches` were read to `out`, of rows of `row_bytes` bytes of nodes from
    /// `first` on.
    pub(crate) fn insert(&self, fetches: &[Fetch], out: &[u8], first: u32, row_bytes: usize) {
        let Self::Dynamic(cache) = self else { return };
        for &Fetch { element, to } in fetches {
            // Not cached while other workers write every row of the shard: then the next mini-batch reads it from disk again.
            cache.insert(first + element as u32, &out[to as usize * row_bytes..][..row_bytes]);
        }
    }

    /// Bytes of rows and tables.
    pub(crate) fn num_bytes(&self) -> u64 {
        match self {
            Self::Static(cache) => cache.num_bytes(),
            Self::Dynamic(cache) => cache.num_bytes(),
        }
    }

    /// Number of rows there is room for.
    pub(crate) fn max_rows(&self) -> usize {
        match self {
            Self::Static(cache) => cache.map().len(),
            Self::Dynamic(cache) => cache.max_rows(),
        }
    }
}
