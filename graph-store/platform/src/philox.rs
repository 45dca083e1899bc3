//! Philox4x32-10: counter-based random numbers, a function of (counter, key) (Salmon et al., "Parallel random numbers:
//! as easy as 1, 2, 3", SC'11).

/// Multipliers of counter words 0 and 2.
pub const M: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Weyl increments of the key's words each round: the golden ratio and the square root of 3, less 1.
pub const W: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The key of a seed: its low word, then its high word.
#[inline]
pub fn key(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

/// Four random words for a counter of four words and a key of two.
///
/// # Complexity
///
/// Ten rounds of two multiplications, no memory.
#[inline]
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [block] = philox4x32_10_blocks(counter, key);
    block
}

/// The words of `N` counters, `counter` and those after it in word 0.
///
/// The blocks are computed side by side, since a single one is bound by the latency of its multiplications.
// Inlined so that it is compiled for the SIMD level of its caller.
#[inline(always)]
pub fn philox4x32_10_blocks<const N: usize>(counter: [u32; 4], mut key: [u32; 2]) -> [[u32; 4]; N] {
    let mut c0: [u32; N] = std::array::from_fn(|i| counter[0].wrapping_add(i as u32));
    let (mut c1, mut c2, mut c3) = ([counter[1]; N], [counter[2]; N], [counter[3]; N]);
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(W[0]), key[1].wrapping_add(W[1])];
        }
        for i in 0..N {
            let p0 = u64::from(M[0]) * u64::from(c0[i]);
            let p1 = u64::from(M[1]) * u64::from(c2[i]);
            c0[i] = (p1 >> 32) as u32 ^ c1[i] ^ key[0];
            c1[i] = p1 as u32;
            c2[i] = (p0 >> 32) as u32 ^ c3[i] ^ key[1];
            c3[i] = p0 as u32;
        }
    }
    std::array::from_fn(|i| [c0[i], c1[i], c2[i], c3[i]])
}

/// One block of each of `N` nodes: word `i` of lane `l` is word `i` of counter `[c[0], nodes[l], c[1], c[2]]`.
///
/// Words are in the lower halves of 64-bit lanes, where their products fit; the upper halves are undefined.
#[inline(always)]
pub fn philox4x32_10_lanes<const N: usize>(c: [u32; 3], nodes: &[u32; N], mut key: [u32; 2]) -> [[u64; N]; 4] {
    const LOW: u64 = u32::MAX as u64;
    let [mut c0, mut c2, mut c3] = c.map(|word| [u64::from(word); N]);
    let mut c1 = nodes.map(u64::from);
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(W[0]), key[1].wrapping_add(W[1])];
        }
        for l in 0..N {
            let p0 = u64::from(M[0]) * (c0[l] & LOW);
            let p1 = u64::from(M[1]) * (c2[l] & LOW);
            c0[l] = p1 >> 32 ^ c1[l] ^ u64::from(key[0]);
            c1[l] = p1;
            c2[l] = p0 >> 32 ^ c3[l] ^ u64::from(key[1]);
            c3[l] = p0;
        }
    }
    [c0, c1, c2, c3]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that Random123 publishes for philox4x32 with ten rounds.
    #[test]
    fn known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32_10(counter, key), expected);
        }
    }

    #[test]
    fn a_key_is_the_seed_s_words() {
        assert_eq!(key(0x0123_4567_89AB_CDEF), [0x89AB_CDEF, 0x0123_4567]);
    }

    #[test]
    fn blocks_follow_one_another_in_word_0() {
        let (counter, key) = ([7, 1, 2, 3], [4, 5]);
        let blocks: [[u32; 4]; 5] = philox4x32_10_blocks(counter, key);
        for (i, block) in blocks.into_iter().enumerate() {
            assert_eq!(block, philox4x32_10([7 + i as u32, 1, 2, 3], key));
        }
    }
}
