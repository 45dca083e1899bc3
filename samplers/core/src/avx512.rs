//! AVX-512 kernels of sixteen lanes: compiled from the portable loops, Floyd's method takes nearly twice as long, and lookups
//! in a direct table 1.5 times as long.

use std::arch::x86_64::*;

use morphgl_platform::philox::{M, W, key};

use crate::lanes::{LANES, Lanes};
use crate::stream::{Row, Stream};
use crate::table::{LocalIds, SEVENTH, prefetch_direct, relabel_direct};

/// Sixteen words, and their odd ones moved to even positions, where the 32-bit multiplication reads.
#[derive(Clone, Copy)]
struct Words {
    even: __m512i,
    odd: __m512i,
}

/// As [`floyd_lanes`](crate::lanes::floyd_lanes), which is the reference.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn floyd_wide(row: &Row, lanes: &Lanes, picks: &mut [[u32; LANES]]) -> u32 {
    let nodes = split(load(&lanes.nodes));
    let one = _mm512_set1_epi32(1);
    // The upper bound of a draw, picked instead if the drawn position was picked before.
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

/// As [`relabel_direct`], which is the reference.
///
/// Sixteen nodes are looked up at a time. A group with the same new node twice, which is rare, is left to the reference.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn relabel_wide(
    table: &mut [u64],
    local_ids: LocalIds<'_>,
    values: &mut [[u32; 2]],
    ids: &mut [u32],
    count: usize,
) -> u32 {
    let LocalIds { nodes, mut len, stamp, bits } = local_ids;
    let first = len as usize;
    assert!(nodes.len() >= first + count && values.len() >= count && ids.len() >= count, "buffers for {count} nodes");
    // An index below `end` has a next word. A table has fewer than 2^31 words: nodes of larger graphs are hashed.
    let end = i32::try_from(table.len().saturating_sub(1)).expect("a table for a small graph");
    let end = _mm512_set1_epi32(end);
    let (tag, stamps) = (_mm512_set1_epi32((stamp << bits) as i32), _mm512_set1_epi32(stamp as i32));
    let whole = count / LANES * LANES;
    for from in (0..whole).step_by(LANES) {
        (from..from + LANES).for_each(|i| prefetch_direct(table, ids, i));
        let chunk: &mut [u32; LANES] = ids[from..].first_chunk_mut().expect("the chunk is whole");
        let node = load(chunk);
        let indices = _mm512_add_epi32(node, sevenths(node));
        let within = _mm512_cmplt_epu32_mask(node, end) & _mm512_cmplt_epu32_mask(indices, end);
        assert!(within == u16::MAX, "a node of {chunk:?} is beyond the graph");
        let [index_a, index_b] = halves(indices);
        let base = table.as_mut_ptr();
        // SAFETY: the assertion above: each index and the next one are in the table. The last gather reads the upper half of
        // the next word, 12 bytes after the indexed one's start.
        let (word_a, word_b, next) = unsafe {
            (
                _mm512_i32gather_epi64::<8>(index_a, base.cast()),
                _mm512_i32gather_epi64::<8>(index_b, base.cast()),
                _mm512_i32gather_epi32::<8>(indices, base.cast::<i32>().add(3)),
            )
        };
        let low = low_halves(word_a, word_b);
        let new = _mm512_cmpneq_epi32_mask(_mm512_srl_epi32(low, _mm_cvtsi32_si128(bits as i32)), stamps);
        let twice = _mm512_conflict_epi32(node);
        let at = len as usize;
        if _mm512_mask_test_epi32_mask(new, twice, twice) != 0 {
            let local_ids = LocalIds { nodes, len, stamp, bits };
            len = relabel_direct(table, local_ids, &mut values[at - first..], chunk, LANES);
            continue;
        }
        let fresh = _mm512_add_epi32(_mm512_maskz_expand_epi32(new, iota()), _mm512_set1_epi32(len as i32));
        store(chunk, _mm512_mask_mov_epi32(_mm512_xor_epi32(low, tag), new, fresh));
        let [(word_a, value_a), (word_b, value_b)] = {
            let ([fresh_a, fresh_b], [next_a, next_b]) = (halves(_mm512_or_epi32(fresh, tag)), halves(next));
            [renew(word_a, fresh_a, next_a), renew(word_b, fresh_b, next_b)]
        };
        let (new_a, new_b) = (new as u8, (new >> 8) as u8);
        let (value_a, value_b) =
            (_mm512_maskz_compress_epi64(new_a, value_a), _mm512_maskz_compress_epi64(new_b, value_b));
        store(nodes[at..].first_chunk_mut().expect("a buffer for all nodes"), _mm512_maskz_compress_epi32(new, node));
        let values = &mut values[at - first..];
        store_values(values, value_a);
        store_values(&mut values[new_a.count_ones() as usize..], value_b);
        // SAFETY: the assertion above: the indices are in the table.
        unsafe {
            _mm512_mask_i32scatter_epi64::<8>(base.cast(), new_a, index_a, word_a);
            _mm512_mask_i32scatter_epi64::<8>(base.cast(), new_b, index_b, word_b);
        }
        len += new.count_ones();
    }
    let local_ids = LocalIds { nodes, len, stamp, bits };
    relabel_direct(table, local_ids, &mut values[len as usize - first..], &mut ids[whole..], count - whole)
}

/// A seventh of each, rounded down: see [`index`](crate::table::index).
#[inline]
#[target_feature(enable = "avx512f")]
fn sevenths(nodes: __m512i) -> __m512i {
    let (nodes, seventh) = (split(nodes), _mm512_set1_epi64(SEVENTH.into()));
    let (even, odd) = (_mm512_mul_epu32(nodes.even, seventh), _mm512_mul_epu32(nodes.odd, seventh));
    _mm512_mask_shuffle_epi32::<0b11_11_01_01>(odd, 0x5555, even)
}

/// The words of a direct table with new lower halves, and the values in their upper halves before the next ones.
#[inline]
#[target_feature(enable = "avx512f")]
fn renew(word: __m512i, low: __m256i, next: __m256i) -> (__m512i, __m512i) {
    let value = _mm512_srli_epi64::<32>(word);
    let word = _mm512_or_epi64(_mm512_slli_epi64::<32>(value), _mm512_cvtepu32_epi64(low));
    (word, _mm512_or_epi64(value, _mm512_slli_epi64::<32>(_mm512_cvtepu32_epi64(next))))
}

/// The lower halves of sixteen words.
#[inline]
#[target_feature(enable = "avx512f")]
fn low_halves(a: __m512i, b: __m512i) -> __m512i {
    _mm512_permutex2var_epi32(a, _mm512_slli_epi32::<1>(iota()), b)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn iota() -> __m512i {
    _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn halves(words: __m512i) -> [__m256i; 2] {
    [_mm512_castsi512_si256(words), _mm512_extracti64x4_epi64::<1>(words)]
}

/// Block `block` of the sampling draws of sixteen nodes, word by word; odd positions are undefined.
#[inline]
#[target_feature(enable = "avx512f")]
fn philox(row: &Row, block: u32, nodes: Words) -> [Words; 4] {
    let [word0, _, word2, word3] = Row { node: 0, ..*row }.counter(Stream::Sampling, block);
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
    // SAFETY: sixteen words are 512 bits, of any alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(to: &mut [u32; LANES], words: __m512i) {
    // SAFETY: as in `load`.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), words) }
}

/// Stores eight values in the first elements.
#[inline]
#[target_feature(enable = "avx512f")]
fn store_values(to: &mut [[u32; 2]], values: __m512i) {
    let to: &mut [[u32; 2]; 8] = to.first_chunk_mut().expect("a buffer for all values");
    // SAFETY: eight values are 512 bits, of any alignment.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), values) }
}
