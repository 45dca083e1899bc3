//! Local ids: nodes numbered in the order they are first seen.

use morphgl_graph_store::prefetch;

/// A slot that holds nothing. Its node is `u32::MAX`, which no graph has.
const EMPTY: u64 = u64::MAX;

/// Slots a table has at least.
const MIN_SLOTS: usize = 1 << 8;

/// Nodes whose slots are asked for ahead of their turn.
const AHEAD: usize = 16;

/// Gives nodes local ids 0, 1, 2, … by first appearance, one mini-batch after another in the same memory.
///
/// An open-addressing table with linear probing, half empty at least. It starts a mini-batch with as many slots as the
/// mini-batch before needed: clearing costs no more than what was used, and a steady stream of mini-batches never grows it.
///
/// ```
/// let mut relabel = morphgl_sampler_core::Relabel::default();
/// relabel.start(Vec::new());
/// assert_eq!([7, 9, 7, 2].map(|node| relabel.local(node)), [0, 1, 0, 2]);
/// assert_eq!(relabel.finish(), [7, 9, 2]);
/// ```
#[derive(Debug, Default)]
pub struct Relabel {
    // Invariant: between `start` and `finish`, `slots[..=mask]` holds (node, local id) of every element of `nodes` and
    // nothing else, each reachable from its home slot without crossing an empty one; at most half of it is in use.
    slots: Vec<u64>,
    mask: usize,
    nodes: Vec<u32>,
    /// Nodes of the mini-batch before.
    expected: usize,
}

impl Relabel {
    /// Starts a mini-batch; `buffer` becomes the list of its nodes, its content is dropped.
    pub fn start(&mut self, mut buffer: Vec<u32>) {
        buffer.clear();
        self.nodes = buffer;
        self.clear((2 * self.expected).next_power_of_two().max(MIN_SLOTS));
    }

    /// The local id of `node`, a new one where it was not seen yet.
    ///
    /// # Panics
    ///
    /// In debug builds, when `node` is `u32::MAX`, which no graph has.
    #[inline]
    pub fn local(&mut self, node: u32) -> u32 {
        debug_assert_ne!(node, u32::MAX, "a graph has less than 2^32 nodes");
        let mut slot = home(node) & self.mask;
        loop {
            let held = self.slots[slot];
            if held == EMPTY {
                break;
            }
            if (held >> 32) as u32 == node {
                return held as u32;
            }
            slot = (slot + 1) & self.mask;
        }
        let local = self.nodes.len() as u32;
        self.slots[slot] = u64::from(node) << 32 | u64::from(local);
        self.nodes.push(node);
        if 2 * self.nodes.len() > self.mask {
            self.grow();
        }
        local
    }

    /// Replaces every node of `nodes`, in order, by its local id.
    pub fn locals(&mut self, nodes: &mut [u32]) {
        for i in 0..nodes.len() {
            if let Some(&later) = nodes.get(i + AHEAD) {
                prefetch(&self.slots, home(later) & self.mask);
            }
            nodes[i] = self.local(nodes[i]);
        }
    }

    /// The nodes seen so far; a node's local id is its index.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// Ends the mini-batch; returns its nodes.
    pub fn finish(&mut self) -> Vec<u32> {
        self.expected = self.nodes.len();
        std::mem::take(&mut self.nodes)
    }

    fn clear(&mut self, slots: usize) {
        if self.slots.len() < slots {
            self.slots.resize(slots, EMPTY);
        }
        self.slots[..slots].fill(EMPTY);
        self.mask = slots - 1;
    }

    #[cold]
    fn grow(&mut self) {
        self.clear(2 * (self.mask + 1));
        for (&node, local) in self.nodes.iter().zip(0u64..) {
            let mut slot = home(node) & self.mask;
            while self.slots[slot] != EMPTY {
                slot = (slot + 1) & self.mask;
            }
            self.slots[slot] = u64::from(node) << 32 | local;
        }
    }
}

/// Where the search for `node` starts, before it is cut to the table's size: the id times an odd constant, the upper
/// half mixed into the lower.
#[inline(always)]
fn home(node: u32) -> usize {
    let h = node.wrapping_mul(0x9E37_79B1);
    (h ^ h >> 15) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn check(relabel: &mut Relabel, nodes: &[u32]) -> Result<(), TestCaseError> {
        let mut known = HashMap::new();
        let mut order = Vec::new();
        let expected: Vec<u32> = nodes
            .iter()
            .map(|&node| {
                *known.entry(node).or_insert_with(|| {
                    order.push(node);
                    order.len() as u32 - 1
                })
            })
            .collect();
        relabel.start(vec![1, 2, 3]);
        let mut actual = nodes.to_vec();
        relabel.locals(&mut actual);
        prop_assert_eq!(actual, expected);
        prop_assert_eq!(relabel.finish(), order);
        Ok(())
    }

    proptest! {
        #[test]
        fn equals_a_hash_map(batches in prop::collection::vec(
            (1u32..5000, prop::collection::vec(any::<u32>(), 0..2000)), 1..5)
        ) {
            let mut relabel = Relabel::default();
            for (range, nodes) in batches {
                let nodes: Vec<u32> = nodes.into_iter().map(|v| v % range).collect();
                check(&mut relabel, &nodes)?;
            }
        }

        #[test]
        fn equals_a_hash_map_on_all_ids(nodes in prop::collection::vec(0..u32::MAX, 0..2000)) {
            check(&mut Relabel::default(), &nodes)?;
        }
    }

    #[test]
    fn ids_that_share_a_home_are_told_apart() {
        // Multiples of 2^24 agree in the lower bits of the product.
        let nodes: Vec<u32> = (0..255u32).map(|i| i << 24).collect();
        let mut relabel = Relabel::default();
        check(&mut relabel, &nodes).expect("the table equals the map");
    }

    #[test]
    fn a_steady_stream_keeps_its_memory() {
        let mut relabel = Relabel::default();
        let mut nodes: Vec<u32> = (0..10_000).collect();
        let mut buffer = Vec::new();
        for round in 0..3 {
            relabel.start(buffer);
            let slots = (relabel.slots.len(), relabel.slots.as_ptr());
            relabel.locals(&mut nodes);
            assert!(round == 0 || slots == (relabel.slots.len(), relabel.slots.as_ptr()), "the table moved");
            buffer = relabel.finish();
        }
    }
}
