//! Counter-based random numbers: every value is a function of a key and an index, without a state.
//!
//! A key's value `i` is the `i`-th output of SplitMix64 started at that key (Steele, Lea, Flood, OOPSLA 2014, §5),
//! computed directly: its state after `i` steps is `key + i * SPLITMIX_STEP`.

use morphgl_platform::{SPLITMIX_STEP, splitmix64};

/// Key of an endless sequence of random values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u64);

/// Purpose of a key, so that no two purposes share a sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Rank = 1,
    LabelNoise,
    ClassMean,
    FeatureNoise,
    Split,
    Edges,
    NodeType,
}

impl Key {
    pub(crate) fn new(seed: u64, purpose: Purpose) -> Self {
        Self(splitmix64(seed.wrapping_add(SPLITMIX_STEP))).child(purpose as u64)
    }

    /// Derives the key of the `i`-th part.
    pub(crate) fn child(self, i: u64) -> Self {
        Self(splitmix64(self.0 ^ splitmix64(i.wrapping_add(SPLITMIX_STEP))))
    }

    /// The `i`-th value, 64 random bits.
    pub(crate) fn value(self, i: u64) -> u64 {
        splitmix64(self.0.wrapping_add(i.wrapping_mul(SPLITMIX_STEP)))
    }

    /// The `i`-th value as a number in (0, 1).
    pub(crate) fn unit(self, i: u64) -> f64 {
        ((self.value(i) >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
    }

    /// The `i`-th value as noise of mean 0 and variance 1: the sum of its four 16-bit words (Irwin-Hall), which is
    /// near a normal, costs one multiplication more than the bits, and is the same on every platform as no `ln` is.
    pub(crate) fn noise(self, i: u64) -> f32 {
        // Four uniform integers below 2^16 have mean 131070 and variance (2^32 - 1) / 3.
        const SCALE: f32 = 1.0 / 37_837.227;
        let x = self.value(i);
        let pairs = (x & 0x0000_FFFF_0000_FFFF) + ((x >> 16) & 0x0000_FFFF_0000_FFFF);
        let sum = (pairs & 0xFFFF_FFFF) + (pairs >> 32);
        (sum as i32 - 131_070) as f32 * SCALE
    }
}

/// Scales 32 random bits to an index below `len`.
pub(crate) fn index(bits: u32, len: usize) -> usize {
    ((u64::from(bits) * len as u64) >> 32) as usize
}

/// A keyed permutation of `0..len`, computed and not stored: a Feistel network on the next power of two, walked until
/// it comes back into the range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permutation {
    key: Key,
    len: u64,
    low_bits: u32,
    high_mask: u64,
    low_mask: u64,
}

impl Permutation {
    pub(crate) fn new(key: Key, len: u64) -> Self {
        let bits = (64 - len.saturating_sub(1).leading_zeros()).max(2);
        let low_bits = bits / 2;
        Self { key, len, low_bits, high_mask: (1 << (bits - low_bits)) - 1, low_mask: (1 << low_bits) - 1 }
    }

    /// The image of `i`.
    ///
    /// # Complexity
    ///
    /// Expected below two walks of six rounds, since less than half of the power of two lies outside the range.
    pub(crate) fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.len, "{i} is not below {}", self.len);
        let mut x = i;
        loop {
            let (mut high, mut low) = (x >> self.low_bits, x & self.low_mask);
            for round in 0..3 {
                high ^= self.key.value(low << 3 | round) & self.high_mask;
                low ^= self.key.value(high << 3 | (round + 4)) & self.low_mask;
            }
            x = high << self.low_bits | low;
            if x < self.len {
                return x;
            }
        }
    }

    /// The number whose image is `i`, at the cost of an image.
    pub(crate) fn inverse(&self, i: u64) -> u64 {
        debug_assert!(i < self.len, "{i} is not below {}", self.len);
        let mut x = i;
        loop {
            let (mut high, mut low) = (x >> self.low_bits, x & self.low_mask);
            for round in (0..3).rev() {
                low ^= self.key.value(high << 3 | (round + 4)) & self.low_mask;
                high ^= self.key.value(low << 3 | round) & self.high_mask;
            }
            x = high << self.low_bits | low;
            if x < self.len {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests;
