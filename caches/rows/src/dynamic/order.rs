//! The order of eviction: a doubly linked list of slots, which both policies share.

use crate::sync::{AtomicBool, Ordering};

const NONE: u32 = u32::MAX;

/// Slots from the newest to the oldest, and the free ones. A slot that is being written is in neither list.
#[derive(Debug)]
pub(crate) struct Order {
    // Invariant: `newer` and `older` of a slot in the list name each other; free slots are chained by `older`.
    links: Box<[Link]>,
    newest: u32,
    oldest: u32,
    free: u32,
    /// SIEVE's hand: the slot to look at next, `NONE` for the oldest.
    hand: u32,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

impl Order {
    pub(crate) const BYTES_A_SLOT: u64 = size_of::<Link>() as u64;

    /// All slots free.
    pub(crate) fn new(capacity: usize) -> Self {
        let link = |slot: usize| Link { newer: NONE, older: if slot + 1 < capacity { slot as u32 + 1 } else { NONE } };
        let free = if capacity > 0 { 0 } else { NONE };
        Self { links: (0..capacity).map(link).collect(), newest: NONE, oldest: NONE, free, hand: NONE }
    }

    /// Takes a free slot.
    pub(crate) fn take_free(&mut self) -> Option<u32> {
        let slot = self.free;
        let link = self.links.get(slot as usize)?;
        self.free = link.older;
        Some(slot)
    }

    /// Frees a slot that is in neither list.
    pub(crate) fn release(&mut self, slot: u32) {
        self.links[slot as usize] = Link { newer: NONE, older: self.free };
        self.free = slot;
    }

    /// Puts a slot that is in neither list before all others.
    pub(crate) fn push(&mut self, slot: u32) {
        self.links[slot as usize] = Link { newer: NONE, older: self.newest };
        match self.links.get_mut(self.newest as usize) {
            Some(link) => link.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
    }

    /// Takes a slot out of the list.
    pub(crate) fn unlink(&mut self, slot: u32) {
        let Link { newer, older } = self.links[slot as usize];
        match self.links.get_mut(newer as usize) {
            Some(link) => link.older = older,
            None => self.newest = older,
        }
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = newer,
            None => self.oldest = newer,
        }
        if self.hand == slot {
            self.hand = newer;
        }
    }

    /// LRU: the oldest slot.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// SIEVE: the first slot from the hand on towards newer ones that was not visited; marks of those passed are cleared.
    pub(crate) fn unvisited(&mut self, visited: &[AtomicBool]) -> Option<u32> {
        let oldest = self.oldest()?;
        let mut at = if self.hand == NONE { oldest } else { self.hand };
        // Other threads visit slots meanwhile: each is passed twice at most.
        for _ in 0..2 * self.links.len() {
            let mark = &visited[at as usize];
            if !mark.load(Ordering::Relaxed) {
                break;
            }
            mark.store(false, Ordering::Relaxed);
            let newer = self.links[at as usize].newer;
            at = if newer == NONE { oldest } else { newer };
        }
        self.hand = at;
        Some(at)
    }
}
