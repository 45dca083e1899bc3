//! Factors as three bfloat16 planes, in the tiles that AMX multiplies.
//!
//! x = hi + mid + lo exactly, eight bits each: hi is x cut off, so that a finite x has finite parts, mid is the rest
//! rounded, so that what the product leaves out has no bias. Parts below 2^-126 count as 0.
//!
//! A tile is 16 x 16 pairs; a pair holds the elements of depths k and k + 16. A left factor's tile has a row of the
//! matrix in each of its rows, a right factor's a pair of depths. Tiles stand by line (16 rows of a left factor or
//! columns of a right one), then by chunk of 32 depths, then by plane.

use std::arch::x86_64::*;

/// Rows of a tile, and pairs in one.
pub(super) const LANES: usize = 16;
/// Dwords of a tile.
pub(super) const TILE: usize = LANES * LANES;
/// Depths of a tile.
pub(super) const CHUNK: usize = 2 * LANES;

/// Products of planes that stand for one of f32.
pub(super) const PRODUCTS: usize = 6;

/// Dwords of a factor's planes; lines are even in number, as they are multiplied two by two.
pub(super) fn len(lines: usize, depth: usize) -> usize {
    lines.next_multiple_of(2 * LANES) / LANES * line_len(depth)
}

/// Dwords of one line of tiles.
pub(super) fn line_len(depth: usize) -> usize {
    3 * TILE * depth.div_ceil(CHUNK)
}

/// Which factor of a product a matrix is.
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
    /// Whether the stored rows are lines; they are depths otherwise.
    pub(super) by_line: bool,
}

/// Writes the tiles of the `line`-th 16 lines to `out`; of lines that the matrix does not have, it writes anything finite
/// or nothing.
///
/// # Panics
///
/// When the matrix or the output is too short.
///
/// # Safety
///
/// The processor has AVX-512.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn split_line(matrix: Matrix<'_>, side: Side, line: usize, out: &mut [u32]) {
    let Matrix { values, stride, lines, depth, by_line } = matrix;
    let (first, chunks) = (line * LANES, depth.div_ceil(CHUNK));
    assert!(first < lines && out.len() >= 3 * TILE * chunks, "room for the tiles of line {line}");
    let (rows, columns) = if by_line { (lines, depth) } else { (depth, lines) };
    assert!(columns <= stride && (rows - 1) * stride + columns <= values.len(), "{rows} x {columns} elements");
    let turn = by_line == (side == Side::Right);
    for chunk in 0..chunks {
        let halves = [0, LANES].map(|half| {
            let k = chunk * CHUNK + half;
            let (row, column) = if by_line { (first, k) } else { (k, first) };
            let (rows, columns) = (rows.saturating_sub(row).min(LANES), columns.saturating_sub(column).min(LANES));
            let from = values.as_ptr().wrapping_add(row * stride + column);
            if columns == 0 { Half { from, rows: 0, mask: 0 } } else { Half { from, rows, mask: mask(columns) } }
        });
        let out = out[3 * TILE * chunk..][..3 * TILE].as_mut_ptr();
        // SAFETY: the halves end with the matrix, and there is room for three tiles.
        unsafe {
            if turn {
                turned(halves, stride, out);
            } else {
                straight(halves, stride, out);
            }
        }
    }
}

fn mask(columns: usize) -> __mmask16 {
    (0xffff_u32 >> (LANES - columns)) as __mmask16
}

/// Up to 16 x 16 stored elements: `rows` rows, the columns of `mask`.
#[derive(Clone, Copy)]
struct Half {
    from: *const f32,
    rows: usize,
    mask: __mmask16,
}

impl Half {
    /// Stored row `row`, 0 where there is none.
    ///
    /// # Safety
    ///
    /// The elements are there, and the processor has AVX-512.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn row(self, row: usize, stride: usize) -> __m512 {
        if row < self.rows {
            // SAFETY: the caller's promise.
            unsafe { _mm512_maskz_loadu_ps(self.mask, self.from.add(row * stride)) }
        } else {
            _mm512_setzero_ps()
        }
    }
}

/// Tiles whose rows are stored rows.
///
/// # Safety
///
/// As [`Half::row`], and `out` has room for three tiles.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn straight([first, second]: [Half; 2], stride: usize, out: *mut u32) {
    for row in 0..first.rows.max(second.rows) {
        // SAFETY: the caller's promise.
        unsafe { store(first.row(row, stride), second.row(row, stride), out.add(row * LANES)) };
    }
    // Depths behind the last have to be 0; lines may be anything, but are not worth a distinction.
    for row in first.rows.max(second.rows)..LANES {
        // SAFETY: as above.
        unsafe { store(_mm512_setzero_ps(), _mm512_setzero_ps(), out.add(row * LANES)) };
    }
}

/// Tiles whose rows are stored columns.
///
/// # Safety
///
/// As [`straight`].
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn turned(halves: [Half; 2], stride: usize, out: *mut u32) {
    // SAFETY: the caller's promise.
    let [first, second] = halves.map(|half| transposed(std::array::from_fn(|row| unsafe { half.row(row, stride) })));
    for (row, (first, second)) in first.into_iter().zip(second).enumerate() {
        // SAFETY: the caller's promise.
        unsafe { store(first, second, out.add(row * LANES)) };
    }
}

/// Splits 16 pairs, of the elements of `a` and of `b`, and stores a row of three tiles.
///
/// # Safety
///
/// The processor has AVX-512, and there are three tiles at `out`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store(a: __m512, b: __m512, out: *mut u32) {
    let high = _mm512_set1_epi32(0xffff_0000_u32 as i32);
    let cut = |x: __m512| _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), high));
    // To the nearest of eight bits, halves away from 0.
    let round =
        |x: __m512| cut(_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000))));
    let pair = |a: __m512, b: __m512| {
        let low = _mm512_srli_epi32::<16>(_mm512_castps_si512(a));
        _mm512_or_si512(low, _mm512_castps_si512(b))
    };
    let (hi_a, hi_b) = (cut(a), cut(b));
    let (rest_a, rest_b) = (_mm512_sub_ps(a, hi_a), _mm512_sub_ps(b, hi_b));
    let (mid_a, mid_b) = (round(rest_a), round(rest_b));
    let (lo_a, lo_b) = (_mm512_sub_ps(rest_a, mid_a), _mm512_sub_ps(rest_b, mid_b));
    for (plane, pairs) in [pair(hi_a, hi_b), pair(mid_a, mid_b), pair(lo_a, lo_b)].into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(out.add(plane * TILE).cast(), pairs) };
    }
}

/// The transposed 16 x 16 matrix.
#[inline]
#[target_feature(enable = "avx512f")]
fn transposed(rows: [__m512; LANES]) -> [__m512; LANES] {
    // Of rows 4i to 4i + 3, columns c, c + 4, c + 8, c + 12 in register 4i + c: 4 x 4 matrices within 128 bits.
    let mut quads = [_mm512_setzero_ps(); LANES];
    for i in 0..4 {
        let [a, b, c, d] = [rows[4 * i], rows[4 * i + 1], rows[4 * i + 2], rows[4 * i + 3]];
        let (ab_low, ab_high) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        let (cd_low, cd_high) = (_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
        quads[4 * i] = _mm512_shuffle_ps::<0b01_00_01_00>(ab_low, cd_low);
        quads[4 * i + 1] = _mm512_shuffle_ps::<0b11_10_11_10>(ab_low, cd_low);
        quads[4 * i + 2] = _mm512_shuffle_ps::<0b01_00_01_00>(ab_high, cd_high);
        quads[4 * i + 3] = _mm512_shuffle_ps::<0b11_10_11_10>(ab_high, cd_high);
    }
    // Then the 4 x 4 matrix of those of 128 bits.
    let mut columns = [_mm512_setzero_ps(); LANES];
    for c in 0..4 {
        let [a, b, d, e] = [quads[c], quads[4 + c], quads[8 + c], quads[12 + c]];
        let (ab_even, ab_odd) =
            (_mm512_shuffle_f32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b));
        let (de_even, de_odd) =
            (_mm512_shuffle_f32x4::<0b10_00_10_00>(d, e), _mm512_shuffle_f32x4::<0b11_01_11_01>(d, e));
        columns[c] = _mm512_shuffle_f32x4::<0b10_00_10_00>(ab_even, de_even);
        columns[4 + c] = _mm512_shuffle_f32x4::<0b10_00_10_00>(ab_odd, de_odd);
        columns[8 + c] = _mm512_shuffle_f32x4::<0b11_01_11_01>(ab_even, de_even);
        columns[12 + c] = _mm512_shuffle_f32x4::<0b11_01_11_01>(ab_odd, de_odd);
    }
    columns
}
