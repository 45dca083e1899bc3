//! Local ids: nodes numbered in the order they are first seen.

use morphgl_platform::SimdLevel;

use crate::dispatch::{direct, hashed};
use crate::huge::HugeWords;
use crate::table::{Bucket, NODES, SLOTS, Seen, place};

/// The largest graph whose nodes have a place each in the table, 37 MiB of them; nodes of a larger one are hashed.
const MAX_DIRECT: usize = 1 << 22;

/// Nodes a bucket has room for on average when a table is made, and before it grows.
const MADE_FOR: usize = 4;
const FULL: usize = 6;
/// Buckets a table has at least.
const MIN_BUCKETS: usize = 1 << 6;

/// Gives nodes local ids 0, 1, 2, … by first appearance, one mini-batch after another in the same memory.
///
/// Of graphs up to 2^22 nodes, said by [`Relabel::for_graph`], each node has a place in a table, with a value of the
/// caller's beside it; nodes of larger ones are hashed to lines of eight slots, which a mini-batch fills by half. Either
/// way a local id carries the stamp of its mini-batch, so that a table is used again without clearing it, but once in
/// hundreds of mini-batches.
///
/// ```
/// let mut relabel = morphgl_sampler_core::Relabel::default();
/// relabel.start(Vec::new());
/// assert_eq!([7, 9, 7, 2].map(|node| relabel.local(node)), [0, 1, 0, 2]);
/// assert_eq!(relabel.finish(), [7, 9, 2]);
/// ```
#[derive(Debug)]
pub struct Relabel {
    // Invariant: between `start` and `finish`, the words of the table with the stamp `stamp` are those of the elements of
    // `nodes`, with their indices; no word has a larger stamp. A word never written is 0, which is no stamp.
    table: Table,
    stamp: u32,
    nodes: Vec<u32>,
    /// Buffer for values that are not needed; empty.
    unused: Vec<[u32; 2]>,
    /// Nodes of the mini-batch before.
    expected: usize,
    level: SimdLevel,
}

#[derive(Debug)]
enum Table {
    /// Cache lines of seven nodes, a word each: the node's value in the upper half, stamp and local id in the lower one; the
    /// eighth word has the next node's value. The table ends after the last node's successor.
    Direct {
        words: HugeWords<u64>,
        bits: u32,
    },
    // Invariant: the slots in use with the present stamp are the first of each bucket, and every bucket from a node's
    // home to its own is full of them.
    Hashed {
        buckets: HugeWords<Bucket>,
        bits: u32,
    },
}

impl Default for Relabel {
    /// For a graph of any size.
    fn default() -> Self {
        Self::with(Table::Hashed { buckets: HugeWords::zeroed(0), bits: 0 })
    }
}

impl Relabel {
    /// For a graph of `num_nodes` nodes: each is below that. Of a small one, `value` of each node, and of `num_nodes`, is kept
    /// beside its local id: [`Relabel::locals_of_first`] gives those of new nodes without another memory access.
    ///
    /// # Complexity
    ///
    /// O(`num_nodes`) time and 64 bytes for seven nodes up to 2^22 nodes, O(1) beyond.
    pub fn for_graph(num_nodes: usize, value: impl Fn(u32) -> u32) -> Self {
        if num_nodes > MAX_DIRECT {
            return Self::default();
        }
        let mut words = HugeWords::<u64>::zeroed(num_nodes.checked_sub(1).map_or(0, |last| place(last as u32) + 2));
        for (line, words) in words.chunks_mut(SLOTS).enumerate() {
            words.iter_mut().zip((line * NODES) as u32..).for_each(|(word, node)| *word = u64::from(value(node)) << 32);
        }
        Self::with(Table::Direct { words, bits: bits(num_nodes) })
    }

    fn with(table: Table) -> Self {
        Self { table, stamp: 0, nodes: Vec::new(), unused: Vec::new(), expected: 0, level: SimdLevel::current() }
    }

    /// Starts a mini-batch; `buffer` becomes the list of its nodes, its content is dropped.
    pub fn start(&mut self, mut buffer: Vec<u32>) {
        buffer.clear();
        self.nodes = buffer;
        match &mut self.table {
            Table::Direct { words, bits } => {
                if self.stamp == u32::MAX >> *bits {
                    words.iter_mut().for_each(|word| *word &= !u64::from(u32::MAX));
                    self.stamp = 0;
                }
            }
            Table::Hashed { buckets, bits } => {
                let needed = (self.expected / MADE_FOR).max(MIN_BUCKETS);
                if buckets.len() * FULL < needed * MADE_FOR {
                    (self.table, self.stamp) = (Table::hashed(needed), 0);
                } else if self.stamp == u32::MAX >> *bits {
                    buckets.fill([0; SLOTS]);
                    self.stamp = 0;
                }
            }
        }
        self.stamp += 1;
    }

    /// The local id of `node`, a new one where it was not seen yet.
    ///
    /// # Panics
    ///
    /// When `node` is beyond the graph.
    #[inline]
    pub fn local(&mut self, node: u32) -> u32 {
        let mut id = [node];
        self.locals(&mut id);
        id[0]
    }

    /// Replaces every node of `nodes`, in order, by its local id.
    ///
    /// # Panics
    ///
    /// When a node is beyond the graph.
    pub fn locals(&mut self, nodes: &mut [u32]) {
        let mut values = std::mem::take(&mut self.unused);
        self.locals_of_first(nodes.len(), nodes, &mut values);
        values.clear();
        self.unused = values;
    }

    /// Replaces the first `count` of `nodes`, in order, by their local ids, and prefetches the entries of
    /// others, which come next. Where the table holds values, those of each new
    /// node `v` and of `v + 1` are appended to `values`.
    ///
    /// # Panics
    ///
    /// When one of the nodes is beyond the graph, or there are fewer than `count`.
    pub fn locals_of_first(&mut self, count: usize, nodes: &mut [u32], values: &mut Vec<[u32; 2]>) {
        assert!(count <= nodes.len(), "{count} of {} nodes", nodes.len());
        let len = self.nodes.len();
        let most = len + count;
        if matches!(&self.table, Table::Hashed { buckets, .. } if buckets.len() * FULL < most) {
            self.grow(most);
        }
        // Room for the case that all of them are new.
        self.nodes.resize(most, 0);
        let (Table::Direct { bits, .. } | Table::Hashed { bits, .. }) = self.table;
        let seen = Seen { nodes: &mut self.nodes, len: len as u32, stamp: self.stamp, bits };
        let now = match &mut self.table {
            Table::Direct { words, .. } => {
                let before = values.len();
                values.resize(before + count, [0; 2]);
                let now = direct(self.level, words, seen, &mut values[before..], nodes, count);
                values.truncate(before + now as usize - len);
                now
            }
            Table::Hashed { buckets, .. } => hashed(self.level, buckets, seen, nodes, count),
        };
        self.nodes.truncate(now as usize);
    }

    /// Whether the table holds values.
    pub fn holds_values(&self) -> bool {
        matches!(self.table, Table::Direct { .. })
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

    /// Makes a larger table, for `most` nodes and as many again.
    #[cold]
    fn grow(&mut self, most: usize) {
        let mut nodes = std::mem::take(&mut self.nodes);
        let (mut ids, len) = (nodes.clone(), nodes.len());
        (self.table, self.stamp) = (Table::hashed((2 * most).div_ceil(MADE_FOR).max(MIN_BUCKETS)), 1);
        if let Table::Hashed { buckets, bits } = &mut self.table {
            // The nodes differ, so that each becomes new again, in the same order.
            let seen = Seen { nodes: &mut nodes, len: 0, stamp: 1, bits: *bits };
            hashed(self.level, buckets, seen, &mut ids, len);
        }
        self.nodes = nodes;
    }
}

impl Table {
    /// An empty hash table; its first stamp is 1.
    ///
    /// # Panics
    ///
    /// When it is for 2^31 nodes or more.
    fn hashed(num_buckets: usize) -> Self {
        let bits = bits(num_buckets * FULL);
        assert!(bits < 32, "a mini-batch of {} nodes is too large; give a smaller batch size", num_buckets * FULL);
        Table::Hashed { buckets: HugeWords::zeroed(num_buckets), bits }
    }
}

/// Bits of a local id below `count`.
fn bits(count: usize) -> u32 {
    usize::BITS - count.leading_zeros()
}

#[cfg(test)]
mod tests;
