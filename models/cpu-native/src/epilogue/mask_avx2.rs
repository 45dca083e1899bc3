//! Dropout in AVX2 registers: the random bits of 64 elements at a time, from eight blocks of Philox4x32-10 side by side.

use std::arch::x86_64::*;

use morphgl_model_core::Dropout;
use morphgl_platform::philox::{M, W};

use super::Blocks;

/// Blocks computed at once, of eight elements each.
const BLOCKS: usize = 8;

/// SIMD version of `Dropout::apply`, with the same bits.
#[target_feature(enable = "avx2,fma")]
pub(super) fn apply(dropout: &Dropout, nodes: &[u32], values: &mut [f32]) {
    let scale = _mm256_set1_ps(dropout.scale());
    let mut blocks = Blocks::new(nodes, values.len());
    loop {
        let (group, mut count) = (blocks.clone(), BLOCKS);
        // Words 0 and 1 of the counters of even and of odd blocks.
        let counters = if let Some(block) = blocks.of_one_row::<BLOCKS>() {
            let index = _mm256_set1_epi64x(i64::from(block.index));
            let even = _mm256_add_epi64(index, _mm256_setr_epi64x(0, 2, 4, 6));
            let node = _mm256_set1_epi64x(i64::from(block.node));
            [[even, node], [_mm256_add_epi64(even, _mm256_set1_epi64x(1)), node]]
        } else {
            let mut words = [[[0u64; BLOCKS / 2]; 2]; 2];
            count = 0;
            for block in blocks.by_ref().take(BLOCKS) {
                words[count % 2][0][count / 2] = u64::from(block.index);
                words[count % 2][1][count / 2] = u64::from(block.node);
                count += 1;
            }
            // SAFETY: four words each.
            words.map(|half| half.map(|words| unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }))
        };
        if count == 0 {
            return;
        }
        let kept = kept(dropout, counters);
        for (block, kept) in group.take(count).zip(kept) {
            let values = &mut values[block.start..block.start + block.len];
            if let Ok(values) = <&mut [f32; Dropout::BLOCK]>::try_from(&mut *values) {
                let kept = _mm256_castsi256_ps(_mm256_cvtepi16_epi32(kept));
                // SAFETY: eight elements.
                unsafe {
                    let scaled = _mm256_mul_ps(_mm256_loadu_ps(values.as_ptr()), scale);
                    _mm256_storeu_ps(values.as_mut_ptr(), _mm256_and_ps(scaled, kept));
                }
            } else {
                let bits = _mm_movemask_epi8(_mm_packs_epi16(kept, kept));
                for (i, value) in values.iter_mut().enumerate() {
                    *value = if bits >> i & 1 == 1 { *value * dropout.scale() } else { 0.0 };
                }
            }
        }
    }
}

/// Masks of the 64 elements of a group, a register for each block of 8; all 16 bits of a kept element are set. `counters` are
/// words 0 and 1 of its even and odd blocks.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn kept(dropout: &Dropout, counters: [[__m256i; 2]; 2]) -> [__m128i; BLOCKS] {
    let ([_, _, c2, c3], mut key) = (Dropout::counter(0, 0), dropout.key());
    let m = M.map(|m| _mm256_set1_epi64x(i64::from(m)));
    let [c2, c3] = [c2, c3].map(|c| _mm256_set1_epi64x(i64::from(c)));
    // Words are in the lower halves of the lanes; the upper halves do not matter.
    let mut words = counters.map(|[c0, c1]| [c0, c1, c2, c3]);
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(W[0]), key[1].wrapping_add(W[1])];
        }
        let k = key.map(|k| _mm256_set1_epi64x(i64::from(k)));
        for [c0, c1, c2, c3] in &mut words {
            let (p0, p1) = (_mm256_mul_epu32(m[0], *c0), _mm256_mul_epu32(m[1], *c2));
            let (high0, high1) = (_mm256_srli_epi64::<32>(p0), _mm256_srli_epi64::<32>(p1));
            *c0 = _mm256_xor_si256(_mm256_xor_si256(high1, *c1), k[0]);
            *c2 = _mm256_xor_si256(_mm256_xor_si256(high0, *c3), k[1]);
            (*c1, *c3) = (p1, p0);
        }
    }
    let [even, odd] = words;
    let [w0, w1, w2, w3]: [__m256i; 4] =
        std::array::from_fn(|w| _mm256_blend_epi32::<0xaa>(even[w], _mm256_slli_epi64::<32>(odd[w])));
    // Register j has the words of blocks j and 4 + j.
    let (low01, low23) = (_mm256_unpacklo_epi32(w0, w1), _mm256_unpacklo_epi32(w2, w3));
    let (high01, high23) = (_mm256_unpackhi_epi32(w0, w1), _mm256_unpackhi_epi32(w2, w3));
    let threshold = _mm256_set1_epi16(dropout.threshold() as i16);
    let blocks = [
        _mm256_unpacklo_epi64(low01, low23),
        _mm256_unpackhi_epi64(low01, low23),
        _mm256_unpacklo_epi64(high01, high23),
        _mm256_unpackhi_epi64(high01, high23),
    ]
    // AVX2 has no unsigned comparison: bits >= threshold where their maximum equals the bits.
    .map(|bits| _mm256_cmpeq_epi16(_mm256_max_epu16(bits, threshold), bits));
    std::array::from_fn(|block| match block {
        0..4 => _mm256_castsi256_si128(blocks[block]),
        _ => _mm256_extracti128_si256::<1>(blocks[block - 4]),
    })
}
