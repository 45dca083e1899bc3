//! The allocator for datasets reordered by hotness: prefixes of the nodes.

use morphgl_row_cache::NodeMap;

use crate::kind::{CacheShare, Kind};

/// Divides `budget` bytes between the entries of the first nodes by one kind and those of the first nodes by the other, as
/// reordered datasets hold them: the two prefixes that save most. Look-ups then need no map, so `tables` are 0 or little.
///
/// # Complexity
///
/// Exact, in two passes over the nodes: while one prefix shrinks the other one grows.
pub fn allocate_prefixes(num_nodes: u32, kinds: [Kind<'_>; 2], budget: u64) -> [Option<CacheShare>; 2] {
    let [mut first, mut second] = kinds.map(|kind| Prefix { kind, len: 0, bytes: 0, saving: 0.0 });
    first.grow(num_nodes, budget);
    let (mut best, mut most) = ([0, 0], 0.0);
    loop {
        second.grow(num_nodes, budget - first.cost());
        let saving = first.saving + second.saving;
        if saving >= most {
            (best, most) = ([first.len, second.len], saving);
        }
        if first.len == 0 {
            break;
        }
        first.shrink();
    }
    [kinds[0].prefix(best[0]), kinds[1].prefix(best[1])]
}

/// The entries of the first nodes.
struct Prefix<'a> {
    kind: Kind<'a>,
    len: u32,
    /// Bytes without tables.
    bytes: u64,
    saving: f64,
}

impl Prefix<'_> {
    fn cost(&self) -> u64 {
        if self.len == 0 { 0 } else { self.kind.tables + self.bytes }
    }

    /// Saving and bytes of an entry, which a prefix holds whether it saves anything or not.
    fn entry(&self, node: u32) -> (f64, u64) {
        (self.kind.entry(node).map_or(0.0, |(saving, _)| saving.into()), (self.kind.bytes)(node))
    }

    /// Extends the prefix as long as it costs at most `budget` bytes.
    fn grow(&mut self, num_nodes: u32, budget: u64) {
        while self.len < num_nodes {
            let (saving, bytes) = self.entry(self.len);
            if self.kind.tables.saturating_add(self.bytes).saturating_add(bytes) > budget {
                break;
            }
            self.len += 1;
            self.bytes += bytes;
            self.saving += saving;
        }
    }

    fn shrink(&mut self) {
        self.len -= 1;
        let (saving, bytes) = self.entry(self.len);
        self.bytes -= bytes;
        self.saving -= saving;
    }
}

impl Kind<'_> {
    /// The share of the first `len` nodes, less those at its end that save nothing.
    fn prefix(&self, len: u32) -> Option<CacheShare> {
        let len = (0..len).rev().find(|&node| self.entry(node).is_some())? + 1;
        let bytes = self.tables + (0..len).map(self.bytes).sum::<u64>();
        let saving = (0..len).filter_map(|node| self.entry(node)).map(|(saving, _)| f64::from(saving)).sum();
        Some(CacheShare { map: NodeMap::prefix(len), bytes, saving })
    }
}
