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
#[inline(always)]
pub fn philox4x32_10_blocks<const N: usize>(counter: [u32; 4], key: [u32; 2]) -> [[u32; 4]; N] {
    let [first, c1, c2, c3] = counter;
    philox4x32_10_counters(std::array::from_fn(|i| [first.wrapping_add(i as u32), c1, c2, c3]), key)
}

/// The words of each of `N` counters.
///
/// The blocks are computed side by side: a single one is bound by the latency of its multiplications.
// Inlined to be compiled for the SIMD level of its caller.
#[inline(always)]
pub fn philox4x32_10_counters<const N: usize>(counters: [[u32; 4]; N], mut key: [u32; 2]) -> [[u32; 4]; N] {
    let [mut c0, mut c1, mut c2, mut c3]: [[u32; N]; 4] =
        std::array::from_fn(|word| std::array::from_fn(|i| counters[i][word]));
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
mod tests;
