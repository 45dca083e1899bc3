//! Greedy knapsack: items by benefit per byte.

/// Low bits of a benefit that are ignored: items that differ by less than a hundredth are equal.
const SHIFT: u32 = 16;

/// One kind of cache item, one for each node.
pub struct Kind<'a> {
    /// Benefit of caching the item, by node; with 0 it is never cached.
    pub saving: &'a dyn Fn(u32) -> f32,
    /// Bytes of the item, by node.
    pub bytes: &'a dyn Fn(u32) -> u64,
}

impl std::fmt::Debug for Kind<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kind")
    }
}

/// The threshold of benefit per byte above which items are cached (DUCATI §4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    level: u32,
    /// Bytes left for items exactly at the threshold.
    rest: u64,
}

impl Cut {
    /// The threshold at which the best items of all `kinds` together take at most `budget` bytes.
    ///
    /// # Complexity
    ///
    /// One pass over the nodes, 256 KiB of memory.
    pub fn new(num_nodes: u32, kinds: &[Kind<'_>], budget: u64) -> Self {
        let mut bytes = vec![0u64; 1 << (32 - SHIFT - 1)];
        for node in 0..num_nodes {
            for kind in kinds {
                if let Some((level, size)) = level(kind, node) {
                    bytes[level as usize] = bytes[level as usize].saturating_add(size);
                }
            }
        }
        let mut rest = budget;
        for (level, &bytes) in bytes.iter().enumerate().rev() {
            if bytes > rest {
                return Self { level: level as u32, rest };
            }
            rest -= bytes;
        }
        Self { level: 0, rest: 0 }
    }

    /// Whether the item of `kind` is cached for `node`. Called once for each node and kind, for one kind after another and in
    /// the order of nodes: items exactly at the threshold are cached until the budget is used up.
    pub fn holds(&mut self, kind: &Kind<'_>, node: u32) -> bool {
        match level(kind, node) {
            Some((level, _)) if level != self.level => level > self.level,
            Some((_, size)) if size <= self.rest => {
                self.rest -= size;
                true
            }
            _ => false,
        }
    }
}

/// The benefit per byte, as an ordered integer, and the bytes; `None` without a benefit.
fn level(kind: &Kind<'_>, node: u32) -> Option<(u32, u64)> {
    let saving = (kind.saving)(node);
    if saving.is_nan() || saving <= 0.0 {
        return None;
    }
    let bytes = (kind.bytes)(node);
    // The bits of positive floats are ordered as the floats; level 0 is reserved for items that are never cached.
    Some((((saving / bytes.max(1) as f32).to_bits() >> SHIFT).max(1), bytes))
}

#[cfg(test)]
mod tests;
