//! Bounds of the times of weighted picks.

use crate::stream::{Row, Stream};

/// Neighbours whose times are bounded side by side.
pub(crate) const CHUNK: usize = 32;

/// Draws the words of [`CHUNK`] neighbours from block `block` on, and returns a bit mask of those whose times may be at most
/// `limit`. All others have later times, or weights that are not positive.
///
/// As `-ln(u) >= 1 - u`, a time is at least `(1 - u) / weight`. Of `1 - u` the upper 24 bits are compared, which f32 holds
/// exactly, with a product that is rounded up by far more than any rounding of the two sides.
#[inline(always)]
pub(crate) fn early_times(
    row: &Row,
    block: u32,
    weights: &[f32; CHUNK],
    limit: f64,
    words: &mut [[u32; 4]; CHUNK / 2],
) -> u32 {
    *words = row.blocks(Stream::Sampling, block);
    // The smallest normal number at least, lest the product of a large weight underflow.
    let limit = ((limit * (1.0 + 1e-6)) as f32).max(f32::MIN_POSITIVE);
    let mut early = [0u32; CHUNK];
    for i in 0..CHUNK {
        let high = words[i / 2][i % 2 * 2 + 1];
        let least = (!high >> 8) as i32 as f32 * (1.0 / (1 << 24) as f32);
        early[i] = u32::from(least <= weights[i] * limit);
    }
    early.iter().enumerate().map(|(i, early)| early << i).sum()
}
