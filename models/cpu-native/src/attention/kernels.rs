//! The loops inside a row: weighted sums of gathered rows, dot products, exponentials.
//!
//! All are generic over the vectors and inlined into functions compiled for them. `unsafe` means one thing here: the
//! processor must have `S`'s instructions. Bounds are checked once a slice, and loads stay inside the slices.

use crate::prefetch::{line, prefetch};
use crate::simd::Simd;

/// Rows to be summed, each head with a coefficient of its own.
pub(super) trait WeightedRows {
    /// Number of rows.
    fn len(&self) -> usize;
    /// Row `k`, `heads * width` elements.
    fn row(&self, k: usize) -> &[f32];
    /// Its coefficients, one a head.
    fn coefficients(&self, k: usize) -> &[f32];
    /// Asks for what will be read some terms after `k`.
    fn prefetch(&self, k: usize);
}

/// Bytes of gathered rows that are asked for ahead.
const BYTES_AHEAD: usize = 4096;

/// How many rows of `cols` elements ahead of their use rows are asked for.
pub(super) fn rows_ahead(cols: usize) -> usize {
    (BYTES_AHEAD / (4 * cols.max(1))).clamp(2, 24)
}

/// Asks for all cache lines of row `row`.
#[inline(always)]
pub(super) fn prefetch_row(values: &[f32], row: u32, cols: usize) {
    let start = values.as_ptr().wrapping_add(row as usize * cols);
    prefetch(start, cols);
    // Rows that do not start with a line end in one more.
    if !cols.is_multiple_of(16) {
        line(start.wrapping_add(cols - 1));
    }
}

/// Part of a row: heads from `head`, and of each the vectors from element `at` on.
#[derive(Clone, Copy)]
struct Place {
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
        let left = heads - head;
        let place = Place { heads, width, head, at: 0 };
        // SAFETY: the caller promises the instructions; heads and vectors lie inside the row by the matches.
        unsafe {
            match (vectors, left) {
                (1, 4..) => add_block::<S, T, 4, 1>(terms, place, out),
                (2, 4..) => add_block::<S, T, 4, 2>(terms, place, out),
                (4, 2..) => add_block::<S, T, 2, 4>(terms, place, out),
                _ => add_head::<S, T>(terms, place, out),
            }
        }
        head += match vectors {
            1 | 2 if left >= 4 => 4,
            4 if left >= 2 => 2,
            _ => 1,
        };
    }
}

/// One head, as many vectors at once as there are.
#[inline(always)]
unsafe fn add_head<S: Simd, T: WeightedRows>(terms: &T, mut place: Place, out: &mut [f32]) {
    while place.at < place.width {
        let vectors = (place.width - place.at).div_ceil(S::LANES);
        // SAFETY: the same contract.
        unsafe {
            match vectors {
                8.. => add_block::<S, T, 1, 8>(terms, place, out),
                4.. => add_block::<S, T, 1, 4>(terms, place, out),
                3 => add_block::<S, T, 1, 3>(terms, place, out),
                2 => add_block::<S, T, 1, 2>(terms, place, out),
                _ => add_block::<S, T, 1, 1>(terms, place, out),
            }
        }
        let done = match vectors {
            8.. => 8,
            4.. => 4,
            few => few,
        };
        place.at += done * S::LANES;
    }
}

#[inline(always)]
unsafe fn add_block<S: Simd, T: WeightedRows, const HEADS: usize, const VECTORS: usize>(
    terms: &T,
    place: Place,
    out: &mut [f32],
) {
    // SAFETY: the same contract; whole vectors are loaded where the last one is whole.
    unsafe {
        if place.width - place.at >= VECTORS * S::LANES {
            add_vectors::<S, T, HEADS, VECTORS, false>(terms, place, out);
        } else {
            add_vectors::<S, T, HEADS, VECTORS, true>(terms, place, out);
        }
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "heads and vectors are places in the row too")]
unsafe fn add_vectors<S: Simd, T: WeightedRows, const HEADS: usize, const VECTORS: usize, const TAIL: bool>(
    terms: &T,
    place: Place,
    out: &mut [f32],
) {
    let Place { heads, width, head, at } = place;
    assert!(head + HEADS <= heads && at + (VECTORS - 1) * S::LANES < width, "a block inside the row");
    let tail = if TAIL { width - at - (VECTORS - 1) * S::LANES } else { S::LANES };
    let first = head == 0 && at == 0;
    let offset = |h: usize, v: usize| (head + h) * width + at + v * S::LANES;
    let partial = |v: usize| TAIL && v + 1 == VECTORS;
    // SAFETY: `out` and the terms' rows have heads * width elements (asserted below), the block lies inside of them
    // (asserted above), and its last vector is cut to what is left of the head.
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

/// Sum of the products.
#[inline(always)]
pub(super) unsafe fn dot<S: Simd>(a: &[f32], b: &[f32]) -> f32 {
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

/// `out += a * x`.
#[inline(always)]
pub(super) unsafe fn axpy<S: Simd>(out: &mut [f32], a: f32, x: &[f32]) {
    assert_eq!(out.len(), x.len(), "elements of two vectors");
    let (len, lanes) = (x.len(), S::LANES);
    // SAFETY: loads and stores stay below `len`; the caller promises the instructions.
    unsafe {
        let a = S::splat(a);
        let mut at = 0;
        while at + lanes <= len {
            let to = out.as_mut_ptr().add(at);
            S::store(to, S::fma(a, S::load(x.as_ptr().add(at)), S::load(to)));
            at += lanes;
        }
        if at < len {
            let (to, left) = (out.as_mut_ptr().add(at), len - at);
            let sum = S::fma(a, S::load_first(x.as_ptr().add(at), left), S::load_first(to, left));
            S::store_first(to, left, sum);
        }
    }
}

/// Replaces every element, which is at most 0, by its exponential: relative error below 2e-7, 0 below -87.3.
/// What is no number stays so.
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
    /// Adding it rounds to an integer, which is then in the low bits.
    const MAGIC: f32 = 12_582_912.0;
    /// ln 2 in two parts; the first has few enough bits for its product with n to be exact.
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
mod tests {
    use super::*;
    use crate::simd::dispatch;
    use morphgl_platform::SimdLevel;

    dispatch!(fn exp_of(values: &mut [f32]) = exp::<S>);

    #[test]
    fn exponentials_are_exact_to_two_units() {
        for level in SimdLevel::available().rev() {
            let mut x: Vec<f32> = (0..200_000).map(|i| -87.2 * i as f32 / 200_000.0).collect();
            x.extend([0.0, -0.0, -f32::MIN_POSITIVE, -1e-30, -f32::EPSILON]);
            let mut values = x.clone();
            exp_of(level, &mut values);
            for (&x, &value) in x.iter().zip(&values) {
                let exact = f64::from(x).exp();
                assert!((f64::from(value) / exact - 1.0).abs() < 2e-7, "exp({x}) is {value}, {level:?}");
            }
            let mut odd = [f32::NEG_INFINITY, f32::NAN, -100.0, -3.4e38, 0.0];
            exp_of(level, &mut odd);
            assert!(odd[0] == 0.0 && odd[1].is_nan() && odd[2] == 0.0 && odd[3] == 0.0 && odd[4] == 1.0, "{odd:?}");
        }
    }

    #[test]
    fn exponentials_do_not_depend_on_the_place() {
        for level in SimdLevel::available().rev() {
            let x: Vec<f32> = (0..100).map(|i| -0.37 * i as f32).collect();
            let mut whole = x.clone();
            exp_of(level, &mut whole);
            for start in 0..40 {
                let mut part = x[start..start + 37].to_vec();
                exp_of(level, &mut part);
                assert_eq!(part, whole[start..start + 37], "from {start}, {level:?}");
            }
        }
    }
}
