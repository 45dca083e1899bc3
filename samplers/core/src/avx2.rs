//! Floyd's method in AVX2 registers: sixteen rows side by side, as two halves of eight lanes.

use std::arch::x86_64::*;

use morphgl_platform::philox::{M, W, key};

use crate::lanes::{LANES, Lanes, MAX_LANES_FANOUT};
use crate::stream::{Row, Stream};

/// Lanes of a register.
const HALF: usize = LANES / 2;

/// Eight words, and their odd ones moved to even positions, where the 32-bit multiplication reads.
#[derive(Clone, Copy)]
struct Words {
    even: __m256i,
    odd: __m256i,
}

/// As [`floyd_lanes`](crate::lanes::floyd_lanes), which is the reference.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn floyd_halves(row: &Row, lanes: &Lanes, picks: &mut [[u32; LANES]]) -> u32 {
    assert!(picks.len() <= MAX_LANES_FANOUT, "{} picks per row", picks.len());
    let mut rejected = 0;
    for half in 0..2 {
        rejected |= floyd_of_half(row, lanes, half, picks) << (half * HALF);
    }
    rejected
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn floyd_of_half(row: &Row, lanes: &Lanes, half: usize, picks: &mut [[u32; LANES]]) -> u32 {
    let nodes = split(load(&lanes.nodes, half));
    let one = _mm256_set1_epi32(1);
    // The upper bound of a draw, picked instead if the drawn position was picked before.
    let mut last = _mm256_sub_epi32(load(&lanes.degrees, half), _mm256_set1_epi32(picks.len() as i32));
    let mut rejected = _mm256_setzero_si256();
    let mut words = [nodes; 4];
    for i in 0..picks.len() {
        if i % 4 == 0 {
            words = philox(row, i as u32 / 4, nodes);
        }
        let (before, rest) = picks.split_at_mut(i);
        let (word, count) = (words[i % 4], split(_mm256_add_epi32(last, one)));
        let (even, odd) = (_mm256_mul_epu32(word.even, count.even), _mm256_mul_epu32(word.odd, count.odd));
        let low = _mm256_blend_epi32::<0xaa>(even, _mm256_slli_epi64::<32>(odd));
        let mut drawn = _mm256_blend_epi32::<0xaa>(_mm256_srli_epi64::<32>(even), odd);
        rejected = _mm256_or_si256(rejected, _mm256_cmpeq_epi32(_mm256_min_epu32(low, last), low));
        let mut taken = _mm256_setzero_si256();
        for pick in &*before {
            taken = _mm256_or_si256(taken, _mm256_cmpeq_epi32(load(pick, half), drawn));
        }
        drawn = _mm256_blendv_epi8(drawn, last, taken);
        for pick in before {
            let known = load(pick, half);
            store(pick, half, _mm256_min_epu32(known, drawn));
            drawn = _mm256_max_epu32(known, drawn);
        }
        store(&mut rest[0], half, drawn);
        last = _mm256_add_epi32(last, one);
    }
    _mm256_movemask_ps(_mm256_castsi256_ps(rejected)) as u32
}

/// Block `block` of the sampling draws of eight nodes, word by word; odd positions are undefined.
#[inline]
#[target_feature(enable = "avx2")]
fn philox(row: &Row, block: u32, nodes: Words) -> [Words; 4] {
    let [word0, _, word2, word3] = Row { node: 0, ..*row }.counter(Stream::Sampling, block);
    let same = |word: u32| {
        let word = _mm256_set1_epi64x(word.into());
        Words { even: word, odd: word }
    };
    let [mut c0, mut c2, mut c3] = [word0, word2, word3].map(same);
    let mut c1 = nodes;
    let m = M.map(|m| _mm256_set1_epi64x(m.into()));
    let [mut k0, mut k1] = key(row.seed);
    for _ in 0..10 {
        let key = [k0, k1].map(|k| _mm256_set1_epi64x(k.into()));
        (c0.even, c1.even, c2.even, c3.even) = round([c0.even, c1.even, c2.even, c3.even], m, key);
        (c0.odd, c1.odd, c2.odd, c3.odd) = round([c0.odd, c1.odd, c2.odd, c3.odd], m, key);
        (k0, k1) = (k0.wrapping_add(W[0]), k1.wrapping_add(W[1]));
    }
    [c0, c1, c2, c3]
}

/// One round of four nodes.
#[inline]
#[target_feature(enable = "avx2")]
fn round(c: [__m256i; 4], m: [__m256i; 2], key: [__m256i; 2]) -> (__m256i, __m256i, __m256i, __m256i) {
    let (p0, p1) = (_mm256_mul_epu32(c[0], m[0]), _mm256_mul_epu32(c[2], m[1]));
    let c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64::<32>(p1), c[1]), key[0]);
    let c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64::<32>(p0), c[3]), key[1]);
    (c0, p1, c2, p0)
}

#[inline]
#[target_feature(enable = "avx2")]
fn split(words: __m256i) -> Words {
    Words { even: words, odd: _mm256_srli_epi64::<32>(words) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(words: &[u32; LANES], half: usize) -> __m256i {
    let half: &[u32; HALF] = words[half * HALF..].first_chunk().expect("a half");
    // SAFETY: eight words are 256 bits, of any alignment.
    unsafe { _mm256_loadu_si256(half.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(to: &mut [u32; LANES], half: usize, words: __m256i) {
    let half: &mut [u32; HALF] = to[half * HALF..].first_chunk_mut().expect("a half");
    // SAFETY: as in `load`.
    unsafe { _mm256_storeu_si256(half.as_mut_ptr().cast(), words) }
}
