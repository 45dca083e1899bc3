//! Products on AMX tiles: factors are split into the thread's own scratch, and multiplied.
//!
//! The functions are called at levels with tiles alone, so the processor has AMX and AVX-512.

use std::cell::RefCell;

use super::split::{self, LANES, Matrix, Side, split_line};
use super::{Left, Right, Times, amx};
use crate::parallel;

thread_local! {
    static SCRATCH: RefCell<[Vec<u32>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

/// As `super::multiply_all`, which has checked the left factor and the outputs.
///
/// # Panics
///
/// When a right factor is too short.
pub(super) fn multiply_all<const N: usize>(
    [rows, columns, depth]: [usize; 3],
    left: Left<'_>,
    times: [Option<Times<'_, '_>>; N],
) {
    let by_line = left.by_depth == 1 && left.by_row >= depth;
    let stride = if by_line { left.by_row } else { left.by_depth };
    SCRATCH.with_borrow_mut(|[of_left, of_right]| {
        let left = Matrix { values: left.values, stride, lines: rows, depth, by_line };
        let left = split_into(left, Side::Left, of_left);
        for (right, out, add) in times.into_iter().flatten() {
            let Right { values, by_depth, packed, .. } = right;
            let right = if packed {
                bytemuck::cast_slice(values)
            } else {
                let right = Matrix { values, stride: by_depth, lines: columns, depth, by_line: false };
                split_into(right, Side::Right, of_right)
            };
            // SAFETY: a level with tiles.
            unsafe { amx::run([rows, columns, depth], (left, right), out, add) };
        }
    });
}

/// The planes of a whole factor, which begin with a cache line.
fn split_into<'a>(matrix: Matrix<'_>, side: Side, scratch: &'a mut Vec<u32>) -> &'a [u32] {
    const LINE: usize = 64;
    let len = split::len(matrix.lines, matrix.depth);
    if scratch.len() < len + LINE {
        scratch.resize(len + LINE, 0);
    }
    let start = scratch.as_ptr().align_offset(LINE);
    let out = &mut scratch[start..start + len];
    for (line, out) in
        out.chunks_exact_mut(split::line_len(matrix.depth)).take(matrix.lines.div_ceil(LANES)).enumerate()
    {
        // SAFETY: a level with tiles.
        unsafe { split_line(matrix, side, line, out) };
    }
    out
}

/// As `super::pack`, which has checked the lengths.
pub(super) fn pack(weight: &[f32], [depth, columns]: [usize; 2], transposed: bool, out: &mut [f32]) {
    let stride = if transposed { depth } else { columns };
    let matrix = Matrix { values: weight, stride, lines: columns, depth, by_line: transposed };
    let outputs = [(out, split::line_len(depth))];
    parallel::tasks(columns.div_ceil(LANES), outputs, &|line, [out]| {
        // SAFETY: a level with tiles.
        unsafe { split_line(matrix, Side::Right, line, bytemuck::cast_slice_mut(out)) };
    });
}

/// As `super::tiles_flops`.
pub(super) fn flops() -> f64 {
    // SAFETY: a level with tiles.
    let multiply_adds = unsafe { amx::turn(1 << 14) };
    2.0 * multiply_adds as f64 / split::PRODUCTS as f64
}
