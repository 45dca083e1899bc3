//! Random numbers and a small block with difficult rows.

use morphgl_registry::Block;

/// Numbers in [-1, 1), fixed by `seed`.
pub(crate) fn random(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// Seven source nodes, four rows: one empty, one with an edge twice, one with an edge to itself.
pub(crate) fn block() -> Block {
    Block {
        num_dst: 4,
        num_src: 7,
        indptr: vec![0, 3, 3, 6, 9],
        indices: vec![4, 0, 5, 1, 6, 6, 2, 3, 4],
        weights: Some(vec![1.0, 0.5, 2.0, 1.5, 0.25, 0.75, 1.0, 3.0, 0.5]),
        ..Block::default()
    }
}
