//! The kernels: tiles of a few rows by a few registers, all sums in registers.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

#[cfg(target_arch = "x86_64")]
use morphgl_graph_store::Isa;

use super::{Left, PANEL, Right};
use crate::level::{Level, fma, leveled};

/// A product whose factors and output are long enough for its sizes; `super::multiply` has checked it.
pub(super) fn run(level: Level, sizes: [usize; 3], factors: (Left<'_>, Right<'_>), out: &mut [f32], add: bool) {
    #[cfg(target_arch = "x86_64")]
    if level.isa() == Isa::Avx512 {
        // SAFETY: the level says that the processor has AVX-512, and the caller that the slices are long enough.
        return unsafe { avx512(sizes, factors, out, add) };
    }
    strips(level, sizes, factors, out, add);
}

leveled! {
    /// All tiles, in plain Rust.
    fn strips = strips_inner(sizes: [usize; 3], factors: (Left<'_>, Right<'_>), out: &mut [f32], add: bool)
}

#[inline(always)]
fn strips_inner<const FUSED: bool>(
    [rows, columns, depth]: [usize; 3],
    (left, right): (Left<'_>, Right<'_>),
    out: &mut [f32],
    add: bool,
) {
    for first in (0..columns).step_by(16) {
        let width = 16.min(columns - first);
        let start = first / PANEL * right.by_panel + first % PANEL;
        let mut row = 0;
        while row + 6 <= rows {
            strip::<FUSED, 6>(
                left,
                (&right.values[start..], right.by_depth),
                [row, first, width, depth, columns],
                out,
                add,
            );
            row += 6;
        }
        while row < rows {
            strip::<FUSED, 1>(
                left,
                (&right.values[start..], right.by_depth),
                [row, first, width, depth, columns],
                out,
                add,
            );
            row += 1;
        }
    }
}

#[inline(always)]
fn strip<const FUSED: bool, const R: usize>(
    left: Left<'_>,
    (right, by_depth): (&[f32], usize),
    [row, first, width, depth, columns]: [usize; 5],
    out: &mut [f32],
    add: bool,
) {
    let mut sums = [[0.0f32; 16]; R];
    for d in 0..depth {
        let mut b = [0.0f32; 16];
        match right[d * by_depth..].first_chunk::<16>() {
            Some(all) if width == 16 => b = *all,
            _ => b[..width].copy_from_slice(&right[d * by_depth..][..width]),
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            let a = left.values[(row + r) * left.by_row + d * left.by_depth];
            for (sum, &b) in sums.iter_mut().zip(&b) {
                *sum = fma::<FUSED>(a, b, *sum);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        let out = &mut out[(row + r) * columns + first..][..width];
        out.iter_mut().zip(sums).for_each(|(o, &s)| *o = if add { *o + s } else { s });
    }
}

#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Tile {
    left: *const f32,
    by_row: usize,
    left_by_depth: usize,
    right: *const f32,
    right_by_depth: usize,
    depth: usize,
    out: *mut f32,
    columns: usize,
    /// Columns of the last register.
    mask: __mmask16,
    add: bool,
}

/// # Safety
///
/// The processor has AVX-512, and the slices are as long as `super::multiply` asks.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512([rows, columns, depth]: [usize; 3], (left, right): (Left<'_>, Right<'_>), out: &mut [f32], add: bool) {
    for first in (0..columns).step_by(PANEL) {
        let width = PANEL.min(columns - first);
        let registers = width.div_ceil(16);
        let mask = (0xffff_u32 >> (16 * registers - width)) as __mmask16;
        let tile = Tile {
            left: left.values.as_ptr(),
            by_row: left.by_row,
            left_by_depth: left.by_depth,
            // SAFETY: the first element of a panel that has a column.
            right: unsafe { right.values.as_ptr().add(first / PANEL * right.by_panel) },
            right_by_depth: right.by_depth,
            depth,
            // SAFETY: a column of the output's first row.
            out: unsafe { out.as_mut_ptr().add(first) },
            columns,
            mask,
            add,
        };
        // SAFETY: the tiles are inside of the checked sizes.
        unsafe {
            match (registers, left.by_depth == 1) {
                (1, true) => panel::<12, 1, true>(tile, rows),
                (2, true) => panel::<12, 2, true>(tile, rows),
                (3, true) => panel::<8, 3, true>(tile, rows),
                (_, true) => panel::<6, 4, true>(tile, rows),
                (1, false) => panel::<12, 1, false>(tile, rows),
                (2, false) => panel::<12, 2, false>(tile, rows),
                (3, false) => panel::<8, 3, false>(tile, rows),
                (_, false) => panel::<6, 4, false>(tile, rows),
            }
        }
    }
}

/// All rows of one panel.
///
/// # Safety
///
/// As [`avx512`]; `tile` is the first of `rows` rows.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn panel<const R: usize, const V: usize, const ROWS: bool>(mut tile: Tile, rows: usize) {
    let mut left = rows;
    // SAFETY: the tile moves by the rows that it has done, and is no higher than those left.
    unsafe {
        while left > 0 {
            let mut done = left.min(R);
            match done {
                _ if done == R => tile_of::<R, V, ROWS>(tile),
                1 => tile_of::<1, V, ROWS>(tile),
                2 => tile_of::<2, V, ROWS>(tile),
                3 => tile_of::<3, V, ROWS>(tile),
                4 => tile_of::<4, V, ROWS>(tile),
                5 => tile_of::<5, V, ROWS>(tile),
                _ => {
                    // Of the taller tiles' rests, the rows beyond six are left for the next turn.
                    tile_of::<6, V, ROWS>(tile);
                    done = 6;
                }
            }
            left -= done;
            if left > 0 {
                tile.left = tile.left.add(done * tile.by_row);
                tile.out = tile.out.add(done * tile.columns);
            }
        }
    }
}

/// `R` rows by `V` registers; the left factor stands in rows, or in columns, so that one stride is a constant.
///
/// # Safety
///
/// As [`avx512`]: the tile lies inside of the factors and the output.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn tile_of<const R: usize, const V: usize, const ROWS: bool>(t: Tile) {
    // Steps whose addresses differ by constants: a thin tile waits for its addresses otherwise.
    const STEPS: usize = 4;
    let (by_row, by_depth) = if ROWS { (t.by_row, 1) } else { (1, t.left_by_depth) };
    let mut sums = [[_mm512_setzero_ps(); V]; R];
    let (mut a, mut b) = (t.left, t.right);
    let mut depth = t.depth;
    while depth > 0 {
        let steps = if depth < STEPS { 1 } else { STEPS };
        if steps == STEPS {
            for step in 0..STEPS {
                let (a, b) = (a.wrapping_add(step * by_depth), b.wrapping_add(step * t.right_by_depth));
                // SAFETY: there are as many steps left.
                unsafe { add_step(&mut sums, (a, by_row), b, t.mask) };
            }
        } else {
            // SAFETY: there is a step left.
            unsafe { add_step(&mut sums, (a, by_row), b, t.mask) };
        }
        (a, b) = (a.wrapping_add(steps * by_depth), b.wrapping_add(steps * t.right_by_depth));
        depth -= steps;
    }
    for (r, sums) in sums.iter().enumerate() {
        for (v, &sum) in sums.iter().enumerate() {
            let mask = if v + 1 == V { t.mask } else { 0xffff };
            // SAFETY: row r of the tile; the mask hides the columns behind the last.
            unsafe {
                let at = t.out.add(r * t.columns + 16 * v);
                let sum = if t.add { _mm512_add_ps(_mm512_maskz_loadu_ps(mask, at), sum) } else { sum };
                _mm512_mask_storeu_ps(at, mask, sum);
            }
        }
    }
}

/// One step of the depth.
///
/// # Safety
///
/// As [`avx512`]: `a` is the first row's element of this depth, `b` the first column's.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add_step<const R: usize, const V: usize>(
    sums: &mut [[__m512; V]; R],
    (a, by_row): (*const f32, usize),
    b: *const f32,
    mask: __mmask16,
) {
    let mut row = [_mm512_setzero_ps(); V];
    for (v, x) in row.iter_mut().enumerate() {
        // SAFETY: `multiply` has checked the last element, and the mask hides what is behind it.
        *x = unsafe {
            if v + 1 == V { _mm512_maskz_loadu_ps(mask, b.add(16 * v)) } else { _mm512_loadu_ps(b.add(16 * v)) }
        };
    }
    for (r, sums) in sums.iter_mut().enumerate() {
        // SAFETY: row r of the tile, at this depth.
        let x = _mm512_set1_ps(unsafe { *a.add(r * by_row) });
        for (sum, &b) in sums.iter_mut().zip(&row) {
            *sum = _mm512_fmadd_ps(x, b, *sum);
        }
    }
}
