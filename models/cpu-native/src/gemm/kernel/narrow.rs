//! Strips of fewer columns than a vector has elements, where the left factor is column-major: the gradient of a weight of 100
//! features has six strips of 16 columns and one of 4.
//!
//! A vector holds consecutive rows of the output instead of columns, so that all its elements are used; each element of the right
//! factor is broadcast. Sums have the bits of the other tiles': products commute, and are added in the order of depths.

use super::{Prefetch, Tile, vector_of};
use crate::simd::Simd;

/// Columns of a tile.
const COLUMNS: usize = 4;
/// Maximum vectors of a tile's rows: each needs a register itself, and one sum per column.
const VECTORS: usize = 3;
/// Maximum elements of a vector.
const LANES: usize = 16;

/// Computes all rows of a strip of `tile.last` columns, fewer than a vector has elements.
///
/// # Safety
///
/// As [`super::strip_of`]; the left factor is column-major.
#[inline(always)]
pub(super) unsafe fn strip_of<S: Simd>(mut tile: Tile, mut rows: usize, ahead: &mut Prefetch) {
    // SAFETY: the tile advances by its height, which is at most the number of rows left.
    unsafe {
        while rows >= S::LANES {
            let vectors = (rows / S::LANES).min(VECTORS);
            match vectors {
                3 => rows_of::<S, 3>(tile, ahead),
                2 => rows_of::<S, 2>(tile, ahead),
                _ => rows_of::<S, 1>(tile, ahead),
            }
            let height = vectors * S::LANES;
            rows -= height;
            tile.left = tile.left.wrapping_add(height);
            tile.out = tile.out.wrapping_add(height * tile.columns);
        }
        if rows > 0 {
            vector_of::<S, false, true>(tile, rows, ahead);
        }
    }
}

/// Computes `V` vectors of rows, a few columns at a time.
///
/// # Safety
///
/// As [`strip_of`].
#[inline(always)]
unsafe fn rows_of<S: Simd, const V: usize>(mut tile: Tile, ahead: &mut Prefetch) {
    // SAFETY: the tile advances by its columns, which are at most those left.
    unsafe {
        while tile.last > 0 {
            let columns = match tile.last {
                COLUMNS.. => tile_of::<S, V, COLUMNS>(tile, ahead),
                2.. => tile_of::<S, V, 2>(tile, ahead),
                _ => tile_of::<S, V, 1>(tile, ahead),
            };
            tile.last -= columns;
            tile.right = tile.right.wrapping_add(columns);
            tile.out = tile.out.wrapping_add(columns);
        }
    }
}

/// Computes `V` vectors of rows by `C` columns; returns `C`.
///
/// # Safety
///
/// As [`strip_of`].
#[inline(always)]
unsafe fn tile_of<S: Simd, const V: usize, const C: usize>(t: Tile, ahead: &mut Prefetch) -> usize {
    // SAFETY: the caller promises the instructions, and that the factors and the output have these elements.
    unsafe {
        let mut sums = [[S::splat(0.0); V]; C];
        let (mut a, mut b) = (t.left, t.right);
        for d in 0..t.depth {
            if d % 4 == 0 {
                ahead.advance::<S>();
            }
            let mut rows = [S::splat(0.0); V];
            for (v, rows) in rows.iter_mut().enumerate() {
                *rows = S::load(a.add(v * S::LANES));
            }
            for (c, sums) in sums.iter_mut().enumerate() {
                let x = S::splat(*b.add(c));
                for (sum, &rows) in sums.iter_mut().zip(&rows) {
                    *sum = S::fma(rows, x, *sum);
                }
            }
            (a, b) = (a.wrapping_add(t.left_by_depth), b.wrapping_add(t.right_by_depth));
        }
        for v in 0..V {
            let mut elements = [[0.0; LANES]; C];
            for (elements, sums) in elements.iter_mut().zip(&sums) {
                S::store(elements.as_mut_ptr(), sums[v]);
            }
            #[allow(clippy::needless_range_loop, reason = "one element of every column")]
            for r in 0..S::LANES {
                let out = t.out.add((v * S::LANES + r) * t.columns).cast::<[f32; C]>();
                let before = if t.add { *out } else { [0.0; C] };
                let element = |c: usize| if t.add { before[c] + elements[c][r] } else { elements[c][r] };
                *out = std::array::from_fn(element);
            }
        }
    }
    C
}
