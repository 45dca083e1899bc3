//! The counter of each random number.

use morphgl_platform::philox::{key, philox4x32_10, philox4x32_10_blocks};
use morphgl_registry::BatchId;

/// The purpose of random numbers. Two streams never share a counter. Tags 8 to 15 are free: `morphgl-model-core` draws
/// the numbers of training (initial values, dropout), and distinguishes them by tags in the epoch's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Stream {
    /// Picking the neighbours of a node.
    Sampling = 0,
    /// Retries of rejected numbers of [`Stream::Sampling`].
    SamplingRetry = 1,
    /// The permutation of an epoch's seeds.
    Permutation = 2,
    /// Retries of rejected numbers of [`Stream::Permutation`].
    PermutationRetry = 3,
    /// The steps of random walks.
    Walk = 4,
    /// Retries of rejected numbers of [`Stream::Walk`].
    WalkRetry = 5,
    /// The destinations of negatives: the node's word is the position of the positive in its mini-batch, the hop the attempt.
    Negative = 6,
    /// Retries of rejected numbers of [`Stream::Negative`].
    NegativeRetry = 7,
}

/// Bits of the block within word 0 of the counter.
const BLOCK_BITS: u32 = 22;
/// Bits of the hop within word 0 of the counter.
pub(crate) const HOP_BITS: u32 = 6;

/// One node to be expanded: everything that the random numbers of its row depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Seed of all randomness.
    pub seed: u64,
    /// The mini-batch.
    pub batch: BatchId,
    /// Hop from the seeds: 0 expands the seeds.
    pub hop: u32,
    /// The node, or its draw key in a reordered graph.
    pub node: u32,
    /// Number of the type of the row's edges, where they are sampled by type; else 0.
    pub edge_type: u16,
}

impl Row {
    /// Philox counter of a block of four draws: `stream << 28 | hop << 22 | block`, node, batch index, `edge_type << 16 ^ epoch`.
    #[inline]
    pub fn counter(&self, stream: Stream, block: u32) -> [u32; 4] {
        debug_assert!(self.hop < 1 << HOP_BITS && block < 1 << BLOCK_BITS, "block {block} of {self:?} overflows");
        let word0 = (stream as u32) << (HOP_BITS + BLOCK_BITS) | self.hop << BLOCK_BITS | block;
        [word0, self.node, self.batch.index, u32::from(self.edge_type) << 16 ^ self.batch.epoch]
    }

    /// The four random words of a block.
    #[inline]
    pub fn block(&self, stream: Stream, block: u32) -> [u32; 4] {
        philox4x32_10(self.counter(stream, block), key(self.seed))
    }

    /// The words of blocks `block` to `block + N`.
    #[inline]
    pub fn blocks<const N: usize>(&self, stream: Stream, block: u32) -> [[u32; 4]; N] {
        philox4x32_10_blocks(self.counter(stream, block), key(self.seed))
    }
}

#[cfg(test)]
mod tests;
