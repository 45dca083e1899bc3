//! Which nodes are held, and where: a bitmap that counts.

/// Maps some of a graph's nodes to 0, 1, 2, … in ascending order: 16 bytes for every 64 nodes of the graph, whatever is held.
///
/// A hash table takes 12 bytes or more for each node held; this takes less as soon as one node of 48 is, and finds it with
/// one look at memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeMap {
    // Invariant: `before` of each word is the number of bits set in all words before it.
    words: Vec<Word>,
    len: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Word {
    bits: u64,
    before: u32,
}

impl NodeMap {
    /// Maps the nodes below `num_nodes` for which `holds` is true; it is called once for each node, in order.
    pub fn new(num_nodes: usize, mut holds: impl FnMut(u32) -> bool) -> Self {
        let mut words = Vec::with_capacity(num_nodes.div_ceil(64));
        let mut before = 0u32;
        for first in (0..num_nodes).step_by(64) {
            let nodes = first..num_nodes.min(first + 64);
            let bits = nodes.filter(|&v| holds(v as u32)).fold(0u64, |bits, v| bits | 1 << (v % 64));
            words.push(Word { bits, before });
            before += bits.count_ones();
        }
        Self { words, len: before }
    }

    /// Bytes that the map of a graph of so many nodes takes.
    pub fn num_bytes_of(num_nodes: usize) -> u64 {
        num_nodes.div_ceil(64) as u64 * size_of::<Word>() as u64
    }

    /// Bytes it takes.
    pub fn num_bytes(&self) -> u64 {
        (self.words.len() * size_of::<Word>()) as u64
    }

    /// Number of nodes held.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no node is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place of `node`, where it is held.
    #[inline]
    pub fn get(&self, node: u32) -> Option<usize> {
        let word = self.words.get(node as usize / 64)?;
        let bit = 1u64 << (node % 64);
        (word.bits & bit != 0).then(|| (word.before + (word.bits & (bit - 1)).count_ones()) as usize)
    }

    /// The map itself, for lookups on a device: for every 64 nodes the bits of those held, and how many
    /// are held before them.
    pub fn words(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.words.iter().map(|word| (word.bits, word.before))
    }

    /// The nodes held, ascending: the order of their places.
    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().zip(0u32..).flat_map(|(word, w)| {
            let mut bits = word.bits;
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                (bits != 0).then(|| {
                    bits &= bits - 1;
                    64 * w + bit
                })
            })
        })
    }
}

#[cfg(test)]
mod tests;
