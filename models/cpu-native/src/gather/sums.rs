//! The sums of rows in registers, source rows prefetched.

use std::ops::Range;

use morphgl_graph_store::FeatureView;

use super::Lists;
use crate::prefetch::prefetch;
use crate::simd::{Element, Simd, dispatch};

/// Entries between the row that is prefetched and the one that is summed.
const AHEAD: usize = 6;

dispatch! {
    /// As `super::sum_rows`, which has checked that all rows of the lists are in `x`, and that `out` has all `rows`.
    pub(super) fn run(lists: &Lists<'_>, rows: Range<usize>, x: FeatureView<'_>, width: usize, out: &mut [f32]) = run_of::<S>
}

#[inline(always)]
unsafe fn run_of<S: Simd>(lists: &Lists<'_>, rows: Range<usize>, x: FeatureView<'_>, width: usize, out: &mut [f32]) {
    let out = out.as_mut_ptr();
    // SAFETY: the caller's promises.
    unsafe {
        match x {
            FeatureView::F32(x) => all::<S, _>(lists, rows, x.as_ptr(), width, out),
            FeatureView::F16(x) => all::<S, _>(lists, rows, x.as_ptr(), width, out),
            FeatureView::Bf16(x) => all::<S, _>(lists, rows, x.as_ptr(), width, out),
            FeatureView::U8(x) => all::<S, _>(lists, rows, x.as_ptr(), width, out),
        }
    }
}

/// # Safety
///
/// The processor has the instructions of `S`, `x` has all rows of the lists and `out` has `rows` of them.
#[inline(always)]
unsafe fn all<S: Simd, T: Element>(lists: &Lists<'_>, rows: Range<usize>, x: *const T, width: usize, out: *mut f32) {
    for (i, row) in rows.enumerate() {
        // SAFETY: row i of the output.
        let out = unsafe { out.add(i * width) };
        let mut start = 0;
        while start < width {
            let vectors = (width - start).div_ceil(S::LANES);
            // SAFETY: `start < width`, and a strip's last vector is cut at `width`, so it lies inside the row.
            let done = unsafe {
                match vectors {
                    // Half of the registers, or more: the rest is for what is loaded.
                    16.. if S::REGISTERS > 16 => strip::<S, T, 16>(lists, row, x, width, start, out),
                    8.. => strip::<S, T, 8>(lists, row, x, width, start, out),
                    4.. => strip::<S, T, 4>(lists, row, x, width, start, out),
                    3 => strip::<S, T, 3>(lists, row, x, width, start, out),
                    2 => strip::<S, T, 2>(lists, row, x, width, start, out),
                    _ => strip::<S, T, 1>(lists, row, x, width, start, out),
                }
            };
            start += done;
        }
    }
}

/// The sum of `V` vectors of a row from column `start`; returns the number of columns.
///
/// # Safety
///
/// As [`all`], and `start < width`.
#[inline(always)]
unsafe fn strip<S: Simd, T: Element, const V: usize>(
    lists: &Lists<'_>,
    row: usize,
    x: *const T,
    width: usize,
    start: usize,
    out: *mut f32,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        if width - start >= V * S::LANES {
            columns::<S, T, V, false>(lists, row, x, width, start, out)
        } else {
            columns::<S, T, V, true>(lists, row, x, width, start, out)
        }
    }
}

/// As [`strip`]; the last vector is `PARTIAL` where the row ends in it.
///
/// # Safety
///
/// As [`strip`].
#[inline(always)]
unsafe fn columns<S: Simd, T: Element, const V: usize, const PARTIAL: bool>(
    lists: &Lists<'_>,
    row: usize,
    x: *const T,
    width: usize,
    start: usize,
    out: *mut f32,
) -> usize {
    let columns = (S::LANES * V).min(width - start);
    let last = if PARTIAL { columns - S::LANES * (V - 1) } else { S::LANES };
    // SAFETY: the caller promises the instructions.
    let mut sums = unsafe { [S::splat(0.0); V] };
    if let (Some(_), Some((_, next))) = (lists.own, lists.own(row + 1)) {
        prefetch(x.wrapping_add(next * width + start), columns);
    }
    for e in lists.row(row) {
        if let Some(&ahead) = lists.entries.get(e + AHEAD) {
            prefetch(x.wrapping_add(ahead as usize * width + start), columns);
        }
        // SAFETY: an entry is below the number of rows, which `x` has; `e` is below the number of entries.
        unsafe {
            let from = x.add(*lists.entries.get_unchecked(e) as usize * width + start);
            let coefficient = lists.coefficients.map_or(1.0, |c| *c.get_unchecked(e));
            add::<S, T, V, PARTIAL>(&mut sums, coefficient, from, last);
        }
    }
    // SAFETY: the input row of a self loop is one of the rows, which `x` has; the output's row, up to its last column.
    unsafe {
        if let Some(scales) = lists.scales {
            let scale = S::splat(scales[row]);
            for sum in &mut sums {
                *sum = S::mul(*sum, scale);
            }
        }
        if let Some((own, input)) = lists.own(row) {
            add::<S, T, V, PARTIAL>(&mut sums, own, x.add(input * width + start), last);
        }
        for (v, &sum) in sums.iter().enumerate() {
            let at = out.add(start + S::LANES * v);
            if PARTIAL && v + 1 == V { S::store_first(at, last, sum) } else { S::store(at, sum) }
        }
    }
    columns
}

/// Adds a row, times a coefficient.
///
/// # Safety
///
/// The processor has the instructions of `S`, and there are as many elements at `from`.
#[inline(always)]
unsafe fn add<S: Simd, T: Element, const V: usize, const PARTIAL: bool>(
    sums: &mut [S::V; V],
    coefficient: f32,
    from: *const T,
    last: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let coefficient = S::splat(coefficient);
        for (v, sum) in sums.iter_mut().enumerate() {
            let at = from.add(S::LANES * v);
            let x = if PARTIAL && v + 1 == V { T::load_first::<S>(at, last) } else { T::load::<S>(at) };
            *sum = S::fma(coefficient, x, *sum);
        }
    }
}
