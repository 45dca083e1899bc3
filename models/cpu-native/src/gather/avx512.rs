//! The sums in AVX-512 registers, source rows fetched ahead.

use std::arch::x86_64::*;
use std::ops::Range;

use half::{bf16, f16};
use morphgl_graph_store::{FeatureView, Isa};

use super::Lists;
use crate::level::Level;
use crate::prefetch::prefetch;

/// Entries between the row that is fetched and the one that is summed.
const AHEAD: usize = 6;

/// As `super::sum_rows`, which has checked the lengths.
pub(super) fn sum_rows(
    level: Level,
    lists: &Lists<'_>,
    rows: Range<usize>,
    x: FeatureView<'_>,
    width: usize,
    out: &mut [f32],
) {
    assert!(level.isa() == Isa::Avx512, "a processor with AVX-512");
    // SAFETY: the processor has AVX-512; `super::sum_rows` has checked that all rows of the lists are in `x`,
    // and that `out` has all rows.
    unsafe {
        match x {
            FeatureView::F32(x) => all::<f32>(lists, rows, x.as_ptr(), width, out.as_mut_ptr()),
            FeatureView::F16(x) => all::<f16>(lists, rows, x.as_ptr(), width, out.as_mut_ptr()),
            FeatureView::Bf16(x) => all::<bf16>(lists, rows, x.as_ptr(), width, out.as_mut_ptr()),
            FeatureView::U8(x) => all::<u8>(lists, rows, x.as_ptr(), width, out.as_mut_ptr()),
        }
    }
}

/// An element type sixteen of which fill a register.
trait Load: Copy {
    /// Sixteen elements as floats; those outside of `mask` are not read.
    ///
    /// # Safety
    ///
    /// The elements of the mask are readable, and the processor has AVX-512.
    unsafe fn load(from: *const Self, mask: __mmask16) -> __m512;
}

macro_rules! load {
    ($($t:ty, ($from:ident, $mask:ident) => $load:expr;)*) => { $(impl Load for $t {
        #[inline(always)]
        unsafe fn load($from: *const Self, $mask: __mmask16) -> __m512 {
            // SAFETY: the caller's promise.
            unsafe { $load }
        }
    })* };
}
load! {
    f32, (from, mask) => _mm512_maskz_loadu_ps(mask, from);
    f16, (from, mask) => _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast()));
    bf16, (from, mask) =>
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from.cast()))));
    u8, (from, mask) => _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, from.cast())));
}

/// # Safety
///
/// The processor has AVX-512, `x` has all rows of the lists and `out` has `rows` of them.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
unsafe fn all<T: Load>(lists: &Lists<'_>, rows: Range<usize>, x: *const T, width: usize, out: *mut f32) {
    for (i, row) in rows.enumerate() {
        // SAFETY: row i of the output.
        let out = unsafe { out.add(i * width) };
        let mut start = 0;
        while start < width {
            let registers = (width - start).div_ceil(16);
            // SAFETY: the strip begins inside of the row, and its mask ends with it.
            let done = unsafe {
                match registers {
                    16.. => strip::<T, 16>(lists, row, x, width, start, out),
                    8..16 => strip::<T, 8>(lists, row, x, width, start, out),
                    4..8 => strip::<T, 4>(lists, row, x, width, start, out),
                    3 => strip::<T, 3>(lists, row, x, width, start, out),
                    2 => strip::<T, 2>(lists, row, x, width, start, out),
                    _ => strip::<T, 1>(lists, row, x, width, start, out),
                }
            };
            start += done;
        }
    }
}

/// The sum of `V` registers of a row from column `start`; returns the number of columns.
///
/// # Safety
///
/// As [`all`], and `start < width`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
unsafe fn strip<T: Load, const V: usize>(
    lists: &Lists<'_>,
    row: usize,
    x: *const T,
    width: usize,
    start: usize,
    out: *mut f32,
) -> usize {
    let columns = (16 * V).min(width - start);
    let last = (0xffff_u32 >> (16 * V - columns)) as __mmask16;
    let mut sums = [_mm512_setzero_ps(); V];
    let range = lists.row(row);
    if let (Some(_), Some((_, next))) = (lists.own, lists.own(row + 1)) {
        prefetch(x.wrapping_add(next * width + start), columns);
    }
    for e in range.clone() {
        if let Some(&ahead) = lists.entries.get(e + AHEAD) {
            prefetch(x.wrapping_add(ahead as usize * width + start), columns);
        }
        // SAFETY: an entry is below the number of rows, which `x` has; `e` is below the number of entries.
        unsafe {
            let from = x.add(*lists.entries.get_unchecked(e) as usize * width + start);
            let a = _mm512_set1_ps(match lists.coefficients {
                Some(c) => *c.get_unchecked(e),
                None => 1.0,
            });
            for (v, sum) in sums.iter_mut().enumerate() {
                let mask = if v + 1 == V { last } else { 0xffff };
                *sum = _mm512_fmadd_ps(a, T::load(from.add(16 * v), mask), *sum);
            }
        }
    }
    if let Some(scales) = lists.scales {
        let scale = _mm512_set1_ps(scales[row]);
        sums.iter_mut().for_each(|sum| *sum = _mm512_mul_ps(*sum, scale));
    }
    if let Some((own, input)) = lists.own(row) {
        let own = _mm512_set1_ps(own);
        for (v, sum) in sums.iter_mut().enumerate() {
            let mask = if v + 1 == V { last } else { 0xffff };
            // SAFETY: the input row of a self loop is one of the rows, which `x` has.
            *sum = _mm512_fmadd_ps(own, unsafe { T::load(x.add(input * width + start + 16 * v), mask) }, *sum);
        }
    }
    for (v, &sum) in sums.iter().enumerate() {
        let mask = if v + 1 == V { last } else { 0xffff };
        // SAFETY: the output's row, up to its last column.
        unsafe { _mm512_mask_storeu_ps(out.add(start + 16 * v), mask, sum) };
    }
    columns
}
