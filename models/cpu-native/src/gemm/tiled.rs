//! GEMM on AMX tiles: factors are split into the thread's scratch and multiplied.

use std::cell::RefCell;

use morphgl_platform::SimdLevel;

use super::amx::{self, BLOCK, Block, Tiles};
use super::split::{self, CHUNK, GROUP, LANES, Matrix, Side, line_len, split};
use super::{Left, Right, Target, panels_len};
use crate::buffer::Buffer;
use crate::parallel;
use crate::prefetch::prefetch;
use crate::simd::has_tiles;

thread_local! {
    static SCRATCH: RefCell<[Buffer; 3]> = const { RefCell::new([Buffer::new(), Buffer::new(), Buffer::new()]) };
}

/// The planes of a right factor: packed before, or split into scratch during the first row of blocks.
enum Planes<'a> {
    Packed(&'a [u32]),
    Unpacked(Matrix<'a>, &'a mut [u32]),
}

/// As `super::multiply_all`, which has checked the left factor and the outputs.
///
/// Blocks of 32 x 32 sums are computed row by row. Between two chunks of the depth a part of the next rows is split, and lines
/// of the block's output are prefetched: the vector registers work while the tiles do.
///
/// # Panics
///
/// When a right factor is too short, or the level has no tiles.
pub(super) fn multiply_all(level: SimdLevel, sizes: [usize; 3], left: Left<'_>, targets: [Option<Target<'_, '_>>; 2]) {
    assert_tiles(level);
    // SAFETY: a level with tiles has AVX-512 too, and `super` has checked the left factor and the outputs.
    unsafe { run(sizes, left, targets.map(|target| target.map(|target| planes_of(level, sizes, target)))) };
}

/// The target with the tiles alone of a packed right factor, without the panels before them.
fn planes_of<'a, 'b>(
    level: SimdLevel,
    [_, columns, depth]: [usize; 3],
    (right, out, add): Target<'a, 'b>,
) -> Target<'a, 'b> {
    let start = if right.packed { panels_len(level, depth, columns) } else { 0 };
    (Right { values: &right.values[start..], ..right }, out, add)
}

/// # Safety
///
/// The processor has AMX and AVX-512.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn run([rows, columns, depth]: [usize; 3], left: Left<'_>, targets: [Option<Target<'_, '_>>; 2]) {
    let by_line = left.by_depth == 1 && left.by_row >= depth;
    let stride = if by_line { left.by_row } else { left.by_depth };
    let left = Matrix { values: left.values, stride, lines: rows, depth, by_line };
    let (chunks, line, pair) = (depth.div_ceil(CHUNK), line_len(depth), 2 * line_len(depth));
    let blocks_per_row = columns.div_ceil(BLOCK);
    SCRATCH.with_borrow_mut(|[left_scratch, right_scratch @ ..]| {
        let mut right_scratch = right_scratch.iter_mut();
        let mut targets = targets.map(|target| {
            let scratch = right_scratch.next()?;
            let (right, out, add) = target?;
            if right.packed {
                return Some((Planes::Packed(bytemuck::cast_slice(right.values)), out, add));
            }
            let matrix = Matrix { values: right.values, stride: right.by_depth, lines: columns, depth, by_line: false };
            Some((Planes::Unpacked(matrix, dwords(scratch, split::len(columns, depth))), out, add))
        });
        let passes = blocks_per_row * targets.iter().flatten().count();
        // Two lines of the left factor and the next two, which stay in the first-level cache.
        let (mut current, mut next) = dwords(left_scratch, 2 * pair).split_at_mut(pair);
        let split_left = |row: usize, part: usize, planes: &mut [u32]| {
            let (of_pair, chunk) = (part / chunks, part % chunks);
            if row + of_pair * LANES < rows {
                let at = of_pair * line + chunk * GROUP;
                // SAFETY: the caller's promise.
                unsafe { split(left, Side::Left, [row / LANES + of_pair, chunk], &mut planes[at..at + GROUP]) };
            }
        };
        (0..2 * chunks).for_each(|part| split_left(0, part, current));
        let rows_per_chunk = BLOCK.div_ceil(chunks);
        let mut block = Block([0.0; BLOCK * BLOCK]);
        // SAFETY: the caller's promise.
        let tiles = unsafe { Tiles::configure() };
        for row in (0..rows).step_by(BLOCK) {
            let height = BLOCK.min(rows - row);
            // The next rows have 2 * chunks parts to split, which are spread evenly over the chunks of all passes.
            let (mut part, mut due) = (0, 0);
            for (planes, out, add) in targets.iter_mut().flatten() {
                let out = &mut out[row * columns..(row + height) * columns];
                for column in (0..columns).step_by(BLOCK) {
                    let start = column / BLOCK * pair;
                    let right = match planes {
                        Planes::Packed(planes) => &planes[start..start + pair],
                        Planes::Unpacked(matrix, planes) => {
                            let planes = &mut planes[start..start + pair];
                            if row == 0 {
                                // SAFETY: the caller's promise.
                                unsafe { split_lines(*matrix, column / LANES, planes) };
                            }
                            &*planes
                        }
                    };
                    let direct = !*add && height == BLOCK && column + BLOCK <= columns;
                    let first = out.as_ptr().wrapping_add(column);
                    let mut own_rows = (0..height).map(|row| first.wrapping_add(row * columns));
                    // The output's lines arrive from memory while the tiles multiply; the stores at the end would wait for them.
                    let between = || {
                        own_rows.by_ref().take(rows_per_chunk).for_each(|row| prefetch(row, BLOCK));
                        if row + BLOCK < rows {
                            due += 2;
                            while due >= passes {
                                due -= passes;
                                split_left(row + BLOCK, part, next);
                                part += 1;
                            }
                        }
                    };
                    if direct {
                        tiles.multiply((current, right), chunks, (&mut out[column..], columns), between);
                    } else {
                        tiles.multiply((current, right), chunks, (&mut block.0, BLOCK), between);
                    }
                    if !direct {
                        // SAFETY: the caller's promise.
                        unsafe { block.write(height, [columns, column], out, *add) };
                    }
                }
            }
            std::mem::swap(&mut current, &mut next);
        }
    });
}

/// Splits two lines of a right factor, or the last one.
///
/// # Safety
///
/// The processor has AVX-512.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn split_lines(matrix: Matrix<'_>, first: usize, planes: &mut [u32]) {
    let lines = matrix.lines.div_ceil(LANES);
    for (line, planes) in (first..lines).zip(planes.chunks_exact_mut(line_len(matrix.depth))) {
        for (chunk, planes) in planes.chunks_exact_mut(GROUP).enumerate() {
            // SAFETY: the caller's promise.
            unsafe { split(matrix, Side::Right, [line, chunk], planes) };
        }
    }
}

/// The first `len` dwords of a buffer.
fn dwords(scratch: &mut Buffer, len: usize) -> &mut [u32] {
    bytemuck::cast_slice_mut(scratch.get(len))
}

/// As `super::pack`, which has checked the lengths.
pub(super) fn pack(level: SimdLevel, weight: &[f32], [depth, columns]: [usize; 2], transposed: bool, out: &mut [f32]) {
    assert_tiles(level);
    let stride = if transposed { depth } else { columns };
    let matrix = Matrix { values: weight, stride, lines: columns, depth, by_line: transposed };
    let outputs = [(out, line_len(depth))];
    parallel::tasks(columns.div_ceil(LANES), outputs, &|line, [out]| {
        for (chunk, out) in bytemuck::cast_slice_mut(out).chunks_exact_mut(GROUP).enumerate() {
            // SAFETY: a level with tiles.
            unsafe { split(matrix, Side::Right, [line, chunk], out) };
        }
    });
}

fn assert_tiles(level: SimdLevel) {
    assert!(has_tiles(level) && level <= SimdLevel::detected(), "a processor with AMX");
}

/// As `super::tiles_flops`.
pub(super) fn flops(level: SimdLevel) -> f64 {
    assert_tiles(level);
    // SAFETY: a level with tiles.
    let multiply_adds = unsafe { amx::multiply_registers(1 << 14) };
    2.0 * multiply_adds as f64 / split::PRODUCTS as f64
}
