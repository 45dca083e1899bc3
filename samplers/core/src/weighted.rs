//! Weighted picks without replacement.

use morphgl_platform::SimdLevel;

use crate::dispatch;
use crate::early::CHUNK;
use crate::logarithm::ln;
use crate::stream::Row;
use crate::uniform::PickScratch;

/// The largest degree of a weighted pick: each neighbour takes two words of a block.
pub const MAX_WEIGHTED_DEGREE: u64 = 1 << 23;

/// Number of positive weights, counted up to `at_most`.
pub fn count_positive(weights: &[f32], at_most: usize) -> usize {
    weights.iter().filter(|&&w| w > 0.0).take(at_most).count()
}

/// Fills `out` with positions of positive weights, each at most once, ascending.
///
/// The number of picks is the length of `out`. If there are no more positive weights than that, all are picked without a
/// draw; else the picks are distributed as if neighbours were drawn one after another, each with a probability
/// proportional to its weight among the remaining ones (Efraimidis, Spirakis, "Weighted random sampling with a
/// reservoir", IPL 2006).
///
/// Position `p` has two words: lanes `2 * (p % 2)` (low) and `2 * (p % 2) + 1` (high) of block `p / 2`. The upper 52 of
/// these 64 bits are the integer `b`, and the position's time is `-ln((b + 0.5) / 2^52) / weight` in f64, with the
/// logarithm of [`crate::ln`]. The smallest times are picked, of equal ones the smaller positions.
///
/// # Panics
///
/// When `out` is longer than the number of positive weights, or a row with draws has more than
/// [`MAX_WEIGHTED_DEGREE`] neighbours.
///
/// # Complexity
///
/// O(degree) lower bounds of times, in SIMD registers. Where weights are about equal, O(len · (1 + ln(degree / len))) expected
/// exact times, and O(log(len)) per position that enters the heap. Scratch for `len` positions.
pub fn pick_weighted(row: &Row, weights: &[f32], out: &mut [u32], scratch: &mut PickScratch) {
    let len = out.len();
    if len == 0 {
        return;
    }
    if count_positive(weights, len + 1) <= len {
        let positive = weights.iter().zip(0u32..).filter(|(w, _)| **w > 0.0);
        let mut filled = 0;
        for (o, (_, position)) in out.iter_mut().zip(positive) {
            *o = position;
            filled += 1;
        }
        assert_eq!(filled, len, "neighbours to pick, and edges of positive weight");
        return;
    }
    assert!(weights.len() as u64 <= MAX_WEIGHTED_DEGREE, "{} weights overflow the counter", weights.len());
    let (nearest, level) = (&mut scratch.nearest, SimdLevel::current());
    let mut words = [[0; 4]; CHUNK / 2];
    for (first, part) in (0..).step_by(CHUNK).zip(weights.chunks(CHUNK)) {
        let mut chunk = [0.0; CHUNK];
        chunk[..part.len()].copy_from_slice(part);
        let limit = match nearest.peek() {
            Some(&(largest, _)) if nearest.len() == len => f64::from_bits(largest),
            _ => f64::INFINITY,
        };
        let mut early = dispatch::early(level, row, first / 2, &chunk, limit, &mut words);
        while early != 0 {
            let i = early.trailing_zeros() as usize;
            early &= early - 1;
            let [low, high] = [0, 1].map(|half| words[i / 2][i % 2 * 2 + half]);
            if chunk[i] > 0.0 {
                let candidate = (time(low, high, chunk[i]).to_bits(), first + i as u32);
                if nearest.len() < len {
                    nearest.push(candidate);
                } else if let Some(mut largest) = nearest.peek_mut().filter(|largest| candidate < **largest) {
                    *largest = candidate;
                }
            }
        }
    }
    for (o, (_, position)) in out.iter_mut().zip(nearest.drain()) {
        *o = position;
    }
    out.sort_unstable();
}

/// The time of an exponential clock of rate `weight`, given its two words; positive.
fn time(low: u32, high: u32, weight: f32) -> f64 {
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 12;
    let uniform = (bits as f64 + 0.5) * (1.0 / (1u64 << 52) as f64);
    -ln(uniform) / f64::from(weight)
}

#[cfg(test)]
mod tests;
