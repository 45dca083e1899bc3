//! GEMM that skips the zeros of its left factor, for activations and gradients after ReLU and dropout.
//!
//! A row of the result stays in registers while each nonzero of the left row multiplies a row of the right factor. The order
//! of the depth is that of `super::kernel`. So are the bits, unless the result is added to the output or the right factor is
//! not finite: 0 times infinity is skipped too.

use std::cell::RefCell;

use morphgl_platform::SimdLevel;

use super::{Left, Right, Target, kernel, panel};
use crate::buffer::{Buffer, resize};
use crate::simd::{Simd, dispatch};

/// Maximum fraction of nonzeros; the dense kernel is as fast from about 0.75 on (bench `step`).
const MAX_NONZEROS: f64 = 0.6;
/// Maximum fraction of nonzeros where the GEMM would run on AMX tiles: at a quarter of nonzeros a weight's gradient is
/// 1.4 to 2.3 times as fast as on tiles, at a half 0.9 to 1.4 times (bench `step`, one thread of a Xeon).
const MAX_NONZEROS_ON_TILES: f64 = 0.35;
/// Minimum columns, for enough vectors to hide the latency of a row's additions, and minimum rows and depth, for packing the
/// right factor and finding the zeros to pay off.
const MIN_SIZE: usize = 48;
/// Elements of a mask.
const BITS: usize = u64::BITS as usize;

thread_local! {
    /// Scratch: masks of the left factor, and panels of a right factor.
    static SCRATCH: RefCell<(Vec<u64>, Buffer)> = RefCell::default();
}

/// As `super::multiply_all`, which has checked the factors and outputs, on vector registers.
///
/// Returns false without writing if the GEMM is too small, or the left factor has too few zeros: for this to be faster than
/// AMX tiles if the GEMM would run `on_tiles`, else than the dense kernel.
pub(super) fn multiply_all(
    level: SimdLevel,
    [rows, columns, depth]: [usize; 3],
    left: Left<'_>,
    targets: &mut [Option<Target<'_, '_>>; 2],
    on_tiles: bool,
) -> bool {
    let max_nonzeros = if on_tiles { MAX_NONZEROS_ON_TILES } else { MAX_NONZEROS };
    if rows.min(columns).min(depth) < MIN_SIZE {
        return false;
    }
    SCRATCH.with_borrow_mut(|(masks, panels)| {
        resize(masks, rows * depth.div_ceil(BITS));
        find(level, [rows, depth], left, masks);
        let nonzeros: usize = masks.iter().map(|mask| mask.count_ones() as usize).sum();
        if nonzeros as f64 > max_nonzeros * (rows * depth) as f64 {
            return false;
        }
        for (right, out, add) in targets.iter_mut().flatten() {
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
    /// Writes bit masks of the left factor's nonzeros: a word for each row's first 64 depths, then a word for each row's next
    /// 64, and so on.
    fn find(sizes: [usize; 2], left: Left<'_>, masks: &mut [u64]) = find_of::<S>
}

/// # Safety
///
/// The processor has the instructions of `S`, and the left factor has all elements, with contiguous rows or columns.
#[inline(always)]
unsafe fn find_of<S: Simd>([rows, depth]: [usize; 2], left: Left<'_>, masks: &mut [u64]) {
    for (masks, start) in masks.chunks_exact_mut(rows).zip((0..depth).step_by(BITS)) {
        let end = (start + BITS).min(depth);
        let at = |row: usize, depth: usize| left.values[row * left.by_row + depth * left.by_depth..].as_ptr();
        if left.by_depth == 1 {
            for (row, mask) in masks.iter_mut().enumerate() {
                // SAFETY: the row has these elements, contiguous.
                *mask = unsafe { mask_of::<S>(at(row, start), end - start) };
            }
            continue;
        }
        for (index, masks) in masks.chunks_mut(BITS).enumerate() {
            let mut square = [0; BITS];
            for (depth, mask) in (start..end).zip(&mut square) {
                // SAFETY: the column has these elements, contiguous.
                *mask = unsafe { mask_of::<S>(at(index * BITS, depth), masks.len()) };
            }
            transpose(&mut square);
            masks.copy_from_slice(&square[..masks.len()]);
        }
    }
}

/// Bit mask of the nonzeros among `n` elements, at most 64.
///
/// # Safety
///
/// The processor has the instructions of `S`, and there are `n` elements at `at`.
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

/// Transposes 64 x 64 bits: exchanges the two off-diagonal quadrants, then does the same within each quadrant.
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
    /// Packs a right factor as `super::pack` does, in the calling thread.
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
                // SAFETY: `values` has these elements, and `out` a whole vector.
                unsafe {
                    S::store(out.as_mut_ptr(), if whole { S::load(from) } else { S::load_first(from, values.len()) });
                }
            }
        }
    }
}

dispatch! {
    /// Computes a GEMM with a packed right factor.
    fn run(sizes: [usize; 3], left: (Left<'_>, &[u64]), right: Right<'_>, out: &mut [f32], add: bool) = run_of::<S>
}

/// Columns of the result that fit in registers, by 64 depths, whose rows of the right factor fit in the first-level cache.
#[derive(Clone, Copy)]
struct Strip<'a> {
    left: *const f32,
    by_row: usize,
    left_by_depth: usize,
    /// The masks of all rows.
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
/// The processor has the instructions of `S`, and the slices are as long as `super::multiply_all` checks.
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
    // Strips of about equally many whole panels.
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
                        // SAFETY: the strip is inside the factors and the output.
                        $($v if $v <= most_vectors::<S>() => unsafe { strip_of::<S, $v>(strip) },)*
                        _ => unreachable!("{vectors} vectors of a strip"),
                    }
                };
            }
            strip_of!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        }
    }
}

/// Vectors of a result row that fit in registers, beside a nonzero and, without fused multiply-add, its product.
const fn most_vectors<S: Simd>() -> usize {
    match (S::REGISTERS, S::FUSED) {
        (17.., _) => 16,
        (_, true) => 14,
        (_, false) => 12,
    }
}

/// Computes all rows of a strip of `V` vectors.
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
        // SAFETY: the caller's promise; set bits belong to elements of the left factor.
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
mod tests;
