//! The GEMM kernel on vector registers: tiles of a few rows by a few vectors, with all sums in registers.
//!
//! A tile has enough sums to hide the latency of the multiply-adds, and no more than the compiler keeps in registers beside a
//! row of the right factor: no loop over the depth may touch the stack.

mod narrow;

use std::mem::MaybeUninit;
use std::ops::Range;

use super::{Left, Right};
use crate::prefetch::{CACHE_LINE, prefetch, prefetch_early};
use crate::simd::{Simd, dispatch};

dispatch! {
    /// Computes a GEMM; `super::multiply_all` has checked that factors and output are long enough.
    pub(super) fn run(sizes: [usize; 3], factors: (Left<'_>, Right<'_>), out: &mut [f32], add: bool) = run_of::<S>
}

/// Columns of the widest tile.
pub(super) const fn tile_columns<S: Simd>() -> usize {
    S::REGISTERS / 8 * S::LANES
}

/// Addresses and strides of a tile.
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
    /// Columns in the last vector, `1..=LANES`.
    last: usize,
    add: bool,
}

/// Part of a factor that is prefetched while tiles are computed.
struct PrefetchCursor {
    from: *const f32,
    end: *const f32,
}

impl PrefetchCursor {
    /// Begins at `values[start]` and prefetches at most `len` floats.
    fn new(values: &[f32], start: usize, len: usize) -> Self {
        let values = values.get(start..).unwrap_or_default();
        let Range { start: from, end } = values[..values.len().min(len)].as_ptr_range();
        Self { from, end }
    }

    /// Prefetches the next `LINES` cache lines, by `prefetch` into the first-level cache or by `prefetch_early` into the second.
    #[inline(always)]
    fn advance<const LINES: usize>(&mut self, prefetch: impl Fn(*const f32, usize)) {
        let floats = LINES * CACHE_LINE / size_of::<f32>();
        if self.from < self.end {
            prefetch(self.from, floats);
            self.from = self.from.wrapping_add(floats);
        }
    }
}

/// What tiles read next. Hardware prefetchers do not follow them: they read a piece of every row of an unpacked factor,
/// and a few rows of the left one at a time.
struct Prefetch {
    /// The rows after the right factor, which the next GEMM reads.
    right: PrefetchCursor,
    /// Rows of the left factor: those of the next tiles, or those after a transposed factor.
    left: PrefetchCursor,
}

impl Prefetch {
    fn new<S: Simd>(left: &Left<'_>, right: &Right<'_>, [rows, depth]: [usize; 2]) -> Self {
        let own = if right.packed { right.values.len() } else { depth * right.by_depth };
        let next = PrefetchCursor::new(right.values, own, own);
        // The first tile, of six rows or more, reads them itself.
        let left = match left.by_depth {
            1 => PrefetchCursor::new(left.values, 6 * left.by_row, rows * left.by_row),
            by_depth => PrefetchCursor::new(left.values, depth * by_depth, depth * by_depth),
        };
        Self { right: next, left }
    }

    /// Prefetches the next cache lines, between steps of a tile. More at a time delay the tile's own loads; with fewer, a GEMM
    /// of 16 columns ends before all lines of the right factor are prefetched, or reads its left factor before they arrive.
    #[inline(always)]
    fn advance<S: Simd>(&mut self) {
        if S::REGISTERS == 16 {
            self.right.advance::<2>(prefetch_early);
            self.left.advance::<2>(prefetch);
        } else {
            self.right.advance::<4>(prefetch_early);
            self.left.advance::<4>(prefetch);
        }
    }
}

/// Maximum depth of a [`StripCopy`]: that of a weight's gradient, which layers compute by blocks of rows.
const COPIED_DEPTH: usize = crate::parallel::ROWS;

/// Copy of a strip of an unpacked right factor, for the SIMD levels of 16 registers. Rows of 128 floats are 512 bytes,
/// eight of the 64 sets of a first-level cache: the strip's lines of 96 such rows share eight sets, and eight ways hold 64 lines.
#[repr(align(64))]
struct StripCopy(MaybeUninit<[f32; 16 * COPIED_DEPTH]>);

impl StripCopy {
    /// Whether tiles read a copy: so many of them that it is worth its time.
    fn pays<S: Simd>(right: &Right<'_>, [rows, depth]: [usize; 2]) -> bool {
        S::REGISTERS == 16 && !right.packed && depth <= COPIED_DEPTH && rows >= 32
    }

    /// Copies `depth` rows of `vectors` vectors that are `by_depth` floats apart; returns the copy's address.
    ///
    /// # Safety
    ///
    /// The processor has the instructions of `S`, the rows can be read, and [`StripCopy::pays`] for the depth.
    #[inline(always)]
    unsafe fn of<S: Simd>(&mut self, from: *const f32, by_depth: usize, [depth, vectors]: [usize; 2]) -> *const f32 {
        let to: *mut f32 = self.0.as_mut_ptr().cast();
        let width = vectors * S::LANES;
        debug_assert!(depth <= COPIED_DEPTH && width <= 16, "{depth} rows of {width} floats");
        for d in 0..depth {
            for column in (0..width).step_by(S::LANES) {
                // SAFETY: the caller's promise, and the copy has that many rows of at most 16 floats.
                unsafe { S::store(to.add(d * width + column), S::load(from.add(d * by_depth + column))) };
            }
        }
        to
    }
}

/// All strips of columns, each as wide as a tile.
///
/// # Safety
///
/// The processor has the instructions of `S`, and the slices are as long as `super::multiply_all` checks.
#[inline(always)]
unsafe fn run_of<S: Simd>(
    [rows, columns, depth]: [usize; 3],
    (left, right): (Left<'_>, Right<'_>),
    out: &mut [f32],
    add: bool,
) {
    let widest = tile_columns::<S>();
    let mut ahead = Prefetch::new::<S>(&left, &right, [rows, depth]);
    let copies = StripCopy::pays::<S>(&right, [rows, depth]);
    let mut copy = StripCopy(MaybeUninit::uninit());
    let mut first = 0;
    while first < columns {
        let mut width = widest.min(columns - first);
        // Packed panels are padded to whole vectors. Of an unpacked factor, the columns after the last whole vector are a
        // separate strip with masked loads.
        if !right.packed && width > S::LANES {
            width -= width % S::LANES;
        }
        let partial = !right.packed && width < S::LANES;
        let vectors = width.div_ceil(S::LANES);
        let last = width - (vectors - 1) * S::LANES;
        // SAFETY: the address of the strip's first column, which the factor has.
        let strip = unsafe { right.values.as_ptr().add(right.column(first)) };
        let (strip, right_by_depth) = if copies && !partial {
            // SAFETY: the strip is inside the factor, which `super::multiply_all` has checked; a tile of these levels has at
            // most 16 columns.
            (unsafe { copy.of::<S>(strip, right.by_depth, [depth, vectors]) }, width)
        } else {
            (strip, right.by_depth)
        };
        let tile = Tile {
            left: left.values.as_ptr(),
            by_row: left.by_row,
            left_by_depth: left.by_depth,
            right: strip,
            right_by_depth,
            depth,
            // SAFETY: the address of a column of the output's first row.
            out: unsafe { out.as_mut_ptr().add(first) },
            columns,
            last,
            add,
        };
        // SAFETY: the tiles are inside the checked sizes.
        unsafe {
            match (left.by_depth == 1, partial) {
                (true, false) => strip_of::<S, true>(tile, vectors, rows, &mut ahead),
                (true, true) => vector_of::<S, true, true>(tile, rows, &mut ahead),
                (false, false) => strip_of::<S, false>(tile, vectors, rows, &mut ahead),
                (false, true) => narrow::strip_of::<S>(tile, rows, &mut ahead),
            }
        }
        first += width;
    }
}

/// Computes all rows of one strip. Narrow strips have taller tiles, for as many sums.
///
/// # Safety
///
/// As [`run_of`]; `tile` is the strip's first tile, and `vectors` is at most the number in [`tile_columns`].
#[inline(always)]
unsafe fn strip_of<S: Simd, const ROWS: bool>(tile: Tile, vectors: usize, rows: usize, ahead: &mut Prefetch) {
    // SAFETY: the caller's promise. Widths that a level's tiles never have are not compiled.
    unsafe {
        match vectors {
            1 => vector_of::<S, ROWS, false>(tile, rows, ahead),
            2 if S::REGISTERS > 16 => rows_of::<S, 8, 2, ROWS, false>(tile, rows, ahead),
            2 if S::FUSED => rows_of::<S, 6, 2, ROWS, false>(tile, rows, ahead),
            // The product that is yet to be added takes a register.
            2 => rows_of::<S, 4, 2, ROWS, false>(tile, rows, ahead),
            3 if S::REGISTERS > 16 => rows_of::<S, 6, 3, ROWS, false>(tile, rows, ahead),
            4 if S::REGISTERS > 16 => rows_of::<S, 6, 4, ROWS, false>(tile, rows, ahead),
            _ => unreachable!("{vectors} vectors of a tile"),
        }
    }
}

/// Computes a strip of one vector, or of a part of one, whose loads must not pass its end.
///
/// # Safety
///
/// As [`strip_of`].
#[inline(always)]
unsafe fn vector_of<S: Simd, const ROWS: bool, const PARTIAL: bool>(tile: Tile, rows: usize, ahead: &mut Prefetch) {
    // SAFETY: the caller's promise.
    unsafe {
        if S::REGISTERS > 16 {
            rows_of::<S, 12, 1, ROWS, PARTIAL>(tile, rows, ahead)
        } else {
            rows_of::<S, 8, 1, ROWS, PARTIAL>(tile, rows, ahead)
        }
    }
}

/// Computes all rows of one strip in tiles of about equal height, at most `R`: a tile of few rows has too few sums to hide
/// the latency of the multiply-adds.
///
/// # Safety
///
/// As [`strip_of`].
#[inline(always)]
unsafe fn rows_of<S: Simd, const R: usize, const V: usize, const ROWS: bool, const PARTIAL: bool>(
    mut tile: Tile,
    mut rows: usize,
    ahead: &mut Prefetch,
) {
    // SAFETY: the tile advances by its height, which is at most the number of rows left.
    unsafe {
        while rows > 0 {
            let done = match rows.div_ceil(rows.div_ceil(R)) {
                height if height == R => tile_of::<S, R, V, ROWS, PARTIAL>(tile, ahead),
                8.. if R == 12 => tile_of::<S, 8, V, ROWS, PARTIAL>(tile, ahead),
                5.. if R == 6 && V == 2 => tile_of::<S, 5, V, ROWS, PARTIAL>(tile, ahead),
                4.. if R > 4 => tile_of::<S, 4, V, ROWS, PARTIAL>(tile, ahead),
                2.. => tile_of::<S, 2, V, ROWS, PARTIAL>(tile, ahead),
                _ => tile_of::<S, 1, V, ROWS, PARTIAL>(tile, ahead),
            };
            rows -= done;
            tile.left = tile.left.wrapping_add(done * tile.by_row);
            tile.out = tile.out.wrapping_add(done * tile.columns);
        }
    }
}

/// Computes `R` rows by `V` vectors; returns `R`. The left factor is row-major if `ROWS`, else column-major, so that one of
/// its strides is a constant.
///
/// # Safety
///
/// As [`run_of`]: the tile is inside the factors and the output.
#[inline(always)]
unsafe fn tile_of<S: Simd, const R: usize, const V: usize, const ROWS: bool, const PARTIAL: bool>(
    t: Tile,
    ahead: &mut Prefetch,
) -> usize {
    // Steps whose addresses differ by constants; a narrow tile would wait for its addresses.
    const STEPS: usize = 4;
    let (by_row, by_depth) = if ROWS { (t.by_row, 1) } else { (1, t.left_by_depth) };
    let last = if PARTIAL { t.last } else { S::LANES };
    // SAFETY: the caller promises the instructions, and that the factors and the output have these elements.
    unsafe {
        let mut sums = [[S::splat(0.0); V]; R];
        let (mut a, mut b) = (t.left, t.right);
        for _ in 0..t.depth / STEPS {
            ahead.advance::<S>();
            for step in 0..STEPS {
                let (a, b) = (a.wrapping_add(step * by_depth), b.wrapping_add(step * t.right_by_depth));
                add_step::<S, R, V, PARTIAL>(&mut sums, (a, by_row), b, last);
            }
            (a, b) = (a.wrapping_add(STEPS * by_depth), b.wrapping_add(STEPS * t.right_by_depth));
        }
        for _ in 0..t.depth % STEPS {
            add_step::<S, R, V, PARTIAL>(&mut sums, (a, by_row), b, last);
            (a, b) = (a.wrapping_add(by_depth), b.wrapping_add(t.right_by_depth));
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, &sum) in sums.iter().enumerate() {
                let at = t.out.add(r * t.columns + S::LANES * v);
                let whole = v + 1 < V || t.last == S::LANES;
                let sum = match (t.add, whole) {
                    (true, true) => S::add(S::load(at), sum),
                    (true, false) => S::add(S::load_first(at, t.last), sum),
                    (false, _) => sum,
                };
                if whole { S::store(at, sum) } else { S::store_first(at, t.last, sum) }
            }
        }
    }
    R
}

/// Adds the products of one depth to the sums.
///
/// # Safety
///
/// As [`run_of`]; `a` is the address of the first row's element of this depth, `b` that of the first column's.
#[inline(always)]
unsafe fn add_step<S: Simd, const R: usize, const V: usize, const PARTIAL: bool>(
    sums: &mut [[S::V; V]; R],
    (a, by_row): (*const f32, usize),
    b: *const f32,
    last: usize,
) {
    // SAFETY: `multiply_all` has checked the last element; a partial vector ends there, and packed panels are padded.
    unsafe {
        let mut row = [S::splat(0.0); V];
        for (v, x) in row.iter_mut().enumerate() {
            let at = b.add(S::LANES * v);
            *x = if PARTIAL && v + 1 == V { S::load_first(at, last) } else { S::load(at) };
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            let x = S::splat(*a.add(r * by_row));
            for (sum, &b) in sums.iter_mut().zip(&row) {
                *sum = S::fma(x, b, *sum);
            }
        }
    }
}
