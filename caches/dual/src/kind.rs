//! What competes for the budget, and what it gets.

use std::fmt;

use morphgl_row_cache::NodeMap;

/// One kind of cache entries, one entry for each node: the feature rows, or the adjacency lists.
#[derive(Clone, Copy)]
pub struct Kind<'a> {
    /// Expected saving by caching the entry of a node: its accesses in an epoch times the seconds that a hit saves, or any
    /// other unit that all kinds share. An entry whose saving is not a positive finite number is never cached.
    pub saving: &'a dyn Fn(u32) -> f32,
    /// Bytes of the entry of a node, with what is kept beside it.
    pub bytes: &'a dyn Fn(u32) -> u64,
    /// Bytes of maps and flags, which are charged if any entry of this kind is cached.
    pub tables: u64,
}

impl fmt::Debug for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind(tables of {} bytes)", self.tables)
    }
}

impl Kind<'_> {
    /// Saving and bytes of the entry of `node`; `None` if caching it saves nothing.
    pub(crate) fn entry(&self, node: u32) -> Option<(f32, u64)> {
        let saving = (self.saving)(node);
        (saving > 0.0 && saving.is_finite()).then(|| (saving, (self.bytes)(node)))
    }
}

/// The part of the budget that a kind got: at least one entry.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheShare {
    /// The nodes whose entries are cached.
    pub map: NodeMap,
    /// Bytes of these entries and of the kind's tables.
    pub bytes: u64,
    /// Expected saving by these entries.
    pub saving: f64,
}
