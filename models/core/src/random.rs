//! Counter-based random numbers of training: initial values and dropout masks.
//!
//! Philox4x32-10 (Salmon et al., SC'11): the key is the seed, the counter identifies the number; there is no state.
//! The counter's last word contains a tag, so that no number is one of the sampler's.

use std::ops::Range;

use morphgl_platform::philox::{key, philox4x32_10, philox4x32_10_blocks, philox4x32_10_counters};

/// Tags of a counter's last word; those of the sampler differ.
const INIT: u32 = 0x696e_6974;
const DROPOUT: u32 = 0x6472_6f70;
const MASK: u32 = 0x6d61_736b;

/// Blocks computed side by side.
const BLOCKS: usize = 8;

/// `len` uniform numbers in [-bound, bound) of parameter `index`.
pub(crate) fn uniforms(seed: u64, index: u32, len: usize, bound: f32) -> Vec<f32> {
    let mut values = Vec::with_capacity(len.next_multiple_of(4 * BLOCKS));
    for first in (0..len.div_ceil(4)).step_by(BLOCKS) {
        let counter = [first as u32, (first as u64 >> 32) as u32, index, INIT];
        let blocks: [[u32; 4]; BLOCKS] = philox4x32_10_blocks(counter, key(seed));
        // 24 bits, as many as an f32 holds exactly.
        values.extend(blocks.as_flattened().iter().map(|w| ((w >> 8) as f32 / 8_388_608.0 - 1.0) * bound));
    }
    values.truncate(len);
    values
}

/// Use of a mask in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropoutSite {
    /// On the input features; an element is a column.
    Input,
    /// On a hidden layer's output; an element is a column.
    Hidden,
    /// On a layer's attention coefficients, element `entry * heads + head` of the destination node, whose entries are its
    /// edges in the order of the block, then its self loop.
    Attention,
}

/// A dropout mask: a function of seed, mini-batch, layer, site, node, and element of the node's row alone.
///
/// Where a node stands in the mini-batch does not matter, so that shares of a mini-batch have the masks of the whole.
/// An element is kept, and multiplied by the inverse of the kept share, if its 16 random bits are not below the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropout {
    key: [u32; 2],
    threshold: u32,
}

/// Consecutive elements of a node's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPart {
    /// The node's id in the graph.
    pub node: u32,
    /// The first element.
    pub first: u64,
    /// Number of elements.
    pub len: usize,
}

impl Dropout {
    /// Elements whose bits come from one block of Philox: the half words of its four words.
    pub const BLOCK: usize = 8;

    /// A mask that drops `probability` of the elements, to 1/65536; `None` when it drops none.
    ///
    /// # Panics
    ///
    /// When the probability is not in [0, 1), or the layer is not below 2^24.
    pub fn new(seed: u64, epoch: u32, batch: u32, layer: usize, site: DropoutSite, probability: f32) -> Option<Self> {
        assert!((0.0..1.0).contains(&probability), "a dropout probability is in [0, 1), not {probability}");
        assert!(layer < 1 << 24, "layer {layer}");
        let threshold = ((f64::from(probability) * 65536.0).round() as u32).min(65535);
        let site = (layer as u32) << 2 | site as u32;
        // A key of the mask's own leaves the whole counter to the node and its elements.
        let [first, second, ..] = philox4x32_10([site, batch, epoch, MASK], key(seed));
        (threshold > 0).then_some(Self { key: [first, second], threshold })
    }

    /// Factor of kept elements.
    pub fn scale(&self) -> f32 {
        65536.0 / (65536 - self.threshold) as f32
    }

    /// Threshold below which the 16 bits of an element drop it.
    pub fn threshold(&self) -> u16 {
        // Invariant: it is below 65536.
        self.threshold as u16
    }

    /// Philox's key.
    pub fn key(&self) -> [u32; 2] {
        self.key
    }

    /// Philox's counter of elements `8 * block` to `8 * block + 7` of a node. Low halves of words precede high ones.
    pub fn counter(node: u32, block: u64) -> [u32; 4] {
        [block as u32, node, (block >> 32) as u32, DROPOUT]
    }

    /// Fills `factors` with 0 or the scale for the elements of `parts`, one after the other.
    ///
    /// # Panics
    ///
    /// When the parts are longer than `factors`.
    // Inlined so that a caller compiled for a higher SIMD level computes the masks at that level.
    #[inline(always)]
    pub fn fill(&self, parts: impl Iterator<Item = RowPart>, factors: &mut [f32]) {
        let scale = self.scale();
        self.blocks(parts, |range, kept| {
            for (factor, &bits) in factors[range].iter_mut().zip(kept) {
                *factor = if u32::from(bits) >= self.threshold { scale } else { 0.0 };
            }
        });
    }

    /// Multiplies the rows of `nodes`, all of the same width, by their factors.
    ///
    /// # Panics
    ///
    /// When `values` are not rows of these nodes.
    #[inline(always)]
    pub fn apply(&self, nodes: &[u32], values: &mut [f32]) {
        let len = values.len() / nodes.len().max(1);
        assert_eq!(nodes.len() * len, values.len(), "elements of rows");
        let scale = self.scale();
        self.blocks(nodes.iter().map(|&node| RowPart { node, first: 0, len }), |range, kept| {
            for (value, &bits) in values[range].iter_mut().zip(kept) {
                *value = if u32::from(bits) >= self.threshold { *value * scale } else { 0.0 };
            }
        });
    }

    /// Whether an element of a node is kept.
    pub fn keeps(&self, node: u32, element: u64) -> bool {
        let words = philox4x32_10(Self::counter(node, element / 8), self.key);
        let word = words[(element % 8 / 2) as usize];
        let bits = if element.is_multiple_of(2) { word as u16 } else { (word >> 16) as u16 };
        u32::from(bits) >= self.threshold
    }

    /// Calls `each` with the random bits of every block of the parts, and the range of its elements among those of all.
    #[inline(always)]
    fn blocks(&self, mut parts: impl Iterator<Item = RowPart>, mut each: impl FnMut(Range<usize>, &[u16])) {
        const GROUP: usize = Dropout::BLOCK * BLOCKS;
        let mut counters = [[0; 4]; BLOCKS];
        // Ranges of the group: the first element among those of all, their number, and their first bit in the group.
        let mut ranges = [(0, 0, 0); BLOCKS];
        let (mut start, mut part) = (0, RowPart { node: 0, first: 0, len: 0 });
        loop {
            let (mut blocks, mut count) = (0, 0);
            'group: while blocks < BLOCKS {
                while part.len == 0 {
                    let Some(next) = parts.next() else { break 'group };
                    part = next;
                }
                let (block, skip) = (part.first / Self::BLOCK as u64, (part.first % Self::BLOCK as u64) as usize);
                let whole = blocks == 0 && skip == 0 && part.len >= GROUP;
                let len = if whole { GROUP } else { (Self::BLOCK - skip).min(part.len) };
                ranges[count] = (start, len, Self::BLOCK * blocks + skip);
                if whole {
                    counters = std::array::from_fn(|i| Self::counter(part.node, block + i as u64));
                    blocks = BLOCKS;
                } else {
                    counters[blocks] = Self::counter(part.node, block);
                    blocks += 1;
                }
                (part.first, part.len) = (part.first + len as u64, part.len - len);
                (start, count) = (start + len, count + 1);
            }
            let words = philox4x32_10_counters(counters, self.key);
            let mut bits = [0u16; GROUP];
            for (pair, &word) in bits.as_chunks_mut::<2>().0.iter_mut().zip(words.as_flattened()) {
                *pair = [word as u16, (word >> 16) as u16];
            }
            for &(start, len, first) in &ranges[..count] {
                each(start..start + len, &bits[first..first + len]);
            }
            if blocks < BLOCKS {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
