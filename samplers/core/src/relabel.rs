//! Local ids: nodes numbered by first appearance.

use morphgl_platform::SimdLevel;

use crate::dispatch::{direct, hashed};
use crate::huge::HugeWords;
use crate::table::{Bucket, LocalIds, NODES, SLOTS, index};

/// The largest graph with a direct table, of 37 MiB; nodes of larger graphs are hashed.
const MAX_DIRECT: usize = 1 << 22;

/// Average number of nodes per bucket in a new table.
const INITIAL_LOAD: usize = 4;
/// Average number of nodes per bucket at which a table grows.
const MAX_LOAD: usize = 6;
/// Minimum buckets of a table.
const MIN_BUCKETS: usize = 1 << 6;

/// Relabels nodes to local ids 0, 1, 2, … by first appearance, one mini-batch after another in the same memory. A seed that
/// repeats takes a local id per occurrence, and is relabelled to that of its first one.
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
/// relabel.start(Vec::new());
/// relabel.add_seeds(&[7, 9, 7]);
/// assert_eq!([7, 2].map(|node| relabel.local(node)), [0, 3]);
/// assert_eq!(relabel.finish(), [7, 9, 7, 2]);
/// ```
#[derive(Debug)]
pub struct Relabel {
    // Invariant: between `start` and `finish`, the words of the table with the stamp `stamp` are those of `nodes`, with
    // the index of their first occurrence; no word has a larger stamp. Unused words are 0, which is no stamp.
    table: Table,
    stamp: u32,
    nodes: Vec<u32>,
    // Invariant: the nodes from here on are distinct, and not among those before.
    num_repeating: usize,
    /// Buffer for discarded values; empty.
    discarded: Vec<[u32; 2]>,
    /// Buffer in which seeds are relabelled.
    ids: Vec<u32>,
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
    /// A table for a graph of any size.
    fn default() -> Self {
        Self::with(Table::Hashed { buckets: HugeWords::zeroed(0), bits: 0 })
    }
}

impl Relabel {
    /// A table for a graph of `num_nodes` nodes. In a direct table, `value` of each node, and of `num_nodes`, is stored
    /// beside the local id: [`Relabel::locals_of_first`] returns those of new nodes without another memory access.
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
        let (nodes, discarded, ids) = Default::default();
        Self { table, stamp: 0, nodes, num_repeating: 0, discarded, ids, expected: 0, level: SimdLevel::current() }
    }

    /// Starts a mini-batch; `buffer` is reused for the list of its nodes.
    pub fn start(&mut self, mut buffer: Vec<u32>) {
        buffer.clear();
        (self.nodes, self.num_repeating) = (buffer, 0);
        match &mut self.table {
            Table::Direct { words, bits } => {
                if self.stamp == u32::MAX >> *bits {
                    clear_locals(words);
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

    /// Adds the seeds, the first nodes of a mini-batch: each takes its position as local id.
    ///
    /// # Panics
    ///
    /// When a seed is beyond the graph, or the mini-batch has nodes already.
    pub fn add_seeds(&mut self, seeds: &[u32]) {
        let mut values = std::mem::take(&mut self.discarded);
        self.add_seeds_with_values(seeds, &mut values);
        values.clear();
        self.discarded = values;
    }

    /// As [`Relabel::add_seeds`]; if the table has values, those of each seed `v` and of `v + 1` are appended to `values`, per
    /// occurrence.
    ///
    /// # Panics
    ///
    /// As [`Relabel::add_seeds`].
    pub fn add_seeds_with_values(&mut self, seeds: &[u32], values: &mut Vec<[u32; 2]>) {
        assert!(self.nodes.is_empty(), "seeds after {} nodes", self.nodes.len());
        let (mut ids, first) = (std::mem::take(&mut self.ids), values.len());
        ids.clear();
        ids.extend_from_slice(seeds);
        self.locals_of_first(seeds.len(), &mut ids, values);
        self.ids = ids;
        if self.nodes.len() < seeds.len() {
            values.truncate(first);
            self.add_repeating(seeds, values);
        }
    }

    /// As [`Relabel::add_seeds_with_values`], where seeds repeat: the nodes so far are replaced.
    #[cold]
    fn add_repeating(&mut self, seeds: &[u32], values: &mut Vec<[u32; 2]>) {
        let buffer = std::mem::take(&mut self.nodes);
        self.start(buffer);
        if let Table::Direct { words, bits: old } = &mut self.table {
            // Local ids were below the number of nodes.
            let needed = bits(words.len() + seeds.len());
            assert!(needed < 32, "a mini-batch of {} seeds is too large; give a smaller batch size", seeds.len());
            if needed > *old {
                clear_locals(words);
                (*old, self.stamp) = (needed, 1);
            }
        }
        self.nodes.extend_from_slice(seeds);
        self.num_repeating = seeds.len();
        self.insert_repeating(values);
    }

    /// Inserts the nodes that may repeat in an empty table, in which each keeps its first position.
    fn insert_repeating(&mut self, values: &mut Vec<[u32; 2]>) {
        let Self { table, stamp, nodes, level, .. } = self;
        for i in 0..self.num_repeating {
            let (mut id, mut value) = ([nodes[i]], [[0; 2]]);
            // The kernels overwrite position `i` by the node, whether it is new or not.
            let (Table::Direct { bits, .. } | Table::Hashed { bits, .. }) = *table;
            let local_ids = LocalIds { nodes: &mut nodes[..], len: i as u32, stamp: *stamp, bits };
            match table {
                Table::Direct { words, .. } => {
                    direct(*level, words, local_ids, &mut value, &mut id, 1);
                    values.extend(value);
                }
                Table::Hashed { buckets, .. } => {
                    hashed(*level, buckets, local_ids, &mut id, 1);
                }
            }
        }
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
        // Reserved for the worst case: all of them are new.
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
        (self.table, self.stamp) = (Table::hashed((2 * max).div_ceil(INITIAL_LOAD).max(MIN_BUCKETS)), 1);
        self.insert_repeating(&mut Vec::new());
        let first = self.num_repeating;
        let mut ids = self.nodes[first..].to_vec();
        if let Table::Hashed { buckets, bits } = &mut self.table {
            // These nodes are distinct, so each is new again, in the same order.
            let local_ids = LocalIds { nodes: &mut self.nodes, len: first as u32, stamp: 1, bits: *bits };
            let count = ids.len();
            hashed(self.level, buckets, local_ids, &mut ids, count);
        }
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

/// Clears stamps and local ids of a direct table; values stay.
fn clear_locals(words: &mut [u64]) {
    words.iter_mut().for_each(|word| *word &= !u64::from(u32::MAX));
}

/// Bits of a local id below `count`.
fn bits(count: usize) -> u32 {
    usize::BITS - count.leading_zeros()
}

#[cfg(test)]
mod tests;
