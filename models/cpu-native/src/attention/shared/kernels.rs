//! Inner loops over rows that all heads read: a vector of a row is loaded once for several heads.
//!
//! The elements of head `h` are `by_head` apart from those of the head before, in vectors and sums. [`sum`] and [`dots`]
//! are compiled once for each SIMD level and element type. As in [`super::super::kernels`], the other functions are
//! `unsafe` only because the processor must have the instructions of `S`, unless they take pointers.

use crate::prefetch::{CACHE_LINE, prefetch, prefetch_line};
use crate::simd::{Element, Simd, dispatch};

dispatch! {
    /// Writes the sum of `terms` of every head, or adds it.
    pub(super) fn sum<T: Element>(terms: &Terms<'_, T>, sizes: [usize; 2], add: bool, out: &mut [f32]) = sum_of::<S, T>
}
dispatch! {
    /// Writes the dot products of rows and the vectors of all heads, `stride` elements per row.
    pub(super) fn dots<T: Element>(
        rows: RowRange<'_, T>,
        vectors: &[f32],
        sizes: [usize; 2],
        out: &mut [f32],
        stride: usize,
    ) = dots_of::<S, T>
}

/// Rows of a matrix, of any element type.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, T> {
    pub(super) values: &'a [T],
    pub(super) width: usize,
    /// The rows to read, by index.
    pub(super) indices: Option<&'a [u32]>,
    /// Indices between the row that is prefetched and the row that is read.
    pub(super) ahead: usize,
}

impl<'a, T> Rows<'a, T> {
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> &'a [T] {
        let row = self.indices.map_or(index, |indices| indices[index] as usize);
        &self.values[row * self.width..(row + 1) * self.width]
    }

    /// Prefetches all cache lines of a later row.
    #[inline(always)]
    pub(super) fn prefetch(&self, index: usize) {
        let Some(&row) = self.indices.and_then(|indices| indices.get(index + self.ahead)) else { return };
        let start = self.values.as_ptr().wrapping_add(row as usize * self.width);
        prefetch(start, self.width);
        // A row that does not start with a cache line ends in one more.
        if !(self.width * size_of::<T>()).is_multiple_of(CACHE_LINE) {
            prefetch_line(start.wrapping_add(self.width - 1));
        }
    }
}

/// `len` rows from index `first` on.
#[derive(Clone, Copy)]
pub(super) struct RowRange<'a, T> {
    pub(super) rows: Rows<'a, T>,
    pub(super) first: usize,
    pub(super) len: usize,
}

/// Consecutive rows to sum, `stride` elements from the coefficients of one row to those of the next, and another row.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a, T> {
    pub(super) rows: Rows<'a, T>,
    pub(super) first: usize,
    pub(super) len: usize,
    pub(super) coefficients: &'a [f32],
    pub(super) stride: usize,
    /// A row with its coefficients, added before the others.
    pub(super) own: Option<(&'a [T], &'a [f32])>,
}

/// Part of the sums: heads from `head` on, and in each the vectors from element `at` on.
#[derive(Clone, Copy)]
struct Position {
    width: usize,
    by_head: usize,
    head: usize,
    at: usize,
}

#[inline(always)]
unsafe fn sum_of<S: Simd, T: Element>(terms: &Terms<'_, T>, [heads, by_head]: [usize; 2], add: bool, out: &mut [f32]) {
    let width = terms.rows.width;
    assert!(width > 0 && by_head >= width && out.len() >= (heads - 1) * by_head + width, "sums of {heads} heads");
    assert!(terms.own.is_none_or(|(row, c)| row.len() == width && c.len() >= heads), "elements of a row");
    let mut position = Position { width, by_head, head: 0, at: 0 };
    while position.head < heads {
        let (heads_left, vectors) = (heads - position.head, (width - position.at) / S::LANES);
        // Sums, coefficients of the heads and a vector of the row fit into the registers. A last vector that is not
        // whole is a block of its own: fewer cases take less time to compile. SAFETY: the caller promises the
        // instructions; the block is inside the heads, and begins before `width`.
        let [heads_done, vectors_done] = unsafe {
            match (heads_left, vectors) {
                (4.., 6..) if S::REGISTERS > 16 => block::<S, T, 4, 6, false>(terms, position, add, out),
                (4.., 4..) if S::REGISTERS > 16 => block::<S, T, 4, 4, false>(terms, position, add, out),
                (4.., 2..) => block::<S, T, 4, 2, false>(terms, position, add, out),
                (4.., 1) => block::<S, T, 4, 1, false>(terms, position, add, out),
                (4.., _) => block::<S, T, 4, 1, true>(terms, position, add, out),
                (2.., 4..) => block::<S, T, 2, 4, false>(terms, position, add, out),
                (2.., 1..) => block::<S, T, 2, 1, false>(terms, position, add, out),
                (2.., _) => block::<S, T, 2, 1, true>(terms, position, add, out),
                (_, 8..) => block::<S, T, 1, 8, false>(terms, position, add, out),
                (_, 4..) => block::<S, T, 1, 4, false>(terms, position, add, out),
                (_, 1..) => block::<S, T, 1, 1, false>(terms, position, add, out),
                _ => block::<S, T, 1, 1, true>(terms, position, add, out),
            }
        };
        position.at += vectors_done * S::LANES;
        if position.at >= width {
            position = Position { head: position.head + heads_done, at: 0, ..position };
        }
    }
}

/// Sums `HEADS` heads by `VECTORS` vectors, the last one of them cut at the width if `TAIL`; returns their number.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "heads and vectors index the row too")]
unsafe fn block<S: Simd, T: Element, const HEADS: usize, const VECTORS: usize, const TAIL: bool>(
    terms: &Terms<'_, T>,
    Position { width, by_head, head, at }: Position,
    add: bool,
    out: &mut [f32],
) -> [usize; 2] {
    let tail = if TAIL { width - at - (VECTORS - 1) * S::LANES } else { S::LANES };
    let end = (head + HEADS - 1) * by_head + width;
    assert!(end <= out.len() && at + (VECTORS - 1) * S::LANES + tail <= width, "a block inside the sums");
    let partial = |v: usize| TAIL && v + 1 == VECTORS;
    let offset = |h: usize, v: usize| (head + h) * by_head + at + v * S::LANES;
    // SAFETY: the sums have these heads, rows have `width` elements (`Rows::get` and `sum`), and the block is inside of
    // both (asserted above).
    unsafe {
        let mut sums = [[S::splat(0.0); VECTORS]; HEADS];
        if add {
            for h in 0..HEADS {
                for v in 0..VECTORS {
                    let from = out.as_ptr().add(offset(h, v));
                    sums[h][v] = if partial(v) { S::load_first(from, tail) } else { S::load(from) };
                }
            }
        }
        // The other row, then the terms, by the same instructions: a second copy of them doubles the time to compile.
        let others = usize::from(terms.own.is_some());
        for k in 0..others + terms.len {
            let (row, coefficients) = match terms.own {
                Some((row, coefficients)) if k == 0 => (row, &coefficients[head..]),
                _ => {
                    let k = k - others;
                    if head == 0 && at == 0 {
                        terms.rows.prefetch(terms.first + k);
                    }
                    (terms.rows.get(terms.first + k), &terms.coefficients[k * terms.stride + head..])
                }
            };
            add_row::<S, T, HEADS, VECTORS, TAIL>(row.as_ptr().add(at), coefficients, tail, &mut sums);
        }
        for h in 0..HEADS {
            for v in 0..VECTORS {
                let to = out.as_mut_ptr().add(offset(h, v));
                if partial(v) { S::store_first(to, tail, sums[h][v]) } else { S::store(to, sums[h][v]) }
            }
        }
    }
    [HEADS, VECTORS]
}

/// Adds vectors of a row, times the coefficient of each head.
///
/// # Safety
///
/// The processor has the instructions of `S`, and `from` has `VECTORS` vectors, the last one of `tail` elements if
/// `TAIL`.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "heads index the coefficients too")]
unsafe fn add_row<S: Simd, T: Element, const HEADS: usize, const VECTORS: usize, const TAIL: bool>(
    from: *const T,
    coefficients: &[f32],
    tail: usize,
    sums: &mut [[S::V; VECTORS]; HEADS],
) {
    let coefficients = &coefficients[..HEADS];
    // SAFETY: the caller's promise.
    unsafe {
        for v in 0..VECTORS {
            let from = from.add(v * S::LANES);
            let x = if TAIL && v + 1 == VECTORS { T::load_first::<S>(from, tail) } else { T::load::<S>(from) };
            for h in 0..HEADS {
                sums[h][v] = S::fma(S::splat(coefficients[h]), x, sums[h][v]);
            }
        }
    }
}

#[inline(always)]
unsafe fn dots_of<S: Simd, T: Element>(
    RowRange { rows, first, len }: RowRange<'_, T>,
    vectors: &[f32],
    [heads, by_head]: [usize; 2],
    out: &mut [f32],
    stride: usize,
) {
    assert!(vectors.len() >= (heads - 1) * by_head + rows.width, "a vector of {} elements per head", rows.width);
    let mut k = 0;
    while k < len {
        for k in k..(k + 2).min(len) {
            rows.prefetch(first + k);
        }
        let out = &mut out[k * stride..];
        // SAFETY: the caller promises the instructions.
        unsafe {
            if k + 1 < len {
                let pair = [rows.get(first + k), rows.get(first + k + 1)];
                dots_of_rows::<S, T, 2>(pair, vectors, [heads, by_head], out, stride);
            } else {
                dots_of_rows::<S, T, 1>([rows.get(first + k)], vectors, [heads, by_head], out, stride);
            }
        }
        k += 2;
    }
}

/// Dot products of `ROWS` rows.
#[inline(always)]
unsafe fn dots_of_rows<S: Simd, T: Element, const ROWS: usize>(
    rows: [&[T]; ROWS],
    vectors: &[f32],
    [heads, by_head]: [usize; 2],
    out: &mut [f32],
    stride: usize,
) {
    let width = rows[0].len();
    assert!(vectors.len() >= (heads - 1) * by_head + width, "a vector of {width} elements per head");
    assert!(rows.iter().all(|row| row.len() == width), "rows of {width} elements");
    let rows = rows.map(<[T]>::as_ptr);
    let mut head = 0;
    while head < heads {
        // SAFETY: the rows have `width` elements, and the vectors have these heads; the caller promises the
        // instructions.
        head += unsafe {
            let vectors = vectors.as_ptr().add(head * by_head);
            match heads - head {
                4.. => dots_block::<S, T, ROWS, 4>(rows, vectors, [by_head, width], &mut out[head..], stride),
                2.. => dots_block::<S, T, ROWS, 2>(rows, vectors, [by_head, width], &mut out[head..], stride),
                _ => dots_block::<S, T, ROWS, 1>(rows, vectors, [by_head, width], &mut out[head..], stride),
            }
        };
    }
}

/// Writes the dot products of `ROWS` rows and `HEADS` vectors; returns the number of vectors.
///
/// # Safety
///
/// The processor has the instructions of `S`; rows and vectors have `width` elements.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "rows and heads index the sums too")]
unsafe fn dots_block<S: Simd, T: Element, const ROWS: usize, const HEADS: usize>(
    rows: [*const T; ROWS],
    vectors: *const f32,
    [by_head, width]: [usize; 2],
    out: &mut [f32],
    stride: usize,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[S::splat(0.0); HEADS]; ROWS];
        let mut at = 0;
        while at + S::LANES <= width {
            let mut x = [S::splat(0.0); ROWS];
            for r in 0..ROWS {
                x[r] = T::load::<S>(rows[r].add(at));
            }
            for h in 0..HEADS {
                let vector = S::load(vectors.add(h * by_head + at));
                for r in 0..ROWS {
                    sums[r][h] = S::fma(x[r], vector, sums[r][h]);
                }
            }
            at += S::LANES;
        }
        if at < width {
            let mut x = [S::splat(0.0); ROWS];
            for r in 0..ROWS {
                x[r] = T::load_first::<S>(rows[r].add(at), width - at);
            }
            for h in 0..HEADS {
                let vector = S::load_first(vectors.add(h * by_head + at), width - at);
                for r in 0..ROWS {
                    sums[r][h] = S::fma(x[r], vector, sums[r][h]);
                }
            }
        }
        if HEADS == 4 {
            for r in 0..ROWS {
                let of_row = S::sums([sums[r][0], sums[r][1 % HEADS], sums[r][2 % HEADS], sums[r][3 % HEADS]]);
                out[r * stride..r * stride + 4].copy_from_slice(&of_row);
            }
        } else if HEADS == 2 && ROWS == 2 {
            let last = sums[1 % ROWS];
            let all = S::sums([sums[0][0], sums[0][1 % HEADS], last[0], last[1 % HEADS]]);
            out[..2].copy_from_slice(&all[..2]);
            out[stride..stride + 2].copy_from_slice(&all[2..]);
        } else {
            for r in 0..ROWS {
                for h in 0..HEADS {
                    out[r * stride + h] = S::sum(sums[r][h]);
                }
            }
        }
    }
    HEADS
}
