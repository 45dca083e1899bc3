//! A part of the cache, with rows, index and order of its own.

use std::sync::PoisonError;

use super::Eviction;
use super::index::Index;
use super::order::Order;
use super::slots::Slots;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

#[derive(Debug)]
pub(crate) struct Shard {
    slots: Slots,
    // Changed under the lock of `order` alone, and read without.
    index: Index,
    /// SIEVE's marks; LRU has none.
    visited: Box<[AtomicBool]>,
    order: Mutex<Order>,
    eviction: Eviction,
}

impl Shard {
    /// Bytes of a shard of `capacity` rows of `row_bytes` bytes.
    pub(crate) fn num_bytes_of(eviction: Eviction, capacity: usize, row_bytes: usize) -> u64 {
        let mark = u64::from(eviction == Eviction::Sieve);
        let slot = Slots::num_bytes_of(row_bytes) + Order::BYTES_A_SLOT + mark;
        size_of::<Self>() as u64 + capacity as u64 * slot + Index::num_bytes_of(capacity)
    }

    pub(crate) fn new(eviction: Eviction, capacity: usize, row_bytes: usize) -> Self {
        let marks = if eviction == Eviction::Sieve { capacity } else { 0 };
        Self {
            slots: Slots::new(capacity, row_bytes),
            index: Index::new(capacity),
            visited: (0..marks).map(|_| AtomicBool::new(false)).collect(),
            order: Mutex::new(Order::new(capacity)),
            eviction,
        }
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn get_into(&self, node: u32, out: &mut [u8]) -> bool {
        let Some(slot) = self.index.find(node) else { return false };
        if !self.slots.read(slot, node, out) {
            return false;
        }
        match self.eviction {
            Eviction::Sieve => {
                // Hot rows are marked already: a store would only take the line from other cores.
                let mark = &self.visited[slot as usize];
                if !mark.load(Ordering::Relaxed) {
                    mark.store(true, Ordering::Relaxed);
                }
            }
            Eviction::Lru => {
                let mut order = self.order();
                if self.index.find(node) == Some(slot) {
                    order.unlink(slot);
                    order.push(slot);
                }
            }
        }
        true
    }

    pub(crate) fn insert(&self, node: u32, row: &[u8]) -> bool {
        let Some(slot) = self.claim(node) else { return false };
        self.slots.write(slot, node, row);
        self.publish(node, slot);
        true
    }

    /// Takes a slot out of index and order: that of `node`, a free one, or the one to be evicted. `None` while other threads
    /// have claimed all.
    fn claim(&self, node: u32) -> Option<u32> {
        let mut order = self.order();
        let cached = self.index.find(node);
        if cached.is_none()
            && let Some(slot) = order.take_free()
        {
            return Some(slot);
        }
        let evicted = || match self.eviction {
            Eviction::Sieve => order.unvisited(&self.visited),
            Eviction::Lru => order.oldest(),
        };
        let slot = cached.or_else(evicted)?;
        order.unlink(slot);
        self.index.remove(self.slots.node(slot));
        Some(slot)
    }

    /// Puts a written slot into index and order, in place of one that another thread published for `node` meanwhile.
    fn publish(&self, node: u32, slot: u32) {
        let mut order = self.order();
        if let Some(other) = self.index.find(node) {
            self.index.remove(node);
            order.unlink(other);
            order.release(other);
        }
        if let Some(mark) = self.visited.get(slot as usize) {
            mark.store(false, Ordering::Relaxed);
        }
        self.index.insert(node, slot);
        order.push(slot);
    }
}
