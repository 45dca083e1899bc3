//! The slot of each cached node: a hash table that is read without a lock.

use crate::sync::{AtomicU64, Ordering};

/// Open addressing with linear probing, at most three quarters full. One thread changes it at a time; readers beside it may
/// miss a node, or find the slot of a row that has since been replaced, which its header tells.
#[derive(Debug)]
pub(crate) struct Index {
    // Invariant: 0, or the node above its slot plus 1, 32 bits each; no empty entry between a node's home and its entry.
    entries: Box<[AtomicU64]>,
}

/// A hash with good upper and lower halves.
pub(crate) fn hash(node: u32) -> u64 {
    let mixed = (u64::from(node) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

impl Index {
    fn len_of(capacity: usize) -> usize {
        capacity + capacity / 3 + 1
    }

    pub(crate) fn num_bytes_of(capacity: usize) -> u64 {
        8 * Self::len_of(capacity) as u64
    }

    pub(crate) fn new(capacity: usize) -> Self {
        Self { entries: (0..Self::len_of(capacity)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Where probing for `node` begins, by the lower half of its hash; shards are selected by the upper half.
    fn home(&self, node: u32) -> usize {
        (((hash(node) & 0xFFFF_FFFF) * self.entries.len() as u64) >> 32) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }

    /// Steps from one entry on to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.entries.len() - from }
    }

    /// Position and slot of `node`.
    #[inline]
    fn position(&self, node: u32) -> Option<(usize, u32)> {
        let mut at = self.home(node);
        // Entries move while they are read: no more steps than entries.
        for _ in 0..self.entries.len() {
            let entry = self.entries[at].load(Ordering::Relaxed);
            if entry == 0 {
                return None;
            }
            if entry >> 32 == u64::from(node) {
                return Some((at, entry as u32 - 1));
            }
            at = self.next(at);
        }
        None
    }

    /// The slot of `node`.
    #[inline]
    pub(crate) fn find(&self, node: u32) -> Option<u32> {
        Some(self.position(node)?.1)
    }

    /// Adds `node`, which is not in the table.
    pub(crate) fn insert(&self, node: u32, slot: u32) {
        let mut at = self.home(node);
        while self.entries[at].load(Ordering::Relaxed) != 0 {
            at = self.next(at);
        }
        self.entries[at].store(u64::from(node) << 32 | u64::from(slot + 1), Ordering::Relaxed);
    }

    /// Removes `node`, if it is in the table; later entries of its run move up.
    pub(crate) fn remove(&self, node: u32) {
        let Some((mut hole, _)) = self.position(node) else { return };
        let mut at = hole;
        loop {
            at = self.next(at);
            let entry = self.entries[at].load(Ordering::Relaxed);
            if entry == 0 {
                break;
            }
            let home = self.home((entry >> 32) as u32);
            if self.distance(home, at) >= self.distance(hole, at) {
                self.entries[hole].store(entry, Ordering::Relaxed);
                hole = at;
            }
        }
        self.entries[hole].store(0, Ordering::Relaxed);
    }
}
