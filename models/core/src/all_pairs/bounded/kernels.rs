//! Kernels: which scores of a tile of queries and a panel of candidates are above those of the targets, and which are open.

use std::arch::x86_64::*;
use std::array::from_fn;
use std::ops::Range;
use std::ptr;

use morphgl_platform::SimdLevel;

use super::{Bounds, CodeWidth, Codes, FEW, Group, Limits, Panels, Scaled, Sides, Tally, pack};
use crate::all_pairs::{PairScore, Rows, TargetRank};

/// Size of codes, and how their products are added in lanes of 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::all_pairs) enum Kernel {
    /// AVX2, 16 bits: `vpmaddwd` and an addition.
    Avx2Word,
    /// AVX2, 7 bits: four products (two of `vpmaddubsw`) are added in 16 bits, and then in 32.
    Avx2Byte,
    /// AVX-VNNI, 16 bits: `vpdpwssd`, eight lanes at a time.
    AvxVnniWord,
    /// AVX-VNNI, 8 bits: `vpdpbusd`.
    AvxVnniByte,
    /// AVX-512 VNNI, 16 bits: `vpdpwssd`, sixteen lanes at a time.
    VnniWord,
    /// AVX-512 VNNI, 8 bits: `vpdpbusd`.
    VnniByte,
}

/// Queries of a tile: their sums of a panel of candidates stay in registers.
const ROWS_AVX2_BYTE: usize = 4;
const ROWS_256: usize = 6;
const ROWS_512: usize = 8;

impl Kernel {
    /// The kernels of the fastest instructions of a level.
    pub(super) fn fastest(level: SimdLevel) -> &'static [Self] {
        Self::families(level).last().unwrap_or(&[])
    }

    /// All kernels of a level.
    #[cfg(test)]
    pub(in crate::all_pairs) fn available(level: SimdLevel) -> impl Iterator<Item = Self> {
        Self::families(level).flatten().copied()
    }

    fn families(level: SimdLevel) -> impl Iterator<Item = &'static [Self]> {
        let vnni = level >= SimdLevel::Avx512 && is_x86_feature_detected!("avx512vnni");
        let avx_vnni = level >= SimdLevel::Avx2 && is_x86_feature_detected!("avxvnni");
        let all: [(&[Self], bool); 3] = [
            (&[Self::Avx2Word, Self::Avx2Byte], level >= SimdLevel::Avx2),
            (&[Self::AvxVnniWord, Self::AvxVnniByte], avx_vnni),
            (&[Self::VnniWord, Self::VnniByte], vnni),
        ];
        all.into_iter().filter_map(|(family, available)| available.then_some(family))
    }

    pub(super) fn width(self) -> CodeWidth {
        match self {
            Self::Avx2Word | Self::AvxVnniWord | Self::VnniWord => CodeWidth::Word,
            // 4 · 127 · 63 is below 2¹⁵.
            Self::Avx2Byte => CodeWidth::Byte(63),
            Self::AvxVnniByte | Self::VnniByte => CodeWidth::Byte(127),
        }
    }

    /// A row's codes fill a multiple of so many lanes.
    pub(super) fn step(self) -> usize {
        if self == Self::Avx2Byte { 2 } else { 1 }
    }

    /// The time of an element of codes, in that of an element of an f32 tile.
    pub(super) fn per_element(self) -> f32 {
        match self {
            Self::Avx2Word => 0.67,
            Self::Avx2Byte => 0.42,
            Self::AvxVnniWord | Self::VnniWord => 0.5,
            Self::AvxVnniByte | Self::VnniByte => 0.25,
        }
    }

    /// The time of an open score per element, in the same unit.
    pub(super) fn per_open(self) -> f32 {
        match self {
            Self::Avx2Word | Self::Avx2Byte | Self::AvxVnniWord | Self::AvxVnniByte => 2.5,
            Self::VnniWord | Self::VnniByte => 4.0,
        }
    }
}

impl Bounds {
    /// Packs the first of the nodes into a panel.
    pub(super) fn pack(&self, rows: Rows<'_>, nodes: Range<usize>, scaled: &mut Scaled, panel: &mut [Codes]) {
        match self.kernel {
            // SAFETY: the processor has the instructions of an available kernel.
            Kernel::Avx2Word | Kernel::Avx2Byte | Kernel::AvxVnniWord | Kernel::AvxVnniByte => unsafe {
                pack_avx2(rows, nodes, self, scaled, panel);
            },
            // SAFETY: as above.
            Kernel::VnniWord | Kernel::VnniByte => unsafe { pack_avx512(rows, nodes, self, scaled, panel) },
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
            Kernel::Avx2Word => unsafe { count_avx2_word(rows, pairs, (score, self), panels, ranks) },
            // SAFETY: as above.
            Kernel::Avx2Byte => unsafe { count_avx2_byte(rows, pairs, (score, self), panels, ranks) },
            // SAFETY: as above.
            Kernel::AvxVnniWord => unsafe { count_avx_vnni::<false>(rows, pairs, (score, self), panels, ranks) },
            // SAFETY: as above.
            Kernel::AvxVnniByte => unsafe { count_avx_vnni::<true>(rows, pairs, (score, self), panels, ranks) },
            // SAFETY: as above.
            Kernel::VnniWord => unsafe { count_vnni::<false>(rows, pairs, (score, self), panels, ranks) },
            // SAFETY: as above.
            Kernel::VnniByte => unsafe { count_vnni::<true>(rows, pairs, (score, self), panels, ranks) },
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn pack_avx2(rows: Rows<'_>, nodes: Range<usize>, bounds: &Bounds, scaled: &mut Scaled, panel: &mut [Codes]) {
    pack(rows, nodes, bounds, scaled, panel);
}

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn pack_avx512(rows: Rows<'_>, nodes: Range<usize>, bounds: &Bounds, scaled: &mut Scaled, panel: &mut [Codes]) {
    pack(rows, nodes, bounds, scaled, panel);
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn count_avx2_word(
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    (score, bounds): (PairScore<'_>, &Bounds),
    panels: Panels<'_>,
    ranks: &mut [TargetRank],
) -> Tally {
    let group = Group::<ROWS_256>::new(rows, pairs, score, bounds);
    group.count(
        rows,
        panels,
        ranks,
        |a, b| dots_256(a, b),
        |panel, codes, limits, sides| tile_avx2_word(panel, codes, limits, sides),
    )
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn count_avx2_byte(
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    (score, bounds): (PairScore<'_>, &Bounds),
    panels: Panels<'_>,
    ranks: &mut [TargetRank],
) -> Tally {
    let group = Group::<ROWS_AVX2_BYTE>::new(rows, pairs, score, bounds);
    group.count(
        rows,
        panels,
        ranks,
        |a, b| dots_256(a, b),
        |panel, codes, limits, sides| tile_avx2_byte(panel, codes, limits, sides),
    )
}

#[target_feature(enable = "avx2,avxvnni,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn count_avx_vnni<const BYTES: bool>(
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    (score, bounds): (PairScore<'_>, &Bounds),
    panels: Panels<'_>,
    ranks: &mut [TargetRank],
) -> Tally {
    let group = Group::<ROWS_256>::new(rows, pairs, score, bounds);
    group.count(
        rows,
        panels,
        ranks,
        |a, b| dots_256(a, b),
        |panel, codes, limits, sides| tile_avx_vnni::<BYTES>(panel, codes, limits, sides),
    )
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
)]
fn count_vnni<const BYTES: bool>(
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    (score, bounds): (PairScore<'_>, &Bounds),
    panels: Panels<'_>,
    ranks: &mut [TargetRank],
) -> Tally {
    let group = Group::<ROWS_512>::new(rows, pairs, score, bounds);
    group.count(
        rows,
        panels,
        ranks,
        |a, b| dots_512(a, b),
        |panel, codes, limits, sides| tile_vnni::<BYTES>(panel, codes, limits, sides),
    )
}

#[inline]
#[target_feature(enable = "avx2")]
fn tile_avx2_byte(
    panel: &[Codes],
    codes: &[[i32; ROWS_AVX2_BYTE]],
    limits: Limits<'_, ROWS_AVX2_BYTE>,
    sides: &mut [Sides; ROWS_AVX2_BYTE],
) {
    const R: usize = ROWS_AVX2_BYTE;
    let ones = _mm256_set1_epi16(1);
    let mut sums = [[_mm256_setzero_si256(); 4]; R];
    for half in [0, 2] {
        let mut of_half = [[_mm256_setzero_si256(); 2]; R];
        for (candidates, codes) in panel.as_chunks::<2>().0.iter().zip(codes.as_chunks::<2>().0) {
            let candidates: [[__m256i; 2]; 2] = from_fn(|i| from_fn(|v| codes_256(&candidates[i], half + v)));
            for r in 0..R {
                let queries: [__m256i; 2] = from_fn(|i| _mm256_set1_epi32(codes[i][r]));
                for v in 0..2 {
                    let two: [__m256i; 2] = from_fn(|i| _mm256_maddubs_epi16(candidates[i][v], queries[i]));
                    let four = _mm256_add_epi16(two[0], two[1]);
                    of_half[r][v] = _mm256_add_epi32(of_half[r][v], _mm256_madd_epi16(four, ones));
                }
            }
        }
        for r in 0..R {
            [sums[r][half], sums[r][half + 1]] = of_half[r];
        }
    }
    sides_256(sums, limits, sides);
}

macro_rules! tile_256 {
    ($name:ident $(<const $bytes:ident: bool>)?, $features:literal, |$sum:ident, $candidates:ident, $query:ident| $sum_with:expr) => {
        #[inline]
        #[target_feature(enable = $features)]
        fn $name $(<const $bytes: bool>)?(
            panel: &[Codes],
            codes: &[[i32; ROWS_256]],
            limits: Limits<'_, ROWS_256>,
            sides: &mut [Sides; ROWS_256],
        ) {
            let mut sums = [[_mm256_setzero_si256(); 4]; ROWS_256];
            for half in [0, 2] {
                let mut of_half = [[_mm256_setzero_si256(); 2]; ROWS_256];
                for (candidates, codes) in panel.iter().zip(codes) {
                    let both: [__m256i; 2] = from_fn(|v| codes_256(candidates, half + v));
                    for r in 0..ROWS_256 {
                        let $query = _mm256_set1_epi32(codes[r]);
                        for v in 0..2 {
                            let ($sum, $candidates) = (of_half[r][v], both[v]);
                            of_half[r][v] = $sum_with;
                        }
                    }
                }
                for r in 0..ROWS_256 {
                    [sums[r][half], sums[r][half + 1]] = of_half[r];
                }
            }
            sides_256(sums, limits, sides);
        }
    };
}

tile_256!(tile_avx2_word, "avx2", |sum, candidates, query| {
    _mm256_add_epi32(sum, _mm256_madd_epi16(candidates, query))
});
tile_256!(tile_avx_vnni<const BYTES: bool>, "avx2,avxvnni", |sum, candidates, query| {
    if BYTES {
        _mm256_dpbusd_avx_epi32(sum, candidates, query)
    } else {
        _mm256_dpwssd_avx_epi32(sum, candidates, query)
    }
});

#[inline]
#[target_feature(enable = "avx2")]
fn sides_256<const R: usize>(sums: [[__m256i; 4]; R], limits: Limits<'_, R>, sides: &mut [Sides; R]) {
    for r in 0..R {
        sides[r].above = larger(sums[r], limits.above[r]);
        sides[r].not_below = larger(sums[r], limits.below[r]);
    }
}

/// A bit per lane, in order: those that are larger than the limit.
#[inline]
#[target_feature(enable = "avx2")]
fn larger([a, b, c, d]: [__m256i; 4], limit: i32) -> u32 {
    let limit = _mm256_set1_epi32(limit);
    let [a, b] = [_mm256_cmpgt_epi32(a, limit), _mm256_cmpgt_epi32(b, limit)];
    let [c, d] = [_mm256_cmpgt_epi32(c, limit), _mm256_cmpgt_epi32(d, limit)];
    let packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    // Packing keeps the halves apart.
    _mm256_movemask_epi8(_mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))) as u32
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn tile_vnni<const BYTES: bool>(
    panel: &[Codes],
    codes: &[[i32; ROWS_512]],
    limits: Limits<'_, ROWS_512>,
    sides: &mut [Sides; ROWS_512],
) {
    const R: usize = ROWS_512;
    let mut sums = [[_mm512_setzero_si512(); 2]; R];
    for (candidates, codes) in panel.iter().zip(codes) {
        let candidates: [__m512i; 2] = from_fn(|v| codes_512(candidates, v));
        for r in 0..R {
            let query = _mm512_set1_epi32(codes[r]);
            for v in 0..2 {
                sums[r][v] = if BYTES {
                    _mm512_dpbusd_epi32(sums[r][v], candidates[v], query)
                } else {
                    _mm512_dpwssd_epi32(sums[r][v], candidates[v], query)
                };
            }
        }
    }
    for r in 0..R {
        let [above, not_below] = [limits.above[r], limits.below[r]].map(|limit| {
            let [low, high] = sums[r].map(|sum| _mm512_cmpgt_epi32_mask(sum, _mm512_set1_epi32(limit)));
            u32::from(low) | u32::from(high) << 16
        });
        let Sides { above: of_above, not_below: of_not_below } = &mut sides[r];
        // The compiler would gather the masks of all queries in a register, one after another.
        // SAFETY: both are references.
        unsafe {
            ptr::from_mut(of_above).write_volatile(above);
            ptr::from_mut(of_not_below).write_volatile(not_below);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn codes_256(codes: &Codes, at: usize) -> __m256i {
    assert!(at < 4);
    // SAFETY: there are four times 32 bytes.
    unsafe { _mm256_load_si256(codes.0.as_ptr().cast::<__m256i>().add(at)) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn codes_512(codes: &Codes, at: usize) -> __m512i {
    assert!(at < 2);
    // SAFETY: there are two times 64 bytes.
    unsafe { _mm512_load_si512(codes.0.as_ptr().cast::<__m512i>().add(at)) }
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
