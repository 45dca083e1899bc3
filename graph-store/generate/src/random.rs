//! Counter-based random numbers: every value is a function of a key and an index, so no thread owns a state.
//!
//! A key's value `i` is the `i`-th output of SplitMix64 started at that key (Steele, Lea, Flood, OOPSLA 2014, §5),
//! computed directly: its state after `i` steps is `key + i * SPLITMIX_STEP`.

use morphgl_platform::{SPLITMIX_STEP, splitmix64};

/// Names an endless sequence of random values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u64);

/// What a key is used for, so that no two uses share a sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Rank = 1,
    LabelNoise,
    ClassMean,
    FeatureNoise,
    Split,
    Edges,
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn noise_has_mean_zero_and_variance_one() {
        let key = Key::new(1, Purpose::FeatureNoise);
        let values: Vec<f64> = (0..100_000).map(|i| f64::from(key.noise(i))).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.01, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.01, "variance {variance}");
    }

    #[test]
    fn values_do_not_depend_on_their_neighbours() {
        // The correlation of successive values, and of the same index under successive keys.
        let (a, b) = (Key::new(3, Purpose::Edges), Key::new(4, Purpose::Edges));
        let n = 100_000u64;
        let correlate = |x: &dyn Fn(u64) -> f64, y: &dyn Fn(u64) -> f64| {
            (0..n).map(|i| (x(i) - 0.5) * (y(i) - 0.5)).sum::<f64>() * 12.0 / n as f64
        };
        for r in [
            correlate(&|i| a.unit(i), &|i| a.unit(i + 1)),
            correlate(&|i| a.unit(i), &|i| b.unit(i)),
            correlate(&|i| a.child(i).unit(0), &|i| a.child(i + 1).unit(0)),
        ] {
            assert!(r.abs() < 0.015, "correlation {r}");
        }
    }

    proptest! {
        #[test]
        fn a_permutation_reaches_everything_once(len in 1u64..3000, seed: u64) {
            let permutation = Permutation::new(Key::new(seed, Purpose::Rank), len);
            let mut seen = vec![false; len as usize];
            for i in 0..len {
                seen[permutation.at(i) as usize] = true;
            }
            prop_assert!(seen.iter().all(|&s| s));
        }
    }

    #[test]
    fn a_permutation_spreads_evenly() {
        // Chi-square over a 16 x 16 grid of (i, image): 225 degrees of freedom, mean 225, deviation 21.
        let len = 40_000u64;
        let permutation = Permutation::new(Key::new(5, Purpose::Rank), len);
        let mut cells = [0f64; 256];
        for i in 0..len {
            cells[(i * 16 / len * 16 + permutation.at(i) * 16 / len) as usize] += 1.0;
        }
        let expected = len as f64 / 256.0;
        let chi: f64 = cells.iter().map(|c| (c - expected).powi(2) / expected).sum();
        assert!((140.0..330.0).contains(&chi), "chi-square {chi}");
    }
}
