//! Split of f32 factors into three bfloat16 planes, in the tile layout of AMX.
//!
//! x = hi + mid + lo exactly, eight bits each: hi is x truncated, so that a finite x has finite parts; mid is the rest
//! rounded, so that the omitted products have no bias. Parts below 2^-126 count as 0.
//!
//! A tile is 16 x 16 pairs; a pair holds the elements of depths k and k + 16. A row of a tile is a row of a left factor, or a
//! pair of depths of a right factor. Tiles are ordered by line (16 rows of a left factor or 16 columns of a right factor),
//! then by chunk of 32 depths, then by plane.

use std::arch::x86_64::*;

/// Rows of a tile, and pairs in a row.
pub(super) const LANES: usize = 16;
/// Dwords of a tile.
pub(super) const TILE: usize = LANES * LANES;
/// Dwords of the three tiles of a chunk.
pub(super) const GROUP: usize = 3 * TILE;
/// Depths of a tile.
pub(super) const CHUNK: usize = 2 * LANES;
/// Products of planes that replace one f32 product.
pub(super) const PRODUCTS: usize = 6;

/// Dwords of a factor's planes; the number of lines is even, since two lines are multiplied at a time.
pub(super) fn len(lines: usize, depth: usize) -> usize {
    lines.next_multiple_of(2 * LANES) / LANES * line_len(depth)
}

/// Dwords of one line of tiles.
pub(super) fn line_len(depth: usize) -> usize {
    GROUP * depth.div_ceil(CHUNK)
}

/// Factor of a GEMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// A matrix of `lines` (a left factor's rows, a right one's columns) by `depth` elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub(super) values: &'a [f32],
    /// Elements between the stored rows.
    pub(super) stride: usize,
    pub(super) lines: usize,
    pub(super) depth: usize,
    /// Whether the stored rows are lines; otherwise they are depths.
    pub(super) by_line: bool,
}

/// Writes the tiles of a chunk of the `line`-th 16 lines to `out`; lines beyond the matrix are 0.
///
/// # Panics
///
/// When the matrix or the output is too short.
///
/// # Safety
///
/// The processor has AVX-512.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn split(matrix: Matrix<'_>, side: Side, [line, chunk]: [usize; 2], out: &mut [u32]) {
    let Matrix { values, stride, lines, depth, by_line } = matrix;
    let (rows, columns) = if by_line { (lines, depth) } else { (depth, lines) };
    assert!(out.len() >= GROUP, "an output for the tiles of a chunk");
    assert!(columns <= stride && (rows - 1) * stride + columns <= values.len(), "{rows} x {columns} elements");
    let (first, k) = (line * LANES, chunk * CHUNK);
    let corners = [k, k + LANES].map(|k| if by_line { (first, k) } else { (k, first) });
    let whole = |(row, column): (usize, usize)| row + LANES <= rows && column + LANES <= columns;
    let edges;
    let halves = if corners.into_iter().all(whole) {
        corners.map(|(row, column)| (values[row * stride + column..].as_ptr(), stride))
    } else {
        edges = corners.map(|corner| edge(values, stride, [rows, columns], corner));
        edges.each_ref().map(|edge: &Edge| (edge.0.as_ptr(), LANES))
    };
    // SAFETY: the halves are whole, in the matrix or in a copy of its edge, and `out` has three tiles.
    unsafe {
        if by_line == (side == Side::Right) {
            store_columns(halves, out.as_mut_ptr());
        } else {
            store_rows(halves, out.as_mut_ptr());
        }
    }
}

/// 16 x 16 elements at the edge of a matrix, with zeros beyond it.
#[repr(C, align(64))]
struct Edge([f32; TILE]);

#[cold]
fn edge(values: &[f32], stride: usize, [rows, columns]: [usize; 2], (row, column): (usize, usize)) -> Edge {
    let mut edge = Edge([0.0; TILE]);
    for (r, edge) in (row..rows).zip(edge.0.chunks_exact_mut(LANES)) {
        let row = &values[r * stride..][column.min(columns)..columns.min(column + LANES)];
        edge[..row.len()].copy_from_slice(row);
    }
    edge
}

/// 16 x 16 stored elements: the address of the first, and the stride of rows.
type Half = (*const f32, usize);

/// Writes tiles whose rows are stored rows.
///
/// # Safety
///
/// The processor has AVX-512, both halves are readable, and `out` has three tiles.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn store_rows([(a, by_a), (b, by_b)]: [Half; 2], out: *mut u32) {
    for row in 0..LANES {
        // SAFETY: the caller's promise.
        unsafe { store(_mm512_loadu_ps(a.add(row * by_a)), _mm512_loadu_ps(b.add(row * by_b)), out.add(row * LANES)) };
    }
}

/// Writes tiles whose rows are stored columns.
///
/// # Safety
///
/// As [`store_rows`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn store_columns([a, b]: [Half; 2], out: *mut u32) {
    for column in (0..LANES).step_by(4) {
        // SAFETY: the caller's promise.
        let (a, b) = unsafe { (columns(a, column), columns(b, column)) };
        for (i, (a, b)) in a.into_iter().zip(b).enumerate() {
            // SAFETY: as above.
            unsafe { store(a, b, out.add((column + i) * LANES)) };
        }
    }
}

/// Loads four columns from `first` on.
///
/// # Safety
///
/// As [`store_rows`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn columns((from, stride): Half, first: usize) -> [__m512; 4] {
    // Register i has rows i, 4 + i, 8 + i and 12 + i, four elements each.
    let [a, b, c, d] = std::array::from_fn(|i| {
        // SAFETY: the caller's promise.
        let quad = |j: usize| unsafe { _mm_loadu_ps(from.add((4 * j + i) * stride + first)) };
        let x = _mm512_broadcast_f32x4(quad(0));
        let x = _mm512_mask_broadcast_f32x4(x, 0x00f0, quad(1));
        let x = _mm512_mask_broadcast_f32x4(x, 0x0f00, quad(2));
        _mm512_mask_broadcast_f32x4(x, 0xf000, quad(3))
    });
    let (ab_low, ab_high) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    let (cd_low, cd_high) = (_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    [
        _mm512_shuffle_ps::<0b01_00_01_00>(ab_low, cd_low),
        _mm512_shuffle_ps::<0b11_10_11_10>(ab_low, cd_low),
        _mm512_shuffle_ps::<0b01_00_01_00>(ab_high, cd_high),
        _mm512_shuffle_ps::<0b11_10_11_10>(ab_high, cd_high),
    ]
}

/// Splits 16 pairs of elements of `a` and `b`, and stores a row of three tiles.
///
/// # Safety
///
/// The processor has AVX-512, and `out` points into the first of three tiles.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn store(a: __m512, b: __m512, out: *mut u32) {
    let high = _mm512_set1_epi32(0xffff_0000_u32 as i32);
    let truncate = |x: __m512| _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), high));
    // Truncation after this rounds to eight bits, halves away from 0.
    let round = |x: __m512| _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)));
    let pair = |a: __m512, b: __m512| {
        let low = _mm512_srli_epi32::<16>(_mm512_castps_si512(a));
        _mm512_mask_blend_epi16(0xaaaa_aaaa, low, _mm512_castps_si512(b))
    };
    let (rest_a, rest_b) = (_mm512_sub_ps(a, truncate(a)), _mm512_sub_ps(b, truncate(b)));
    let (mid_a, mid_b) = (round(rest_a), round(rest_b));
    let (lo_a, lo_b) = (_mm512_sub_ps(rest_a, truncate(mid_a)), _mm512_sub_ps(rest_b, truncate(mid_b)));
    for (plane, pairs) in [pair(a, b), pair(mid_a, mid_b), pair(lo_a, lo_b)].into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(out.add(plane * TILE).cast(), pairs) };
    }
}
