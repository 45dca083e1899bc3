//! Kernels: which scores of a tile of queries and a panel of candidates are above those of the targets, and which are open.

use std::arch::x86_64::*;
use std::array::from_fn;
use std::hint::black_box;
use std::ops::Range;

use morphgl_platform::SimdLevel;

use super::{Basis, Bound, Bounds, FEW, Group, LANES, Lanes, Limits, Panels, QUAD, Quads, Sides, Tally, pack};
use crate::all_pairs::{PairScore, Rows, TargetRank};

/// How 8-bit products are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::all_pairs) enum Kernel {
    /// AVX2: two products in 16 bits (`vpmaddubsw`), those of a block modulo 2¹⁶, blocks in 32 bits.
    Avx2,
    /// AVX-VNNI: four products in 32 bits (`vpdpbusd`), eight lanes at a time.
    AvxVnni,
    /// AVX-512 VNNI: four products in 32 bits (`vpdpbusd`).
    Vnni,
}

/// Maximum number of quads of a block, of which a lane of 16 bits has 2 · 8 products.
const BLOCK: usize = 8;
/// The norm of the scaled elements of a lane's block. Rounding adds at most 1/2 to each of 16 codes, 2 to their norm: by Cauchy and
/// Schwarz the sum of products is at most 181² < 2¹⁵, so it is exact modulo 2¹⁶.
const BLOCK_NORM: f32 = 179.0;
/// The largest code with which two products, of candidates' codes with this bias, are below 2¹⁵: 2 · 180 · 90.
const BLOCK_CODE: u8 = 90;

/// Queries of a tile: their sums of two vectors of candidates stay in registers.
const AVX2_ROWS: usize = 4;
const AVX_VNNI_ROWS: usize = 6;
const VNNI_ROWS: usize = 8;

impl Kernel {
    /// The kernels of a level, the fastest last.
    pub(in crate::all_pairs) fn available(level: SimdLevel) -> impl DoubleEndedIterator<Item = Self> {
        let vnni = level >= SimdLevel::Avx512 && is_x86_feature_detected!("avx512vnni");
        let avx_vnni = level >= SimdLevel::Avx2 && is_x86_feature_detected!("avxvnni");
        let all = [(Self::Avx2, level >= SimdLevel::Avx2), (Self::AvxVnni, avx_vnni), (Self::Vnni, vnni)];
        all.into_iter().filter_map(|(kernel, available)| available.then_some(kernel))
    }

    /// What an open score takes, over what an f32 tile takes for a score, per element: of [`choose`](super::choose).
    pub(super) fn elements_per_open(self) -> u64 {
        match self {
            Self::Avx2 | Self::AvxVnni => 5,
            Self::Vnni => 8,
        }
    }

    /// Number of quads of a block, in a row of `quads` quads.
    pub(super) fn block(self, quads: usize) -> usize {
        if self == Self::Avx2 { quads.div_ceil(quads.div_ceil(BLOCK)) } else { quads }
    }

    /// Limits of the codes of rows of so many quads.
    pub(super) fn limits(self, quads: usize) -> Limits {
        match self {
            Self::Avx2 => {
                let block = Some((self.block(quads), BLOCK_NORM));
                Limits { code: f32::from(BLOCK_CODE), bias: BLOCK_CODE, block }
            }
            Self::AvxVnni | Self::Vnni => Limits { code: 127.0, bias: 128, block: None },
        }
    }

    /// What the sum of a block begins with, less the products of a quad's codes with the candidates' bias.
    #[inline(always)]
    pub(super) fn without_bias(self, start: i32, bias: u8, codes: [i8; QUAD]) -> i32 {
        let (bias, codes) = (i32::from(bias), codes.map(i32::from));
        match self {
            Self::Avx2 => {
                let [low, high] = [codes[0] + codes[1], codes[2] + codes[3]].map(|sum| (sum * bias) as i16);
                let [before_low, before_high] = [start as i16, (start >> 16) as i16];
                let [low, high] = [before_low.wrapping_sub(low), before_high.wrapping_sub(high)];
                i32::from(low as u16) | i32::from(high) << 16
            }
            Self::AvxVnni | Self::Vnni => start - bias * codes.iter().sum::<i32>(),
        }
    }
}

impl Bounds {
    /// Packs the first of the nodes into a panel.
    pub(super) fn pack(&self, rows: Rows<'_>, nodes: Range<usize>, lanes: &mut Lanes, quads: &mut [Quads]) {
        let by = (self.basis.as_ref(), self.kernel.limits(quads.len()));
        match self.kernel {
            // SAFETY: the processor has the instructions of an available kernel.
            Kernel::Avx2 | Kernel::AvxVnni => unsafe { pack_avx2(rows, nodes, by, lanes, quads) },
            // SAFETY: as above.
            Kernel::Vnni => unsafe { pack_avx512(rows, nodes, by, lanes, quads) },
        }
    }

    /// Adds the candidates of the panels above and equal to each pair's target.
    pub(super) fn count(
        &self,
        rows: Rows<'_>,
        pairs: &[[u32; 2]],
        score: PairScore<'_>,
        panels: Panels<'_>,
        ranks: &mut [TargetRank],
    ) -> Tally {
        match self.kernel {
            // SAFETY: as above.
            Kernel::Avx2 => unsafe { count_avx2(rows, pairs, (score, self), panels, ranks) },
            // SAFETY: as above.
            Kernel::AvxVnni => unsafe { count_avx_vnni(rows, pairs, (score, self), panels, ranks) },
            // SAFETY: as above.
            Kernel::Vnni => unsafe { count_vnni(rows, pairs, (score, self), panels, ranks) },
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn pack_avx2(
    rows: Rows<'_>,
    nodes: Range<usize>,
    by: (Option<&Basis>, Limits),
    lanes: &mut Lanes,
    quads: &mut [Quads],
) {
    pack(rows, nodes, by, lanes, quads);
}

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn pack_avx512(
    rows: Rows<'_>,
    nodes: Range<usize>,
    by: (Option<&Basis>, Limits),
    lanes: &mut Lanes,
    quads: &mut [Quads],
) {
    pack(rows, nodes, by, lanes, quads);
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn count_avx2(
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    (score, bounds): (PairScore<'_>, &Bounds),
    panels: Panels<'_>,
    ranks: &mut [TargetRank],
) -> Tally {
    let group = Group::<AVX2_ROWS>::new(rows, pairs, score, bounds);
    group.count(rows, panels, ranks, |a, b| dots_256(a, b), |panel, tile, sides| tile_avx2(panel, tile, sides))
}

#[target_feature(enable = "avx2,avxvnni,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn count_avx_vnni(
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    (score, bounds): (PairScore<'_>, &Bounds),
    panels: Panels<'_>,
    ranks: &mut [TargetRank],
) -> Tally {
    let group = Group::<AVX_VNNI_ROWS>::new(rows, pairs, score, bounds);
    group.count(rows, panels, ranks, |a, b| dots_256(a, b), |panel, tile, sides| tile_avx_vnni(panel, tile, sides))
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
)]
fn count_vnni(
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    (score, bounds): (PairScore<'_>, &Bounds),
    panels: Panels<'_>,
    ranks: &mut [TargetRank],
) -> Tally {
    let group = Group::<VNNI_ROWS>::new(rows, pairs, score, bounds);
    group.count(rows, panels, ranks, |a, b| dots_512(a, b), |panel, tile, sides| tile_vnni(panel, tile, sides))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn tile_avx2(
    (lanes, quads): (&Lanes, &[Quads]),
    (query, starts, bounds): (&[[i32; AVX2_ROWS]], &[[i32; AVX2_ROWS]], &[Bound; AVX2_ROWS]),
    sides: &mut [Sides; AVX2_ROWS],
) {
    const R: usize = AVX2_ROWS;
    // Not a constant: the compiler would unroll the loop over a block, for which there are too few registers.
    let length = quads.len().div_ceil(starts.len());
    let ones = _mm256_set1_epi16(1);
    let mut sums = [[_mm256_setzero_si256(); 4]; R];
    for at in [0, 2] {
        for ((quads, query), starts) in quads.chunks(length).zip(query.chunks(length)).zip(starts) {
            let mut block: [[__m256i; 2]; R] = from_fn(|r| [_mm256_set1_epi32(starts[r]); 2]);
            for (quad, query) in quads.iter().zip(query) {
                let candidates: [__m256i; 2] = from_fn(|v| codes_256(quad, at + v));
                for r in 0..R {
                    let query = _mm256_set1_epi32(query[r]);
                    for v in 0..2 {
                        block[r][v] = _mm256_add_epi16(block[r][v], _mm256_maddubs_epi16(candidates[v], query));
                    }
                }
            }
            for r in 0..R {
                for v in 0..2 {
                    sums[r][at + v] = _mm256_add_epi32(sums[r][at + v], _mm256_madd_epi16(block[r][v], ones));
                }
            }
        }
    }
    for r in 0..R {
        sides[r] = sides_256(lanes, bounds[r], sums[r]);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,avxvnni")]
fn tile_avx_vnni(
    (lanes, quads): (&Lanes, &[Quads]),
    (query, starts, bounds): (&[[i32; AVX_VNNI_ROWS]], &[[i32; AVX_VNNI_ROWS]], &[Bound; AVX_VNNI_ROWS]),
    sides: &mut [Sides; AVX_VNNI_ROWS],
) {
    const R: usize = AVX_VNNI_ROWS;
    let mut all = [[_mm256_setzero_si256(); 4]; R];
    for at in [0, 2] {
        let mut sums: [[__m256i; 2]; R] = from_fn(|r| [_mm256_set1_epi32(starts[0][r]); 2]);
        for (quad, query) in quads.iter().zip(query) {
            let candidates: [__m256i; 2] = from_fn(|v| codes_256(quad, at + v));
            for r in 0..R {
                let query = _mm256_set1_epi32(query[r]);
                for v in 0..2 {
                    sums[r][v] = _mm256_dpbusd_avx_epi32(sums[r][v], candidates[v], query);
                }
            }
        }
        for r in 0..R {
            for v in 0..2 {
                all[r][at + v] = sums[r][v];
            }
        }
    }
    for r in 0..R {
        sides[r] = sides_256(lanes, bounds[r], all[r]);
    }
}

/// The sides of candidates by their products with the codes of a query.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn sides_256(lanes: &Lanes, bound: Bound, sums: [__m256i; 4]) -> Sides {
    let Bound { threshold, per_norm, per_residual, per_outside } = bound;
    let [threshold, per_norm, per_residual, per_outside] =
        [threshold, per_norm, per_residual, per_outside].map(|value| _mm256_set1_ps(value));
    let sign = _mm256_set1_ps(-0.0);
    let sides: [[__m256; 2]; 4] = from_fn(|v| {
        let difference = _mm256_fnmadd_ps(threshold, floats_256(&lanes.scale, v), _mm256_cvtepi32_ps(sums[v]));
        let error = _mm256_mul_ps(per_residual, floats_256(&lanes.residual, v));
        let error = _mm256_fmadd_ps(per_norm, floats_256(&lanes.norm, v), error);
        let error = _mm256_fmadd_ps(per_outside, floats_256(&lanes.outside, v), error);
        let above = _mm256_cmp_ps::<_CMP_GT_OQ>(difference, error);
        [above, _mm256_cmp_ps::<_CMP_NGT_UQ>(_mm256_andnot_ps(sign, difference), error)]
    });
    let [above, open] = [0, 1].map(|side| bytes(sides.map(|sides| sides[side])));
    Sides { above, open }
}

/// The sign bits of the 32 lanes of four vectors, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn bytes(masks: [__m256; 4]) -> u32 {
    let [a, b, c, d] = masks.map(|mask| _mm256_castps_si256(mask));
    let packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    // Packing keeps the halves apart.
    _mm256_movemask_epi8(_mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))) as u32
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn tile_vnni(
    (lanes, quads): (&Lanes, &[Quads]),
    (query, starts, bounds): (&[[i32; VNNI_ROWS]], &[[i32; VNNI_ROWS]], &[Bound; VNNI_ROWS]),
    sides: &mut [Sides; VNNI_ROWS],
) {
    const R: usize = VNNI_ROWS;
    let mut sums: [[__m512i; 2]; R] = from_fn(|r| [_mm512_set1_epi32(starts[0][r]); 2]);
    for (quad, query) in quads.iter().zip(query) {
        let candidates: [__m512i; 2] = from_fn(|v| codes_512(quad, v));
        for r in 0..R {
            let query = _mm512_set1_epi32(query[r]);
            for v in 0..2 {
                sums[r][v] = _mm512_dpbusd_epi32(sums[r][v], candidates[v], query);
            }
        }
    }
    for r in 0..R {
        let Bound { threshold, per_norm, per_residual, per_outside } = bounds[r];
        let [threshold, per_norm, per_residual, per_outside] =
            [threshold, per_norm, per_residual, per_outside].map(|value| _mm512_set1_ps(value));
        let sides_of: [[__mmask16; 2]; 2] = from_fn(|v| {
            let sum = _mm512_cvtepi32_ps(sums[r][v]);
            let difference = _mm512_fnmadd_ps(threshold, floats_512(&lanes.scale, v), sum);
            let error = _mm512_mul_ps(per_residual, floats_512(&lanes.residual, v));
            let error = _mm512_fmadd_ps(per_norm, floats_512(&lanes.norm, v), error);
            let error = _mm512_fmadd_ps(per_outside, floats_512(&lanes.outside, v), error);
            let above = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(difference, error);
            [above, _mm512_cmp_ps_mask::<_CMP_NGT_UQ>(_mm512_abs_ps(difference), error)]
        });
        let [above, open] = [0, 1].map(|side| u32::from(sides_of[0][side]) | u32::from(sides_of[1][side]) << 16);
        // The compiler would gather the masks of all queries in a register, one after another.
        sides[r] = black_box(Sides { above, open });
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn codes_256(quads: &Quads, at: usize) -> __m256i {
    assert!(at < 4);
    // SAFETY: there are four times 32 bytes.
    unsafe { _mm256_load_si256(quads.0.as_ptr().cast::<__m256i>().add(at)) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn floats_256(values: &[f32; LANES], at: usize) -> __m256 {
    assert!(at < 4);
    // SAFETY: there are four times 8 values.
    unsafe { _mm256_loadu_ps(values.as_ptr().add(8 * at)) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn codes_512(quads: &Quads, at: usize) -> __m512i {
    assert!(at < 2);
    // SAFETY: there are two times 64 bytes.
    unsafe { _mm512_load_si512(quads.0.as_ptr().cast::<__m512i>().add(at)) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn floats_512(values: &[f32; LANES], at: usize) -> __m512 {
    assert!(at < 2);
    // SAFETY: there are two times 16 values.
    unsafe { _mm512_loadu_ps(values.as_ptr().add(16 * at)) }
}

/// The dot products, summed in eight lanes each.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn dots_256(a: [&[f32]; FEW], b: [&[f32]; FEW]) -> [f32; FEW] {
    let dim = a[0].len();
    assert!(a.iter().chain(&b).all(|row| row.len() == dim));
    let mut sums = [_mm256_setzero_ps(); FEW];
    for k in (0..dim / 8 * 8).step_by(8) {
        for j in 0..FEW {
            // SAFETY: rows have eight elements from here.
            let [a, b] = [a[j], b[j]].map(|row| unsafe { _mm256_loadu_ps(row.as_ptr().add(k)) });
            sums[j] = _mm256_fmadd_ps(a, b, sums[j]);
        }
    }
    // Sums of neighbours, of fours, and of the two halves.
    let pairs: [__m256; 4] = from_fn(|j| _mm256_hadd_ps(sums[2 * j], sums[2 * j + 1]));
    let [low, high] = from_fn(|j| _mm256_hadd_ps(pairs[2 * j], pairs[2 * j + 1]));
    let halves = [_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high)];
    let mut all = [0f32; FEW];
    // SAFETY: `all` has room for eight sums.
    unsafe { _mm256_storeu_ps(all.as_mut_ptr(), _mm256_add_ps(halves[0], halves[1])) };
    add_rest(a, b, dim / 8 * 8, &mut all);
    all
}

/// The dot products, summed in sixteen lanes each.
#[inline]
#[target_feature(enable = "avx512f")]
fn dots_512(a: [&[f32]; FEW], b: [&[f32]; FEW]) -> [f32; FEW] {
    let dim = a[0].len();
    assert!(a.iter().chain(&b).all(|row| row.len() == dim));
    let mut sums = [_mm512_setzero_ps(); FEW];
    for k in (0..dim / 16 * 16).step_by(16) {
        for j in 0..FEW {
            // SAFETY: rows have sixteen elements from here.
            let [a, b] = [a[j], b[j]].map(|row| unsafe { _mm512_loadu_ps(row.as_ptr().add(k)) });
            sums[j] = _mm512_fmadd_ps(a, b, sums[j]);
        }
    }
    let mut all = sums.map(|sums| _mm512_reduce_add_ps(sums));
    add_rest(a, b, dim / 16 * 16, &mut all);
    all
}

/// Adds the products of the elements from `start` on.
#[inline(always)]
fn add_rest(a: [&[f32]; FEW], b: [&[f32]; FEW], start: usize, sums: &mut [f32; FEW]) {
    for k in start..a[0].len() {
        for j in 0..FEW {
            sums[j] = a[j][k].mul_add(b[j][k], sums[j]);
        }
    }
}
