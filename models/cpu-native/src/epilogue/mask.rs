//! Dropout in AVX-512 registers: the random bits of 128 elements at a time.
//!
//! Sixteen blocks of Philox4x32-10 (Salmon et al., SC'11) are computed side by side: a word in each 64-bit lane, which holds
//! its 64-bit product, even blocks in one register and odd blocks in another. [`super::mask_avx2`] does the same with eight.

use std::arch::x86_64::*;

use morphgl_model_core::Dropout;
use morphgl_platform::philox::{M, W};

use super::Blocks;

/// Blocks computed at once, of eight elements each.
const BLOCKS: usize = 16;
const ELEMENTS: usize = 8 * BLOCKS;

/// SIMD version of `Dropout::apply`, with the same bits.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn apply(dropout: &Dropout, nodes: &[u32], values: &mut [f32]) {
    let scale = _mm512_set1_ps(dropout.scale());
    let mut blocks = Blocks::new(nodes, values.len());
    loop {
        let (group, mut count) = (blocks.clone(), BLOCKS);
        // Words 0 and 1 of the counters of even and of odd blocks.
        let (counters, range) = if let Some(block) = blocks.of_one_row::<BLOCKS>() {
            let index = _mm512_set1_epi64(i64::from(block.index));
            let even = _mm512_add_epi64(index, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14));
            let node = _mm512_set1_epi64(i64::from(block.node));
            ([[even, node], [_mm512_add_epi64(even, _mm512_set1_epi64(1)), node]], block.start..block.start + block.len)
        } else {
            let (mut words, mut range) = ([[[0u64; BLOCKS / 2]; 2]; 2], 0..0);
            count = 0;
            for block in blocks.by_ref().take(BLOCKS) {
                words[count % 2][0][count / 2] = u64::from(block.index);
                words[count % 2][1][count / 2] = u64::from(block.node);
                range = if count == 0 { block.start } else { range.start }..block.start + block.len;
                count += 1;
            }
            // SAFETY: eight words each.
            (words.map(|half| half.map(|words| unsafe { _mm512_loadu_si512(words.as_ptr().cast()) })), range)
        };
        if count == 0 {
            return;
        }
        let kept = kept(dropout, counters);
        if let Ok(values) = <&mut [f32; ELEMENTS]>::try_from(&mut values[range]) {
            for (values, kept) in values.as_chunks_mut::<16>().0.iter_mut().zip(kept) {
                // SAFETY: 16 elements.
                unsafe {
                    let dropped = _mm512_maskz_mul_ps(kept, _mm512_loadu_ps(values.as_ptr()), scale);
                    _mm512_storeu_ps(values.as_mut_ptr(), dropped);
                }
            }
            continue;
        }
        for (i, block) in group.take(count).enumerate() {
            let values = &mut values[block.start..block.start + block.len];
            let (inside, kept) = ((1u16 << block.len) - 1, kept[i / 2] >> (8 * (i % 2)));
            // SAFETY: as many elements as the mask has bits.
            unsafe {
                let dropped = _mm512_maskz_mul_ps(kept & inside, _mm512_maskz_loadu_ps(inside, values.as_ptr()), scale);
                _mm512_mask_storeu_ps(values.as_mut_ptr(), inside, dropped);
            }
        }
    }
}

/// Bit masks of the kept elements among the 128 of a group; `counters` are words 0 and 1 of its even and odd blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn kept(dropout: &Dropout, counters: [[__m512i; 2]; 2]) -> [u16; 8] {
    let ([_, _, c2, c3], mut key) = (Dropout::counter(0, 0), dropout.key());
    let m = M.map(|m| _mm512_set1_epi64(i64::from(m)));
    let [c2, c3] = [c2, c3].map(|c| _mm512_set1_epi64(i64::from(c)));
    // Words are in the lower halves of the lanes; the upper halves do not matter.
    let mut words = counters.map(|[c0, c1]| [c0, c1, c2, c3]);
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
