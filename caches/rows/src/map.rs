//! The map of cached nodes to row indices: a bitmap with rank, or a prefix of the nodes.

/// Maps some of a graph's nodes to 0, 1, 2, … in ascending order.
///
/// Of any nodes it is a bitmap with rank, in 16 bytes for every 64 nodes of the graph. A hash table takes 12 bytes or more
/// for each mapped node: the bitmap is smaller if at least one node in 48 is mapped, and a lookup is one memory access.
/// Where the graph is reordered by hotness, it is a prefix of the nodes, and a lookup one comparison (DUCATI, SIGMOD'23).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeMap {
    // Invariant: `before` of each word is the number of bits set in all words before it. A prefix has no words.
    words: Vec<Word>,
    len: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Word {
    bits: u64,
    before: u32,
}

impl NodeMap {
    /// Maps the nodes below `num_nodes` for which `contains` is true; it is called once for each node, in order.
    pub fn new(num_nodes: usize, mut contains: impl FnMut(u32) -> bool) -> Self {
        let mut words = Vec::with_capacity(num_nodes.div_ceil(64));
        let mut before = 0u32;
        for first in (0..num_nodes).step_by(64) {
            let nodes = first..num_nodes.min(first + 64);
            let bits = nodes.filter(|&v| contains(v as u32)).fold(0u64, |bits, v| bits | 1 << (v % 64));
            words.push(Word { bits, before });
            before += bits.count_ones();
        }
        Self { words, len: before }
    }

    /// Maps the nodes `0..len`, each to itself, without a table.
    pub fn prefix(len: u32) -> Self {
        Self { words: Vec::new(), len }
    }

    /// Whether the map is a prefix of the nodes, which needs no table.
    pub fn is_prefix(&self) -> bool {
        self.words.is_empty()
    }

    /// Bytes of the bitmap of a graph of `num_nodes` nodes; a prefix has 0.
    pub fn num_bytes_of(num_nodes: usize) -> u64 {
        num_nodes.div_ceil(64) as u64 * size_of::<Word>() as u64
    }

    /// Bytes of the map.
    pub fn num_bytes(&self) -> u64 {
        (self.words.len() * size_of::<Word>()) as u64
    }

    /// Number of mapped nodes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no node is mapped.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The index of `node`, if it is mapped.
    #[inline]
    pub fn get(&self, node: u32) -> Option<usize> {
        if self.words.is_empty() {
            return (node < self.len).then_some(node as usize);
        }
        let word = self.words.get(node as usize / 64)?;
        let bit = 1u64 << (node % 64);
        (word.bits & bit != 0).then(|| (word.before + (word.bits & (bit - 1)).count_ones()) as usize)
    }

    /// Number of mapped nodes below `node`.
    #[inline]
    pub fn rank(&self, node: u32) -> usize {
        if self.words.is_empty() {
            return self.len.min(node) as usize;
        }
        let Some(word) = self.words.get(node as usize / 64) else { return self.len as usize };
        (word.before + (word.bits & ((1u64 << (node % 64)) - 1)).count_ones()) as usize
    }

    /// The map's words, for lookups on a device: for every 64 nodes the bits of mapped nodes, and the number of mapped nodes
    /// before them. Empty for a prefix.
    pub fn words(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.words.iter().map(|word| (word.bits, word.before))
    }

    /// The mapped nodes, ascending, in the order of their indices.
    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        let prefix = 0..if self.is_prefix() { self.len } else { 0 };
        prefix.chain(self.words.iter().zip(0u32..).flat_map(|(word, w)| {
            let mut bits = word.bits;
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                (bits != 0).then(|| {
                    bits &= bits - 1;
                    64 * w + bit
                })
            })
        }))
    }
}

#[cfg(test)]
mod tests;
