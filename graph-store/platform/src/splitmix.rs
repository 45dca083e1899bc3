//! SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, §5).

/// The step of SplitMix64's state: output `i` of seed `s` is `splitmix64(s + i * SPLITMIX_STEP)`, modulo 2^64, `i` from 1.
pub const SPLITMIX_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's finalizer: a bijection in which every input bit flips every output bit with probability about 1/2.
///
/// Stable: seeded data sets depend on its bits.
#[inline]
pub const fn splitmix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
