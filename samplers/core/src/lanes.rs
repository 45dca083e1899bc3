//! Floyd's method for sixteen rows side by side: the portable kernel.

use morphgl_platform::philox::{key, philox4x32_10_lanes};

use crate::stream::{Row, Stream};

/// Rows drawn side by side: one register of the widest SIMD level.
pub const LANES: usize = 16;

/// The largest fanout of [`pick_uniform_lanes`](crate::pick_uniform_lanes), whose work per pick grows with the fanout.
pub const MAX_LANES_FANOUT: usize = 64;

/// Sixteen rows of one hop that each have more neighbours than are picked.
#[derive(Debug, Clone, Copy)]
pub struct Lanes {
    /// The nodes.
    pub nodes: [u32; LANES],
    /// Their degrees, each larger than the number of picks.
    pub degrees: [u32; LANES],
}

/// Floyd's method in every lane; returns a bit mask of the lanes with a word that may be rejected, whose picks are invalid.
#[inline(always)]
pub(crate) fn floyd_lanes(row: &Row, lanes: &Lanes, picks: &mut [[u32; LANES]]) -> u32 {
    let mut rejected = [0; LANES];
    let first = lanes.degrees.map(|degree| degree - picks.len() as u32);
    let mut words = [[0u64; LANES]; 4];
    for i in 0..picks.len() {
        if i % 4 == 0 {
            let [word0, _, word2, word3] = Row { node: 0, ..*row }.counter(Stream::Sampling, i as u32 / 4);
            words = philox4x32_10_lanes([word0, word2, word3], &lanes.nodes, key(row.seed));
        }
        let (before, rest) = picks.split_at_mut(i);
        let word = &words[i % 4];
        let mut last = [0; LANES];
        let mut drawn = [0; LANES];
        let mut taken = [0u32; LANES];
        for l in 0..LANES {
            last[l] = first[l] + i as u32;
            let product = (word[l] & u64::from(u32::MAX)) * (u64::from(last[l]) + 1);
            drawn[l] = (product >> 32) as u32;
            rejected[l] |= u32::from(product as u32 <= last[l]);
        }
        for pick in &*before {
            for l in 0..LANES {
                taken[l] |= u32::from(pick[l] == drawn[l]);
            }
        }
        for l in 0..LANES {
            drawn[l] = if taken[l] != 0 { last[l] } else { drawn[l] };
        }
        for pick in before {
            for l in 0..LANES {
                let (low, high) = (pick[l].min(drawn[l]), pick[l].max(drawn[l]));
                pick[l] = low;
                drawn[l] = high;
            }
        }
        rest[0] = drawn;
    }
    rejected.iter().enumerate().map(|(lane, rejected)| rejected << lane).sum()
}

#[cfg(test)]
mod tests;
