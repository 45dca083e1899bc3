//! Weighted picks without replacement.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::logarithm::ln;
use crate::stream::Row;

/// The largest degree of a weighted pick: each neighbour takes two words of a block.
pub const MAX_WEIGHTED_DEGREE: u64 = 1 << 23;

/// Buffers of [`pick_weighted`], used again from row to row.
#[derive(Debug, Default)]
pub struct WeightedScratch {
    // Invariant: empty between two picks.
    nearest: BinaryHeap<Candidate>,
}

/// A neighbour and the time its exponential clock rings at.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    time: f64,
    position: u32,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.time.total_cmp(&other.time).then(self.position.cmp(&other.position))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// Number of positive weights, counted up to `at_most`: what a weighted pick has to choose from.
pub fn count_positive(weights: &[f32], at_most: usize) -> usize {
    weights.iter().filter(|&&w| w > 0.0).take(at_most).count()
}

/// Fills `out` with positions of positive weights, each at most once, ascending.
///
/// As many as `out` has room for. Where `all` says that there are no more positive weights than that, these without a
/// draw; else exactly as if neighbours were drawn one after another, each with a probability proportional to its weight
/// among those that are left (Efraimidis, Spirakis, "Weighted random sampling with a reservoir", IPL 2006).
///
/// Position `p` has two words: lanes `2 * (p % 2)` (low) and `2 * (p % 2) + 1` (high) of block `p / 2`. The upper 52 of
/// these 64 bits are the integer `b`, and the position's time is `-ln((b + 0.5) / 2^52) / weight` in f64, with the
/// logarithm of [`crate::ln`]. The smallest times are picked, of equal ones the smaller positions.
///
/// # Panics
///
/// When `out` is longer than there are positive weights, or a weight that needs a draw lies beyond
/// [`MAX_WEIGHTED_DEGREE`].
///
/// # Complexity
///
/// O(degree · log(len)) time, `len` candidates of scratch.
pub fn pick_weighted(row: &Row, weights: &[f32], out: &mut [u32], scratch: &mut WeightedScratch) {
    let len = out.len();
    if len == 0 {
        return;
    }
    let positive = weights.iter().zip(0u32..).filter(|(w, _)| **w > 0.0);
    if count_positive(weights, len + 1) <= len {
        let mut filled = 0;
        for (o, (_, position)) in out.iter_mut().zip(positive) {
            *o = position;
            filled += 1;
        }
        assert_eq!(filled, len, "neighbours to pick, and edges of positive weight");
        return;
    }
    assert!(weights.len() as u64 <= MAX_WEIGHTED_DEGREE, "{} weights overflow the counter", weights.len());
    let nearest = &mut scratch.nearest;
    let (mut block, mut words) = (u32::MAX, [0; 4]);
    for (&weight, position) in positive {
        if position / 2 != block {
            block = position / 2;
            [words] = row.draws::<1>(block);
        }
        let lane = 2 * (position as usize % 2);
        let candidate = Candidate { time: time(words[lane], words[lane + 1], weight), position };
        if nearest.len() < len {
            nearest.push(candidate);
        } else if let Some(mut last) = nearest.peek_mut().filter(|last| candidate < **last) {
            *last = candidate;
        }
    }
    for (o, candidate) in out.iter_mut().zip(nearest.drain()) {
        *o = candidate.position;
    }
    out.sort_unstable();
}

/// When the exponential clock of rate `weight` rings, given its two words.
fn time(low: u32, high: u32, weight: f32) -> f64 {
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 12;
    let uniform = (bits as f64 + 0.5) * (1.0 / (1u64 << 52) as f64);
    -ln(uniform) / f64::from(weight)
}

#[cfg(test)]
mod tests;
