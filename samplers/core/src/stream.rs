//! The counter of each random number.

use morphgl_registry::BatchId;

use morphgl_platform::philox::{key, philox4x32_10, philox4x32_10_blocks};

/// What random numbers are drawn for. Two streams never share a counter. Tags 4 to 15 are free:
/// the numbers of training (initial values, dropout) are `morphgl-model-spec`'s, told apart by tags in the epoch's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Stream {
    /// Picking the neighbours of a node.
    Sampling = 0,
    /// What replaces a rejected number of [`Stream::Sampling`].
    SamplingRetry = 1,
    /// The permutation of an epoch's seeds.
    Permutation = 2,
    /// What replaces a rejected number of [`Stream::Permutation`].
    PermutationRetry = 3,
}

/// Bits of the block within word 0 of the counter.
pub const BLOCK_BITS: u32 = 22;
/// Bits of the hop within word 0 of the counter.
pub const HOP_BITS: u32 = 6;

/// The place of four random words: the counter's four words, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// What they are for, 4 bits.
    pub stream: Stream,
    /// Hop from the seeds, below 2^6.
    pub hop: u32,
    /// Block of four draws, below 2^22.
    pub block: u32,
    /// The node whose neighbours are picked.
    pub node: u32,
    /// Epoch and index of the mini-batch.
    pub batch: BatchId,
}

impl Counter {
    /// The four words: `stream << 28 | hop << 22 | block`, node, batch index, epoch.
    #[inline]
    pub fn words(&self) -> [u32; 4] {
        debug_assert!(self.hop < 1 << HOP_BITS && self.block < 1 << BLOCK_BITS, "the counter overflows: {self:?}");
        let word0 = (self.stream as u32) << (HOP_BITS + BLOCK_BITS) | self.hop << BLOCK_BITS | self.block;
        [word0, self.node, self.batch.index, self.batch.epoch]
    }

    /// The four random words of this place under `seed`.
    #[inline]
    pub fn draw(&self, seed: u64) -> [u32; 4] {
        philox4x32_10(self.words(), key(seed))
    }
}

/// One node to be expanded: all that the random numbers of its row depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Seed of all randomness.
    pub seed: u64,
    /// The mini-batch.
    pub batch: BatchId,
    /// Hop from the seeds: 0 expands the seeds.
    pub hop: u32,
    /// The node.
    pub node: u32,
}

impl Row {
    /// Place of a block of this row's numbers.
    #[inline]
    pub fn counter(&self, stream: Stream, block: u32) -> Counter {
        Counter { stream, hop: self.hop, block, node: self.node, batch: self.batch }
    }

    /// `4 * N` sampling draws from draw `4 * block` on.
    #[inline]
    pub fn draws<const N: usize>(&self, block: u32) -> [[u32; 4]; N] {
        philox4x32_10_blocks(self.counter(Stream::Sampling, block).words(), key(self.seed))
    }
}

#[cfg(test)]
mod tests;
