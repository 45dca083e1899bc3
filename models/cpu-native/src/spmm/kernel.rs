//! The SpMM kernel: sums of rows in registers, with source rows prefetched.

use std::ops::Range;

use super::Csr;
use crate::prefetch::prefetch;
use crate::simd::{Element, Simd, dispatch};

/// Entries between the row that is prefetched and the row that is summed.
const AHEAD: usize = 6;

dispatch! {
    /// As `super::spmm`, for one element type; `super::spmm` has checked that `x` has all input rows, and `out` all `rows`.
    pub(super) fn run<T: Element>(csr: &Csr<'_>, rows: Range<usize>, x: &[T], width: usize, out: &mut [f32]) = run_of::<S, T>
}

#[inline(always)]
unsafe fn run_of<S: Simd, T: Element>(csr: &Csr<'_>, rows: Range<usize>, x: &[T], width: usize, out: &mut [f32]) {
    // SAFETY: the caller promises the instructions, and `run`'s caller the lengths.
    unsafe { all::<S, T>(csr, rows, x.as_ptr(), width, out.as_mut_ptr()) }
}

/// # Safety
///
/// The processor has the instructions of `S`, `x` has all input rows, and `out` has all `rows`.
#[inline(always)]
unsafe fn all<S: Simd, T: Element>(csr: &Csr<'_>, rows: Range<usize>, x: *const T, width: usize, out: *mut f32) {
    for (i, row) in rows.enumerate() {
        // SAFETY: row i of the output.
        let out = unsafe { out.add(i * width) };
        let mut start = 0;
        while start < width {
            let vectors = (width - start).div_ceil(S::LANES);
            // SAFETY: `start < width`, and a strip's last vector is cut at `width`, so it lies inside the row.
            let done = unsafe {
                match vectors {
                    // At least half of the registers; the others are for operands.
                    16.. if S::REGISTERS > 16 => strip::<S, T, 16>(csr, row, x, width, start, out),
                    8.. => strip::<S, T, 8>(csr, row, x, width, start, out),
                    4.. => strip::<S, T, 4>(csr, row, x, width, start, out),
                    3 => strip::<S, T, 3>(csr, row, x, width, start, out),
                    2 => strip::<S, T, 2>(csr, row, x, width, start, out),
                    _ => strip::<S, T, 1>(csr, row, x, width, start, out),
                }
            };
            start += done;
        }
    }
}

/// Sums `V` vectors of a row from column `start`; returns the number of columns.
///
/// # Safety
///
/// As [`all`], and `start < width`.
#[inline(always)]
unsafe fn strip<S: Simd, T: Element, const V: usize>(
    csr: &Csr<'_>,
    row: usize,
    x: *const T,
    width: usize,
    start: usize,
    out: *mut f32,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        if width - start >= V * S::LANES {
            columns::<S, T, V, false>(csr, row, x, width, start, out)
        } else {
            columns::<S, T, V, true>(csr, row, x, width, start, out)
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
    csr: &Csr<'_>,
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
    if let (Some(_), Some((_, next))) = (csr.loop_rows, csr.self_loop(row + 1)) {
        prefetch(x.wrapping_add(next * width + start), columns);
    }
    for e in csr.row(row) {
        if let Some(&ahead) = csr.columns.get(e + AHEAD) {
            prefetch(x.wrapping_add(ahead as usize * width + start), columns);
        }
        // SAFETY: `x` has all input rows, and `e` is below the number of entries.
        unsafe {
            let from = x.add(*csr.columns.get_unchecked(e) as usize * width + start);
            let coefficient = csr.coefficients.map_or(1.0, |c| *c.get_unchecked(e));
            add::<S, T, V, PARTIAL>(&mut sums, coefficient, from, last);
        }
    }
    // SAFETY: `x` has the input row of the self loop; the stores end with the output row's last column.
    unsafe {
        if let Some(scales) = csr.scales {
            let scale = S::splat(scales[row]);
            for sum in &mut sums {
                *sum = S::mul(*sum, scale);
            }
        }
        if let Some((coefficient, input)) = csr.self_loop(row) {
            add::<S, T, V, PARTIAL>(&mut sums, coefficient, x.add(input * width + start), last);
        }
        for (v, &sum) in sums.iter().enumerate() {
            let at = out.add(start + S::LANES * v);
            if PARTIAL && v + 1 == V { S::store_first(at, last, sum) } else { S::store(at, sum) }
        }
    }
    columns
}

/// Adds a row times a coefficient.
///
/// # Safety
///
/// The processor has the instructions of `S`, and `from` has `V` vectors, the last one of `last` elements if `PARTIAL`.
#[inline(always)]
unsafe fn add<S: Simd, T: Element, const V: usize, const PARTIAL: bool>(
    sums: &mut [S::V; V],
    coefficient: f32,
    from: *const T,
    last: usize,
) {
    // SAFETY: the caller promises the instructions, and that `from` has all elements that are loaded.
    unsafe {
        let coefficient = S::splat(coefficient);
        for (v, sum) in sums.iter_mut().enumerate() {
            let at = from.add(S::LANES * v);
            let x = if PARTIAL && v + 1 == V { T::load_first::<S>(at, last) } else { T::load::<S>(at) };
            *sum = S::fma(coefficient, x, *sum);
        }
    }
}
