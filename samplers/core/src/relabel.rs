//! Local ids: nodes numbered by first appearance.

use morphgl_platform::SimdLevel;

use crate::dispatch::{direct, hashed};
use crate::huge::HugeWords;
use crate::table::{Bucket, LocalIds, NODES, SLOTS, index};

/// The largest graph with a direct table, of 37 MiB; nodes of larger graphs are hashed.
const MAX_DIRECT: usize = 1 << 22;

/// Average nodes of a bucket in a new table.
const INITIAL_LOAD: usize = 4;
/// Average nodes of a bucket from which a table grows.
const MAX_LOAD: usize = 6;
/// Minimum buckets of a table.
const MIN_BUCKETS: usize = 1 << 6;

/// Relabels nodes to local ids 0, 1, 2, … by first appearance, one mini-batch after another in the same memory.
///
/// In graphs up to 2^22 nodes (see [`Relabel::for_graph`]) each node has an entry in a direct table, with a value of the
/// caller beside it; nodes of larger graphs are hashed to cache lines of eight slots, half of which a mini-batch fills.
/// A local id carries the stamp of its mini-batch, so a table is cleared only once in hundreds of mini-batches.
///
/// ```
/// let mut relabel = morphgl_sampler_core::Relabel::default();
/// relabel.start(Vec::new());
/// assert_eq!([7, 9, 7, 2].map(|node| relabel.local(node)), [0, 1, 0, 2]);
/// assert_eq!(relabel.finish(), [7, 9, 2]);
/// ```
#[derive(Debug)]
pub struct Relabel {
    // Invariant: between `start` and `finish`, the words of the table with the stamp `stamp` are those of `nodes`, with
    // their indices; no word has a larger stamp. Unused words are 0, which is no stamp.
    table: Table,
    stamp: u32,
    nodes: Vec<u32>,
    /// Buffer for discarded values; empty.
    discarded: Vec<[u32; 2]>,
    /// Nodes of the previous mini-batch.
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
    // Invariant: the slots with the current stamp are the first of each bucket, and all buckets from a node's home to
    // the one before its own are full of them.
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
    /// For a graph of `num_nodes` nodes. In a direct table, `value` of each node, and of `num_nodes`, is stored beside the local
    /// id: [`Relabel::locals_of_first`] returns those of new nodes without another memory access.
    ///
    /// # Complexity
    ///
    /// O(`num_nodes`) time and 64 bytes for seven nodes up to 2^22 nodes, O(1) beyond.
    pub fn for_graph(num_nodes: usize, value: impl Fn(u32) -> u32) -> Self {
        if num_nodes > MAX_DIRECT {
            return Self::default();
        }
        let mut words = HugeWords::<u64>::zeroed(num_nodes.checked_sub(1).map_or(0, |last| index(last as u32) + 2));
        for (line, words) in words.chunks_mut(SLOTS).enumerate() {
            words.iter_mut().zip((line * NODES) as u32..).for_each(|(word, node)| *word = u64::from(value(node)) << 32);
        }
        Self::with(Table::Direct { words, bits: bits(num_nodes) })
    }

    fn with(table: Table) -> Self {
        Self { table, stamp: 0, nodes: Vec::new(), discarded: Vec::new(), expected: 0, level: SimdLevel::current() }
    }

    /// Starts a mini-batch; `buffer` is reused for the list of its nodes.
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
                let needed = (self.expected / INITIAL_LOAD).max(MIN_BUCKETS);
                if buckets.len() * MAX_LOAD < needed * INITIAL_LOAD {
                    (self.table, self.stamp) = (Table::hashed(needed), 0);
                } else if self.stamp == u32::MAX >> *bits {
                    buckets.fill([0; SLOTS]);
                    self.stamp = 0;
                }
            }
        }
        self.stamp += 1;
    }

    /// The local id of `node`, a new one at its first appearance.
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
        let mut values = std::mem::take(&mut self.discarded);
        self.locals_of_first(nodes.len(), nodes, &mut values);
        values.clear();
        self.discarded = values;
    }

    /// Replaces the first `count` of `nodes`, in order, by their local ids, and prefetches the entries of the others, which
    /// the next call relabels. If the table has values, those of each new node `v` and of `v + 1` are appended to `values`.
    ///
    /// # Panics
    ///
    /// When one of the nodes is beyond the graph, or there are fewer than `count`.
    pub fn locals_of_first(&mut self, count: usize, nodes: &mut [u32], values: &mut Vec<[u32; 2]>) {
        assert!(count <= nodes.len(), "{count} of {} nodes", nodes.len());
        let len = self.nodes.len();
        let max = len + count;
        if matches!(&self.table, Table::Hashed { buckets, .. } if buckets.len() * MAX_LOAD < max) {
            self.grow(max);
        }
        // All of them may be new.
        self.nodes.resize(max, 0);
        let (Table::Direct { bits, .. } | Table::Hashed { bits, .. }) = self.table;
        let local_ids = LocalIds { nodes: &mut self.nodes, len: len as u32, stamp: self.stamp, bits };
        let num_nodes = match &mut self.table {
            Table::Direct { words, .. } => {
                let first = values.len();
                values.resize(first + count, [0; 2]);
                let num_nodes = direct(self.level, words, local_ids, &mut values[first..], nodes, count);
                values.truncate(first + num_nodes as usize - len);
                num_nodes
            }
            Table::Hashed { buckets, .. } => hashed(self.level, buckets, local_ids, nodes, count),
        };
        self.nodes.truncate(num_nodes as usize);
    }

    /// Whether the table has values.
    pub fn has_values(&self) -> bool {
        matches!(self.table, Table::Direct { .. })
    }

    /// The nodes so far; a node's local id is its index.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// Ends the mini-batch; returns its nodes.
    pub fn finish(&mut self) -> Vec<u32> {
        self.expected = self.nodes.len();
        std::mem::take(&mut self.nodes)
    }

    /// Moves to a larger table, for twice `max` nodes.
    #[cold]
    fn grow(&mut self, max: usize) {
        let mut nodes = std::mem::take(&mut self.nodes);
        let (mut ids, len) = (nodes.clone(), nodes.len());
        (self.table, self.stamp) = (Table::hashed((2 * max).div_ceil(INITIAL_LOAD).max(MIN_BUCKETS)), 1);
        if let Table::Hashed { buckets, bits } = &mut self.table {
            // The nodes are distinct, so each is new again, in the same order.
            let local_ids = LocalIds { nodes: &mut nodes, len: 0, stamp: 1, bits: *bits };
            hashed(self.level, buckets, local_ids, &mut ids, len);
        }
        self.nodes = nodes;
    }
}

impl Table {
    /// An empty hash table; its first stamp is 1.
    ///
    /// # Panics
    ///
    /// When its capacity is 2^31 nodes or more.
    fn hashed(num_buckets: usize) -> Self {
        let bits = bits(num_buckets * MAX_LOAD);
        assert!(bits < 32, "a mini-batch of {} nodes is too large; give a smaller batch size", num_buckets * MAX_LOAD);
        Table::Hashed { buckets: HugeWords::zeroed(num_buckets), bits }
    }
}

/// Bits of a local id below `count`.
fn bits(count: usize) -> u32 {
    usize::BITS - count.leading_zeros()
}

#[cfg(test)]
mod tests;
