//! Inner loops of attention: weighted sums of gathered rows, dot products, exponentials.
//!
//! All are generic over the SIMD level and inlined into functions compiled for it. They are `unsafe` only because the
//! processor must have the instructions of `S`. Bounds are checked once for each slice, and loads stay inside the slices.

use crate::prefetch::{prefetch, prefetch_line};
use crate::simd::Simd;

/// Rows to sum, with a coefficient for each head.
pub(super) trait WeightedRows {
    /// Number of rows.
    fn len(&self) -> usize;
    /// Row `k`, `heads * width` elements.
    fn row(&self, k: usize) -> &[f32];
    /// Coefficients of row `k`, one per head.
    fn coefficients(&self, k: usize) -> &[f32];
    /// Prefetches a row some rows after `k`.
    fn prefetch(&self, k: usize);
}

/// Bytes of gathered rows that are prefetched.
const BYTES_AHEAD: usize = 4096;

/// Prefetch distance in rows of `cols` elements.
pub(super) fn rows_ahead(cols: usize) -> usize {
    (BYTES_AHEAD / (4 * cols.max(1))).clamp(2, 24)
}

/// Prefetches all cache lines of row `row`.
#[inline(always)]
pub(super) fn prefetch_row(values: &[f32], row: u32, cols: usize) {
    let start = values.as_ptr().wrapping_add(row as usize * cols);
    prefetch(start, cols);
    // A row that does not start with a cache line ends in one more.
    if !cols.is_multiple_of(16) {
        prefetch_line(start.wrapping_add(cols - 1));
    }
}

/// Part of a row: heads from `head` on, and in each the vectors from element `at` on.
#[derive(Clone, Copy)]
struct Position {
    heads: usize,
    width: usize,
    head: usize,
    at: usize,
}

/// Adds the rows of `terms`, each head times its coefficient, to `out`.
#[inline(always)]
pub(super) unsafe fn add_rows<S: Simd, T: WeightedRows>(terms: &T, heads: usize, width: usize, out: &mut [f32]) {
    assert_eq!(out.len(), heads * width, "elements of a row");
    let vectors = width.div_ceil(S::LANES);
    let mut head = 0;
    while head < heads {
        let position = Position { heads, width, head, at: 0 };
        // SAFETY: the caller promises the instructions; the matches keep heads and vectors inside the row.
        let [heads_done, _] = unsafe {
            match (vectors, heads - head) {
                (1, 4..) => add_block::<S, T, 4, 1>(terms, position, out),
                (2, 4..) => add_block::<S, T, 4, 2>(terms, position, out),
                (4, 2..) => add_block::<S, T, 2, 4>(terms, position, out),
                _ => add_head::<S, T>(terms, position, out),
            }
        };
        head += heads_done;
    }
}

/// Adds one head, up to eight vectors at a time; returns the number of heads and vectors.
#[inline(always)]
unsafe fn add_head<S: Simd, T: WeightedRows>(terms: &T, mut position: Position, out: &mut [f32]) -> [usize; 2] {
    while position.at < position.width {
        // SAFETY: the caller promises the instructions.
        let [_, vectors_done] = unsafe {
            match (position.width - position.at).div_ceil(S::LANES) {
                8.. => add_block::<S, T, 1, 8>(terms, position, out),
                4.. => add_block::<S, T, 1, 4>(terms, position, out),
                3 => add_block::<S, T, 1, 3>(terms, position, out),
                2 => add_block::<S, T, 1, 2>(terms, position, out),
                _ => add_block::<S, T, 1, 1>(terms, position, out),
            }
        };
        position.at += vectors_done * S::LANES;
    }
    [1, position.width.div_ceil(S::LANES)]
}

/// Adds `HEADS` heads by `VECTORS` vectors; returns their number.
#[inline(always)]
unsafe fn add_block<S: Simd, T: WeightedRows, const HEADS: usize, const VECTORS: usize>(
    terms: &T,
    position: Position,
    out: &mut [f32],
) -> [usize; 2] {
    // SAFETY: the caller promises the instructions; all vectors are whole where `TAIL` is false.
    unsafe {
        if position.width - position.at >= VECTORS * S::LANES {
            add_vectors::<S, T, HEADS, VECTORS, false>(terms, position, out);
        } else {
            add_vectors::<S, T, HEADS, VECTORS, true>(terms, position, out);
        }
    }
    [HEADS, VECTORS]
}

#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "heads and vectors index the row too")]
unsafe fn add_vectors<S: Simd, T: WeightedRows, const HEADS: usize, const VECTORS: usize, const TAIL: bool>(
    terms: &T,
    position: Position,
    out: &mut [f32],
) {
    let Position { heads, width, head, at } = position;
    assert!(head + HEADS <= heads && at + (VECTORS - 1) * S::LANES < width, "a block inside the row");
    let tail = if TAIL { width - at - (VECTORS - 1) * S::LANES } else { S::LANES };
    let first = head == 0 && at == 0;
    let offset = |h: usize, v: usize| (head + h) * width + at + v * S::LANES;
    let partial = |v: usize| TAIL && v + 1 == VECTORS;
    // SAFETY: `out` and the terms' rows have heads * width elements (`add_rows` and below), the block is inside them (asserted
    // above), and its last vector ends with the head.
    unsafe {
        let mut sums = [[S::splat(0.0); VECTORS]; HEADS];
        for h in 0..HEADS {
            for v in 0..VECTORS {
                let from = out.as_ptr().add(offset(h, v));
                sums[h][v] = if partial(v) { S::load_first(from, tail) } else { S::load(from) };
            }
        }
        for k in 0..terms.len() {
            if first {
                terms.prefetch(k);
            }
            let (row, coefficients) = (terms.row(k), &terms.coefficients(k)[head..head + HEADS]);
            assert!(row.len() == heads * width, "elements of a row");
            for h in 0..HEADS {
                let coefficient = S::splat(coefficients[h]);
                for v in 0..VECTORS {
                    let from = row.as_ptr().add(offset(h, v));
                    let x = if partial(v) { S::load_first(from, tail) } else { S::load(from) };
                    sums[h][v] = S::fma(coefficient, x, sums[h][v]);
                }
            }
        }
        for h in 0..HEADS {
            for v in 0..VECTORS {
                let to = out.as_mut_ptr().add(offset(h, v));
                if partial(v) { S::store_first(to, tail, sums[h][v]) } else { S::store(to, sums[h][v]) }
            }
        }
    }
}

/// Dot product.
#[inline(always)]
unsafe fn dot<S: Simd>(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "elements of two vectors");
    let (len, lanes) = (a.len(), S::LANES);
    // SAFETY: the loads stay below `len`; the caller promises the instructions.
    unsafe {
        let (mut even, mut odd) = (S::splat(0.0), S::splat(0.0));
        let mut at = 0;
        while at + 2 * lanes <= len {
            even = S::fma(S::load(a.as_ptr().add(at)), S::load(b.as_ptr().add(at)), even);
            odd = S::fma(S::load(a.as_ptr().add(at + lanes)), S::load(b.as_ptr().add(at + lanes)), odd);
            at += 2 * lanes;
        }
        if at + lanes <= len {
            even = S::fma(S::load(a.as_ptr().add(at)), S::load(b.as_ptr().add(at)), even);
            at += lanes;
        }
        if at < len {
            let (x, y) = (S::load_first(a.as_ptr().add(at), len - at), S::load_first(b.as_ptr().add(at), len - at));
            odd = S::fma(x, y, odd);
        }
        S::sum(S::add(even, odd))
    }
}

/// Dot products of the heads of two rows, one per head; four heads share their horizontal sums.
#[inline(always)]
pub(super) unsafe fn dots<S: Simd>(a: &[f32], b: &[f32], width: usize, out: &mut [f32]) {
    assert!(a.len() == out.len() * width && b.len() == a.len(), "elements of two rows");
    let (mut fours, mut head) = (out.chunks_exact_mut(4), 0);
    for out in &mut fours {
        // SAFETY: the rows have these four heads; the caller promises the instructions.
        let sums = unsafe { four_dots::<S>(a.as_ptr().add(head * width), b.as_ptr().add(head * width), width) };
        out.copy_from_slice(&sums);
        head += 4;
    }
    for out in fours.into_remainder() {
        // SAFETY: the caller promises the instructions.
        *out = unsafe { dot::<S>(&a[head * width..(head + 1) * width], &b[head * width..(head + 1) * width]) };
        head += 1;
    }
}

/// Dot products of four heads; `a` and `b` have `4 * width` elements.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "heads index the rows too")]
unsafe fn four_dots<S: Simd>(a: *const f32, b: *const f32, width: usize) -> [f32; 4] {
    // SAFETY: the loads stay inside each head; the caller promises the instructions.
    unsafe {
        let mut sums = [S::splat(0.0); 4];
        let mut at = 0;
        while at + S::LANES <= width {
            for h in 0..4 {
                let from = h * width + at;
                sums[h] = S::fma(S::load(a.add(from)), S::load(b.add(from)), sums[h]);
            }
            at += S::LANES;
        }
        if at < width {
            for h in 0..4 {
                let (from, left) = (h * width + at, width - at);
                sums[h] = S::fma(S::load_first(a.add(from), left), S::load_first(b.add(from), left), sums[h]);
            }
        }
        S::sums(sums)
    }
}

/// A row of `heads * width` elements, and a factor that multiplies all elements of a head.
#[derive(Clone, Copy)]
pub(super) struct Scaled<'a> {
    pub(super) factors: &'a [f32],
    pub(super) row: &'a [f32],
}

impl Scaled<'_> {
    #[inline(always)]
    fn check(&self, heads: usize, cols: usize) {
        assert!(self.factors.len() == heads && self.row.len() == cols, "a factor for each head, and elements of a row");
    }
}

/// Writes the sum of scaled rows to `out`.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "terms index the factors too")]
pub(super) unsafe fn sum_scaled<S: Simd, const N: usize>(terms: [Scaled<'_>; N], width: usize, out: &mut [f32]) {
    let heads = out.len() / width;
    assert!(heads * width == out.len(), "whole heads");
    terms.iter().for_each(|term| term.check(heads, out.len()));
    // SAFETY: loads and stores stay below `heads * width`, which all rows have; the caller promises the instructions.
    unsafe {
        for h in 0..heads {
            let (mut at, end) = (h * width, (h + 1) * width);
            let mut factors = [S::splat(0.0); N];
            for n in 0..N {
                factors[n] = S::splat(terms[n].factors[h]);
            }
            while at + S::LANES <= end {
                let mut sum = S::splat(0.0);
                for n in 0..N {
                    sum = S::fma(factors[n], S::load(terms[n].row.as_ptr().add(at)), sum);
                }
                S::store(out.as_mut_ptr().add(at), sum);
                at += S::LANES;
            }
            if at < end {
                let mut sum = S::splat(0.0);
                for n in 0..N {
                    sum = S::fma(factors[n], S::load_first(terms[n].row.as_ptr().add(at), end - at), sum);
                }
                S::store_first(out.as_mut_ptr().add(at), end - at, sum);
            }
        }
    }
}

/// Adds a scaled row to `out`.
#[inline(always)]
pub(super) unsafe fn add_scaled<S: Simd>(term: Scaled<'_>, width: usize, out: &mut [f32]) {
    let heads = out.len() / width;
    assert!(heads * width == out.len(), "whole heads");
    term.check(heads, out.len());
    // SAFETY: loads and stores stay below `heads * width`, which both rows have; the caller promises the instructions.
    unsafe {
        for h in 0..heads {
            let (mut at, end) = (h * width, (h + 1) * width);
            let factor = S::splat(term.factors[h]);
            while at + S::LANES <= end {
                let to = out.as_mut_ptr().add(at);
                S::store(to, S::fma(factor, S::load(term.row.as_ptr().add(at)), S::load(to)));
                at += S::LANES;
            }
            if at < end {
                let (to, left) = (out.as_mut_ptr().add(at), end - at);
                let sum = S::fma(factor, S::load_first(term.row.as_ptr().add(at), left), S::load_first(to, left));
                S::store_first(to, left, sum);
            }
        }
    }
}

/// Replaces every element, which is at most 0, by its exponential: relative error below 2e-7, 0 below -87.3. NaN stays NaN.
#[inline(always)]
pub(super) unsafe fn exp<S: Simd>(values: &mut [f32]) {
    let (len, lanes) = (values.len(), S::LANES);
    // SAFETY: loads and stores stay below `len`; the caller promises the instructions.
    unsafe {
        let mut at = 0;
        while at + lanes <= len {
            let to = values.as_mut_ptr().add(at);
            S::store(to, exp_vector::<S>(S::load(to)));
            at += lanes;
        }
        if at < len {
            let (to, left) = (values.as_mut_ptr().add(at), len - at);
            S::store_first(to, left, exp_vector::<S>(S::load_first(to, left)));
        }
    }
}

/// exp(x) = 2^n · exp(r) with n the integer nearest to x / ln 2, |r| <= ln 2 / 2, and exp(r) its series to r^7 / 7!.
#[inline(always)]
unsafe fn exp_vector<S: Simd>(x: S::V) -> S::V {
    /// Rounding constant: adding it leaves the nearest integer in the low bits of the sum.
    const MAGIC: f32 = 12_582_912.0;
    /// ln 2 in two parts; the first has few enough bits that its product with n is exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    const SERIES: [f32; 6] = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0];
    // SAFETY: the caller promises the instructions.
    unsafe {
        let least = S::splat(-87.3);
        let bounded = S::max(least, x);
        let magic = S::fma(bounded, S::splat(std::f32::consts::LOG2_E), S::splat(MAGIC));
        let n = S::sub(magic, S::splat(MAGIC));
        let r = S::fma(n, S::splat(-LN_2[0]), bounded);
        let r = S::fma(n, S::splat(-LN_2[1]), r);
        let mut sum = S::splat(1.0 / 5040.0);
        for term in SERIES {
            sum = S::fma(sum, r, S::splat(term));
        }
        sum = S::fma(sum, r, S::splat(1.0));
        S::zero_below(S::mul(sum, S::power(magic)), x, least)
    }
}

#[cfg(test)]
mod tests;
