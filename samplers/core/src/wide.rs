//! Floyd's method in sixteen lanes, by instructions of 512 bits: left to the compiler, it takes nearly twice as long.

use std::arch::x86_64::*;

use crate::lanes::{LANES, Lanes};
use crate::philox::{M, W};
use crate::stream::{Row, Stream, key};

/// Sixteen words, and the odd ones of them in the even places: where the multiplication of 32 bits looks.
#[derive(Clone, Copy)]
struct Words {
    even: __m512i,
    odd: __m512i,
}

/// As [`floyd_lanes`](crate::lanes::floyd_lanes), which is the reference.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn floyd_wide(row: &Row, lanes: &Lanes, picks: &mut [[u32; LANES]]) -> u32 {
    let nodes = split(load(&lanes.nodes));
    let one = _mm512_set1_epi32(1);
    // The position a draw gives way to, the last one it may be.
    let mut last = _mm512_sub_epi32(load(&lanes.degrees), _mm512_set1_epi32(picks.len() as i32));
    let mut rejected: __mmask16 = 0;
    let mut words = [nodes; 4];
    for i in 0..picks.len() {
        if i % 4 == 0 {
            words = philox(row, i as u32 / 4, nodes);
        }
        let (before, rest) = picks.split_at_mut(i);
        let (word, count) = (words[i % 4], split(_mm512_add_epi32(last, one)));
        let (even, odd) = (_mm512_mul_epu32(word.even, count.even), _mm512_mul_epu32(word.odd, count.odd));
        let low = _mm512_mask_shuffle_epi32::<0b10_10_00_00>(even, 0xAAAA, odd);
        let mut drawn = _mm512_mask_shuffle_epi32::<0b11_11_01_01>(odd, 0x5555, even);
        rejected |= _mm512_cmple_epu32_mask(low, last);
        let taken = before.iter().fold(0, |taken, pick| taken | _mm512_cmpeq_epi32_mask(load(pick), drawn));
        drawn = _mm512_mask_mov_epi32(drawn, taken, last);
        for pick in before {
            let known = load(pick);
            store(pick, _mm512_min_epu32(known, drawn));
            drawn = _mm512_max_epu32(known, drawn);
        }
        store(&mut rest[0], drawn);
        last = _mm512_add_epi32(last, one);
    }
    rejected.into()
}

/// Block `block` of the sampling draws of sixteen nodes, word by word; what odd places hold is undefined.
#[inline]
#[target_feature(enable = "avx512f")]
fn philox(row: &Row, block: u32, nodes: Words) -> [Words; 4] {
    let [word0, _, word2, word3] = Row { node: 0, ..*row }.counter(Stream::Sampling, block).words();
    let same = |word: u32| Words { even: _mm512_set1_epi64(word.into()), odd: _mm512_set1_epi64(word.into()) };
    let [mut c0, mut c2, mut c3] = [word0, word2, word3].map(same);
    let mut c1 = nodes;
    let m = M.map(|m| _mm512_set1_epi64(m.into()));
    let [mut k0, mut k1] = key(row.seed);
    for _ in 0..10 {
        let key = [k0, k1].map(|k| _mm512_set1_epi64(k.into()));
        (c0.even, c1.even, c2.even, c3.even) = round([c0.even, c1.even, c2.even, c3.even], m, key);
        (c0.odd, c1.odd, c2.odd, c3.odd) = round([c0.odd, c1.odd, c2.odd, c3.odd], m, key);
        (k0, k1) = (k0.wrapping_add(W[0]), k1.wrapping_add(W[1]));
    }
    [c0, c1, c2, c3]
}

/// One round of eight nodes.
#[inline]
#[target_feature(enable = "avx512f")]
fn round(c: [__m512i; 4], m: [__m512i; 2], key: [__m512i; 2]) -> (__m512i, __m512i, __m512i, __m512i) {
    /// Exclusive or of three.
    const XOR: i32 = 0x96;
    let (p0, p1) = (_mm512_mul_epu32(c[0], m[0]), _mm512_mul_epu32(c[2], m[1]));
    let c0 = _mm512_ternarylogic_epi64::<XOR>(_mm512_srli_epi64::<32>(p1), c[1], key[0]);
    let c2 = _mm512_ternarylogic_epi64::<XOR>(_mm512_srli_epi64::<32>(p0), c[3], key[1]);
    (c0, p1, c2, p0)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn split(words: __m512i) -> Words {
    Words { even: words, odd: _mm512_srli_epi64::<32>(words) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(words: &[u32; LANES]) -> __m512i {
    // SAFETY: sixteen words are 512 bits, which may lie anywhere.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(place: &mut [u32; LANES], words: __m512i) {
    // SAFETY: as in `load`.
    unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), words) }
}
