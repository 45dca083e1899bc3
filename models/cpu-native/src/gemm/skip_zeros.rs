//! Matrix products that skip the zeros of their left factor, for activations and gradients after ReLU and dropout.
//!
//! A row of the result is held in registers while it takes the left row's nonzeros one after the other, each times a row of
//! the right factor. The order of the depth is that of `super::kernel`, and so are the bits of a product that is not added
//! to another, as long as the right factor is finite: 0 times infinity is skipped too.

use std::cell::RefCell;

use super::{Left, Right, Times, kernel, panel};
use crate::buffer::{Buffer, resize};
use crate::simd::{Simd, dispatch};
use morphgl_platform::SimdLevel;

/// Share of nonzeros up to which zeros are skipped; the dense kernel is as fast from about 0.75 on (bench `step`).
const AT_MOST: f64 = 0.6;
/// Columns from which a row of the result has enough vectors to hide the latency of its additions, and rows and depths from
/// which packing the right factor and finding the zeros pays.
const FROM: usize = 48;
/// Elements of a mask.
const BITS: usize = u64::BITS as usize;

/// A thread's own memory: masks of the left factor, and a right factor's panels.
#[derive(Default)]
struct Scratch {
    masks: Vec<u64>,
    panels: Buffer,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// As `super::multiply_all`, which has checked the factors and outputs, on vector registers.
///
/// Returns false, and has done nothing, where the left factor has too few zeros or the product is too small.
pub(super) fn multiply_all(
    level: SimdLevel,
    [rows, columns, depth]: [usize; 3],
    left: Left<'_>,
    times: &mut [Option<Times<'_, '_>>; 2],
) -> bool {
    if rows.min(columns).min(depth) < FROM {
        return false;
    }
    SCRATCH.with_borrow_mut(|Scratch { masks, panels }| {
        resize(masks, rows * depth.div_ceil(BITS));
        find(level, [rows, depth], left, masks);
        let nonzeros: usize = masks.iter().map(|mask| mask.count_ones() as usize).sum();
        if nonzeros as f64 > AT_MOST * (rows * depth) as f64 {
            return false;
        }
        for (right, out, add) in times.iter_mut().flatten() {
            let right = if right.packed {
                *right
            } else {
                let panels = panels.get(depth * columns.next_multiple_of(panel(level)));
                pack(level, *right, [depth, columns], panels);
                Right::packed(level, panels, depth)
            };
            run(level, [rows, columns, depth], (left, masks), right, out, *add);
        }
        true
    })
}

dispatch! {
    /// Writes bit masks of the left factor's nonzeros: one word a row for the first 64 elements of the inner dimension, then
    /// one a row for the next 64, and so on.
    fn find(sizes: [usize; 2], left: Left<'_>, masks: &mut [u64]) = find_of::<S>
}

/// # Safety
///
/// The processor has the instructions of `S`, and the left factor has its elements, rows or columns side by side.
#[inline(always)]
unsafe fn find_of<S: Simd>([rows, depth]: [usize; 2], left: Left<'_>, masks: &mut [u64]) {
    for (masks, start) in masks.chunks_exact_mut(rows).zip((0..depth).step_by(BITS)) {
        let end = (start + BITS).min(depth);
        let at = |row: usize, depth: usize| left.values[row * left.by_row + depth * left.by_depth..].as_ptr();
        if left.by_depth == 1 {
            for (row, mask) in masks.iter_mut().enumerate() {
                // SAFETY: the row has as many elements from here on.
                *mask = unsafe { mask_of::<S>(at(row, start), end - start) };
            }
            continue;
        }
        for (index, masks) in masks.chunks_mut(BITS).enumerate() {
            let mut square = [0; BITS];
            for (depth, mask) in (start..end).zip(&mut square) {
                // SAFETY: the elements of a depth stand side by side, one a row.
                *mask = unsafe { mask_of::<S>(at(index * BITS, depth), masks.len()) };
            }
            transpose(&mut square);
            masks.copy_from_slice(&square[..masks.len()]);
        }
    }
}

/// A bit for every nonzero of `n` elements, at most 64.
///
/// # Safety
///
/// The processor has the instructions of `S`, and there are as many elements.
#[inline(always)]
unsafe fn mask_of<S: Simd>(at: *const f32, n: usize) -> u64 {
    let (whole, rest) = (n / S::LANES * S::LANES, n % S::LANES);
    let mut mask = 0;
    // SAFETY: the caller's promise.
    unsafe {
        for i in (0..whole).step_by(S::LANES) {
            mask |= u64::from(S::nonzeros(S::load(at.add(i)))) << i;
        }
        if rest > 0 {
            mask |= u64::from(S::nonzeros(S::load_first(at.add(whole), rest))) << whole;
        }
    }
    mask
}

/// Transposes 64 x 64 bits: the two squares off the diagonal change places, then within each of the four the same.
fn transpose(square: &mut [u64; BITS]) {
    let (mut side, mut low) = (BITS / 2, u64::from(u32::MAX));
    while side > 0 {
        for start in (0..BITS).step_by(2 * side) {
            for i in start..start + side {
                let changed = (square[i] >> side ^ square[i + side]) & low;
                square[i] ^= changed << side;
                square[i + side] ^= changed;
            }
        }
        side /= 2;
        low ^= low << side;
    }
}

dispatch! {
    /// Packs rows as `super::pack` does, in the calling thread.
    fn pack(right: Right<'_>, sizes: [usize; 2], panels: &mut [f32]) = pack_of::<S>
}

/// # Safety
///
/// The processor has the instructions of `S`.
#[inline(always)]
unsafe fn pack_of<S: Simd>(right: Right<'_>, [depth, columns]: [usize; 2], panels: &mut [f32]) {
    let width = kernel::tile_columns::<S>();
    for (row, values) in right.values.chunks(right.by_depth).take(depth).enumerate() {
        for (index, values) in values[..columns].chunks(width).enumerate() {
            let out = &mut panels[(index * depth + row) * width..][..width];
            for (values, out) in values.chunks(S::LANES).zip(out.chunks_exact_mut(S::LANES)) {
                let (from, whole) = (values.as_ptr(), values.len() == S::LANES);
                // SAFETY: there are as many elements, and room for a vector.
                unsafe {
                    S::store(out.as_mut_ptr(), if whole { S::load(from) } else { S::load_first(from, values.len()) });
                }
            }
        }
    }
}

dispatch! {
    /// Computes a product by a packed factor.
    fn run(sizes: [usize; 3], left: (Left<'_>, &[u64]), right: Right<'_>, out: &mut [f32], add: bool) = run_of::<S>
}

/// Columns of the result that fit in registers, and 64 depths, whose rows of the right factor fit in the first-level cache.
#[derive(Clone, Copy)]
struct Strip<'a> {
    left: *const f32,
    by_row: usize,
    left_by_depth: usize,
    /// Of every row.
    masks: &'a [u64],
    right: *const f32,
    by_panel: usize,
    out: *mut f32,
    columns: usize,
    /// Columns in the last vector, `1..=LANES`.
    last: usize,
    add: bool,
}

/// # Safety
///
/// The processor has the instructions of `S`, and the factors and the output are as long as `super::multiply_all` asks.
#[inline(always)]
unsafe fn run_of<S: Simd>(
    [rows, columns, depth]: [usize; 3],
    (left, masks): (Left<'_>, &[u64]),
    right: Right<'_>,
    out: &mut [f32],
    add: bool,
) {
    let in_panel = right.by_depth / S::LANES;
    let vectors = columns.div_ceil(S::LANES);
    let strips = vectors.div_ceil(most_vectors::<S>());
    // Whole panels, about equally many a strip.
    let width = vectors.div_ceil(in_panel).div_ceil(strips) * in_panel;
    for first in (0..vectors).step_by(width) {
        let vectors = width.min(vectors - first);
        let column = first * S::LANES;
        for (masks, start) in masks.chunks_exact(rows).zip((0..depth).step_by(BITS)) {
            let strip = Strip {
                left: left.values[start * left.by_depth..].as_ptr(),
                by_row: left.by_row,
                left_by_depth: left.by_depth,
                masks,
                right: right.values[right.column(column) + start * right.by_depth..].as_ptr(),
                by_panel: right.by_panel,
                out: out[column..].as_mut_ptr(),
                columns,
                last: (columns - column).min(vectors * S::LANES) - (vectors - 1) * S::LANES,
                add: add || start > 0,
            };
            macro_rules! strip_of {
                ($($v:literal)*) => {
                    match vectors {
                        // SAFETY: the strip lies inside of the factors and the output.
                        $($v if $v <= most_vectors::<S>() => unsafe { strip_of::<S, $v>(strip) },)*
                        _ => unreachable!("{vectors} vectors of a strip"),
                    }
                };
            }
            strip_of!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        }
    }
}

/// Vectors of a row of the result that registers hold, beside a nonzero and, where that is not fused, its product.
const fn most_vectors<S: Simd>() -> usize {
    match (S::REGISTERS, S::FUSED) {
        (17.., _) => 16,
        (_, true) => 14,
        (_, false) => 12,
    }
}

/// All rows of a strip of `V` vectors.
///
/// # Safety
///
/// As [`run_of`].
#[inline(always)]
unsafe fn strip_of<S: Simd, const V: usize>(s: Strip<'_>) {
    let in_panel = kernel::tile_columns::<S>() / S::LANES;
    for (row, &mask) in s.masks.iter().enumerate() {
        if s.add && mask == 0 {
            continue;
        }
        let left = s.left.wrapping_add(row * s.by_row);
        let out = s.out.wrapping_add(row * s.columns);
        let mut mask = mask;
        // SAFETY: the caller's promise; bits are set for elements that the left factor has.
        unsafe {
            let mut sums = [S::splat(0.0); V];
            if s.add {
                for (v, sum) in sums.iter_mut().enumerate() {
                    let at = out.add(v * S::LANES);
                    *sum = if v + 1 < V || s.last == S::LANES { S::load(at) } else { S::load_first(at, s.last) };
                }
            }
            while mask != 0 {
                let depth = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                let x = S::splat(*left.add(depth * s.left_by_depth));
                let right = s.right.add(depth * kernel::tile_columns::<S>());
                for (v, sum) in sums.iter_mut().enumerate() {
                    let at = right.add(v / in_panel * s.by_panel + v % in_panel * S::LANES);
                    *sum = S::fma(x, S::load(at), *sum);
                }
            }
            for (v, &sum) in sums.iter().enumerate() {
                let at = out.add(v * S::LANES);
                if v + 1 < V || s.last == S::LANES { S::store(at, sum) } else { S::store_first(at, s.last, sum) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gemm::{multiply_all, pack, packed_len};
    use crate::simd::vector_level;

    #[test]
    fn bits_are_transposed() {
        let mut square: [u64; BITS] = std::array::from_fn(|i| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let before = square;
        transpose(&mut square);
        for (i, row) in square.into_iter().enumerate() {
            before.iter().enumerate().for_each(|(j, other)| assert_eq!(row >> j & 1, other >> i & 1, "{i}, {j}"));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn skipped_zeros_change_no_bits(
            (rows, columns, depth) in (1..150usize, 1..300usize, 1..300usize),
            share in 0.0..1.0f64,
            seed: u64,
        ) {
            let mut state = seed;
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 40) as f32 / (1 << 24) as f32
            };
            let mut number = |share: f64| if f64::from(random()) < share { random() - 0.5 } else { 0.0 };
            // Whole rows of zeros too.
            let a: Vec<f32> = (0..rows * depth).map(|i| if i / depth % 7 == 3 { 0.0 } else { number(share) }).collect();
            let b: Vec<f32> = (0..depth * columns).map(|_| number(1.0)).collect();
            let at: Vec<f32> = (0..depth * rows).map(|i| a[i % rows * depth + i / rows]).collect();
            for level in SimdLevel::available().rev().map(vector_level) {
                let mut panels = vec![f32::NAN; packed_len(level, depth, columns)];
                pack(level, &b, [depth, columns], false, &mut panels);
                for left in [Left::rows(&a, depth), Left::transposed(&at, rows)] {
                    for right in [Right::rows(&b, columns), Right::packed(level, &panels, depth)] {
                        let product = |left: Left<'_>| {
                            let mut out = [vec![f32::NAN; rows * columns], vec![0.5; rows * columns]];
                            let [first, second] = &mut out;
                            let times = [Some((right, &mut first[..], false)), Some((right, &mut second[..], true))];
                            multiply_all(level, [rows, columns, depth], left, times);
                            out
                        };
                        let [[dense, added], [sparse, sparse_added]] = [false, true].map(|zeros| product(left.with_zeros(zeros)));
                        prop_assert_eq!(&dense, &sparse, "{:?}", level);
                        for (dense, sparse) in added.iter().zip(&sparse_added) {
                            prop_assert!((dense - sparse).abs() < 1e-4, "{level:?}: {dense} and {sparse}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn few_zeros_and_small_products_are_left_to_the_dense_kernel() {
        let level = vector_level(SimdLevel::current());
        for (zero_of, side, expected) in [(2, 64, true), (3, 64, false), (2, FROM - 1, false)] {
            let a: Vec<f32> = (0..side * side).map(|i| f32::from(u8::from(i % zero_of != 0))).collect();
            let mut out = vec![0.0; side * side];
            let mut times = [Some((Right::rows(&a, side), &mut out[..], false)), None];
            let done = super::multiply_all(level, [side; 3], Left::rows(&a, side), &mut times);
            assert_eq!(done, expected, "{side}, a zero every {zero_of}");
        }
    }
}
