//! Dropout in AVX-512 registers: the random bits of 128 elements at a time.
//!
//! Sixteen blocks of Philox4x32-10 (Salmon et al., SC'11) are computed side by side: a word in each 64-bit lane, which holds
//! its 64-bit product, even blocks in one register and odd blocks in another. [`super::mask_avx2`] does the same with eight.

use std::arch::x86_64::*;

use morphgl_model_spec::Dropout;
use morphgl_platform::philox::{M, W};

/// Blocks computed at once, of eight elements each.
const BLOCKS: usize = 16;
const ELEMENTS: usize = 8 * BLOCKS;

/// Does what `Dropout::apply` does.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn apply(dropout: &Dropout, first: u64, values: &mut [f32]) {
    let scale = _mm512_set1_ps(dropout.scale());
    let (mut rest, mut element) = (values, first);
    while !rest.is_empty() {
        let skip = (element % ELEMENTS as u64) as usize;
        let (values, behind) = rest.split_at_mut((ELEMENTS - skip).min(rest.len()));
        let kept = kept(dropout, element / ELEMENTS as u64);
        if let Ok(values) = <&mut [f32; ELEMENTS]>::try_from(&mut *values) {
            for (values, kept) in values.as_chunks_mut::<16>().0.iter_mut().zip(kept) {
                // SAFETY: 16 elements.
                unsafe {
                    let dropped = _mm512_maskz_mul_ps(kept, _mm512_loadu_ps(values.as_ptr()), scale);
                    _mm512_storeu_ps(values.as_mut_ptr(), dropped);
                }
            }
        } else {
            for (i, value) in (skip..).zip(values.iter_mut()) {
                *value = if kept[i / 16] >> (i % 16) & 1 == 1 { *value * dropout.scale() } else { 0.0 };
            }
        }
        element += values.len() as u64;
        rest = behind;
    }
}

/// Bit masks of the kept elements among the 128 of a group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn kept(dropout: &Dropout, group: u64) -> [u16; 8] {
    let ([c0, c1, c2, c3], mut key) = dropout.philox(group * BLOCKS as u64);
    let m = M.map(|m| _mm512_set1_epi64(i64::from(m)));
    let even = _mm512_add_epi64(_mm512_set1_epi64(i64::from(c0)), _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14));
    let others = [c1, c2, c3].map(|c| _mm512_set1_epi64(i64::from(c)));
    // Words are in the lower halves of the lanes; the upper halves do not matter.
    let mut words =
        [even, _mm512_add_epi64(even, _mm512_set1_epi64(1))].map(|c0| [c0, others[0], others[1], others[2]]);
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(W[0]), key[1].wrapping_add(W[1])];
        }
        let k = key.map(|k| _mm512_set1_epi64(i64::from(k)));
        for [c0, c1, c2, c3] in &mut words {
            let (p0, p1) = (_mm512_mul_epu32(m[0], *c0), _mm512_mul_epu32(m[1], *c2));
            // 0x96: a ^ b ^ c. The shuffle moves the upper halves down, on another port than the multiplications.
            *c0 = _mm512_ternarylogic_epi64::<0x96>(_mm512_shuffle_epi32::<0b11_11_01_01>(p1), *c1, k[0]);
            *c2 = _mm512_ternarylogic_epi64::<0x96>(_mm512_shuffle_epi32::<0b11_11_01_01>(p0), *c3, k[1]);
            (*c1, *c3) = (p1, p0);
        }
    }
    let [even, odd] = words;
    let [w0, w1, w2, w3]: [__m512i; 4] =
        std::array::from_fn(|w| _mm512_mask_blend_epi32(0xaaaa, even[w], _mm512_slli_epi64::<32>(odd[w])));
    // Register j has the words of blocks j, 4 + j, 8 + j and 12 + j.
    let (low01, low23) = (_mm512_unpacklo_epi32(w0, w1), _mm512_unpacklo_epi32(w2, w3));
    let (high01, high23) = (_mm512_unpackhi_epi32(w0, w1), _mm512_unpackhi_epi32(w2, w3));
    let blocks = [
        _mm512_unpacklo_epi64(low01, low23),
        _mm512_unpackhi_epi64(low01, low23),
        _mm512_unpacklo_epi64(high01, high23),
        _mm512_unpackhi_epi64(high01, high23),
    ];
    let threshold = _mm512_set1_epi16(dropout.threshold() as i16);
    let bits = blocks.map(|bits| _mm512_cmpge_epu16_mask(bits, threshold).to_le_bytes());
    std::array::from_fn(|i| u16::from_le_bytes([bits[i % 2 * 2][i / 2], bits[i % 2 * 2 + 1][i / 2]]))
}
