//! Seeded numbers that are a function of their index, the same on every machine.

use morphgl_platform::{SPLITMIX_STEP, splitmix64};

use crate::{RandomLabels, RandomSplit};

/// The `index`-th number of the sequence `seed`.
pub(crate) fn hash(seed: u64, index: u64) -> u64 {
    let z = splitmix64(seed ^ 0x6d6f_7270_6867_6c00).wrapping_add(index.wrapping_mul(SPLITMIX_STEP));
    splitmix64(splitmix64(z))
}

/// A value of zero mean and unit variance, in ±3.5: a sum of four uniform numbers, so that it does not depend on a libm.
pub(crate) fn normal(seed: u64, index: u64) -> f32 {
    let bits = hash(seed, index);
    let sum: u64 = (0..4).map(|i| bits >> (16 * i) & 0xffff).sum();
    let deviation = (4.0 * (65536.0f64 * 65536.0 - 1.0) / 12.0).sqrt();
    ((sum as f64 - 2.0 * 65535.0) / deviation) as f32
}

/// A whole number below `bound`, uniform to within 2^-64 of the bound.
fn below(seed: u64, index: u64, bound: u64) -> u64 {
    ((u128::from(hash(seed, index)) * u128::from(bound)) >> 64) as u64
}

/// A node's class, uniform over all classes.
pub(crate) fn class(labels: &RandomLabels, node: u64) -> i32 {
    // Makes labels independent of features and splits of the same seed.
    below(labels.seed ^ 0x6c61_6265_6c73, node, labels.num_classes as u64) as i32
}

/// Shuffles `nodes` and cuts them into train, valid and test, each in ascending order.
pub(crate) fn split(mut nodes: Vec<u32>, shares: &RandomSplit) -> [Vec<u32>; 3] {
    let n = nodes.len();
    for i in (1..n).rev() {
        nodes.swap(i, below(shares.seed, i as u64, i as u64 + 1) as usize);
    }
    let upto = |share: f64| ((share * n as f64).round() as usize).min(n);
    let (a, b) = (upto(shares.train), upto(shares.train + shares.valid));
    let c = upto(shares.train + shares.valid + shares.test);
    [0..a, a..b, b..c].map(|range| {
        let mut part = nodes[range].to_vec();
        part.sort_unstable();
        part
    })
}

#[cfg(test)]
mod tests;
