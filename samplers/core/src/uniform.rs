//! Uniform picks without replacement.

use std::collections::BinaryHeap;

use morphgl_platform::SimdLevel;

use crate::bounded::bounded;
use crate::dispatch;
use crate::lanes::{LANES, Lanes, MAX_LANES_FANOUT};
use crate::stream::{Row, Stream};

/// The largest fanout of a uniform pick that leaves neighbours out: 64 blocks of retries for each draw fit the counter.
pub const MAX_FANOUT: u32 = 1 << 16;

/// Retry blocks of each draw.
const RETRY_BLOCKS: u32 = crate::bounded::RETRIES / 4;

/// Maximum number of picks that are kept sorted while they are drawn; for more, a bitmap records them.
const SMALL: usize = 64;

/// Buffers of a pick, reused from row to row.
#[derive(Debug, Default)]
pub struct PickScratch {
    // Invariant: all bits are 0 between two uniform picks.
    chosen: Vec<u64>,
    /// Times and positions of the best candidates of a weighted pick. A time is positive, so its bits sort as it does.
    // Invariant: empty between two weighted picks.
    pub(crate) nearest: BinaryHeap<(u64, u32)>,
    /// Weights of the edges that are left of a row.
    pub(crate) weights: Vec<f32>,
}

/// Fills `out` with positions in `0..degree`, each at most once, ascending.
///
/// The number of picks `len` is the length of `out`: all positions without a draw if that is the degree, else by Floyd's
/// method (Bentley, Floyd, "A sample of brilliance", CACM 1987). Draw `i` is uniform in `0..=j` with
/// `j = degree - len + i`; if the position was chosen before, `j` is picked instead. Every subset is equally likely, every position in it with
/// probability `len / degree`.
///
/// # Panics
///
/// When `out` is longer than `degree`, or than [`MAX_FANOUT`] and shorter than `degree`.
///
/// # Complexity
///
/// O(len · min(len, 64)) time for small picks; O(len + degree / 64) beyond 64 picks, with `degree` bits of scratch.
pub fn pick_uniform(row: &Row, degree: u32, out: &mut [u32], scratch: &mut PickScratch) {
    let len = out.len();
    assert!(len <= degree as usize, "{len} neighbours cannot be picked from {degree}");
    if len == degree as usize {
        out.iter_mut().zip(0..).for_each(|(o, position)| *o = position);
        return;
    }
    assert!(len <= MAX_FANOUT as usize, "{len} draws overflow the counter");
    if len <= SMALL { small(row, degree, out) } else { large(row, degree, out, &mut scratch.chosen) }
}

/// Calls `each` with (j, number drawn from `0..=j`), draw after draw.
#[inline(always)]
fn floyd(row: &Row, degree: u32, len: usize, mut each: impl FnMut(usize, u32, u32)) {
    let first = degree - len as u32;
    let mut run = |from: usize, words: &[[u32; 4]]| {
        for (i, &word) in words.as_flattened().iter().enumerate().take(len - from) {
            let i = from + i;
            let j = first + i as u32;
            let retry = |r: u32| {
                let block = i as u32 * RETRY_BLOCKS + r / 4;
                row.block(Stream::SamplingRetry, block)[r as usize % 4]
            };
            each(i, j, bounded(j + 1, word, retry));
        }
    };
    // Blocks are drawn four at a time, except the last ones.
    let mut from = 0;
    while from < len {
        let block = from as u32 / 4;
        match len - from {
            1..=4 => run(from, &row.blocks::<1>(Stream::Sampling, block)),
            5..=8 => run(from, &row.blocks::<2>(Stream::Sampling, block)),
            9..=12 => run(from, &row.blocks::<3>(Stream::Sampling, block)),
            _ => run(from, &row.blocks::<4>(Stream::Sampling, block)),
        }
        from += 16;
    }
}

/// Keeps the picks sorted by insertion; `j` is larger than all picks before it.
fn small(row: &Row, degree: u32, out: &mut [u32]) {
    floyd(row, degree, out.len(), |i, j, drawn| {
        let at = out[..i].iter().take_while(|&&p| p < drawn).count();
        if at < i && out[at] == drawn {
            out[i] = j;
        } else {
            out.copy_within(at..i, at + 1);
            out[at] = drawn;
        }
    });
}

/// Marks the picks in a bitmap, and reads them off in order.
fn large(row: &Row, degree: u32, out: &mut [u32], chosen: &mut Vec<u64>) {
    let words = (degree as usize).div_ceil(64);
    if chosen.len() < words {
        chosen.resize(words, 0);
    }
    floyd(row, degree, out.len(), |_, j, drawn| {
        let taken = chosen[drawn as usize / 64] >> (drawn % 64) & 1 == 1;
        let position = if taken { j } else { drawn };
        chosen[position as usize / 64] |= 1 << (position % 64);
    });
    let mut next = out.iter_mut();
    for (w, word) in chosen[..words].iter_mut().enumerate() {
        while *word != 0 {
            let position = w as u32 * 64 + word.trailing_zeros();
            *next.next().expect("as many bits are set as there are picks") = position;
            *word &= *word - 1;
        }
    }
}

/// Picks `picks.len()` neighbours of each of sixteen rows, exactly those [`pick_uniform`] picks: `picks[i][lane]` is the
/// `i`-th position of the row of `lanes.nodes[lane]`, ascending in `i`. Seed, mini-batch and hop are those of `row`; its
/// node does not matter.
///
/// SIMD over the rows, without branches that depend on the draws. A row with a rejected word (of `n` numbers, one word in
/// `2^32 / n`) is picked again by `pick_uniform`.
///
/// # Panics
///
/// When there are more than [`MAX_LANES_FANOUT`] picks, or a degree is not larger than their number.
///
/// # Complexity
///
/// O(fanout²) vector operations for sixteen rows, no memory beyond the stack.
pub fn pick_uniform_lanes(row: &Row, lanes: &Lanes, picks: &mut [[u32; LANES]]) {
    assert!(picks.len() <= MAX_LANES_FANOUT, "{} picks per row are more than {MAX_LANES_FANOUT}", picks.len());
    let min_degree = lanes.degrees.iter().min().copied().unwrap_or(0);
    assert!(min_degree as usize > picks.len(), "{} picks of a row of {min_degree} neighbours", picks.len());
    let mut rejected = dispatch::floyd(SimdLevel::current(), row, lanes, picks);
    while rejected != 0 {
        let lane = rejected.trailing_zeros() as usize;
        rejected &= rejected - 1;
        let mut positions = [0; MAX_LANES_FANOUT];
        let positions = &mut positions[..picks.len()];
        let row = Row { node: lanes.nodes[lane], ..*row };
        pick_uniform(&row, lanes.degrees[lane], positions, &mut PickScratch::default());
        picks.iter_mut().zip(positions).for_each(|(pick, position)| pick[lane] = *position);
    }
}

#[cfg(test)]
mod tests;
