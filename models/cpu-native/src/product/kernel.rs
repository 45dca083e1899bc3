//! The GEMM kernel on vector registers: tiles of a few rows by a few vectors, all sums in registers.
//!
//! One source for every SIMD level ([`Simd`]). A tile has as many sums as hide the latency of the multiply-adds, and no more
//! than the compiler keeps in registers beside a row of the right factor: no loop over the depth may touch the stack.

use super::{Left, Right};
use crate::prefetch::{LINE, prefetch_early};
use crate::simd::{self, Simd, versions};

versions! {
    /// Computes a product whose factors and output are long enough for its sizes, as `super::multiply` has checked.
    pub(super) run, run_of,
    sizes: [usize; 3], factors: (Left<'_>, Right<'_>), out: &mut [f32], add: bool
}

/// Columns of the widest tile.
pub(super) const fn tile_columns<S: Simd>() -> usize {
    S::REGISTERS / 8 * S::LANES
}

/// A tile's place, and the strides of the factors.
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
    ahead: Ahead,
}

/// Memory that is prefetched while a product is computed: the right factor's rows behind those multiplied, which the next
/// product reads. Tiles read a piece of every row, which hardware prefetchers do not follow.
#[derive(Clone, Copy)]
struct Ahead {
    from: *const f32,
    len: usize,
    /// Elements prefetched beside every tile.
    by_tile: usize,
}

impl Ahead {
    fn new(right: &Right<'_>, depth: usize, tiles: usize) -> Self {
        let own = if right.packed { right.values.len() } else { depth * right.by_depth };
        let behind = right.values.get(own..).unwrap_or_default();
        let len = behind.len().min(own);
        Self { from: behind.as_ptr(), len, by_tile: len.div_ceil(tiles).next_multiple_of(LINE / size_of::<f32>()) }
    }

    #[inline(always)]
    fn beside_a_tile(&mut self) {
        let len = self.by_tile.min(self.len);
        prefetch_early(self.from, len);
        self.from = self.from.wrapping_add(len);
        self.len -= len;
    }
}

/// All strips of columns, each as wide as a tile.
///
/// # Safety
///
/// The processor has the instructions of `S`, and the slices are as long as `super::multiply` asks.
#[inline(always)]
unsafe fn run_of<S: Simd>(
    [rows, columns, depth]: [usize; 3],
    (left, right): (Left<'_>, Right<'_>),
    out: &mut [f32],
    add: bool,
) {
    let strip = tile_columns::<S>();
    let mut ahead = Ahead::new(&right, depth, columns.div_ceil(strip) * rows.div_ceil(6));
    for first in (0..columns).step_by(strip) {
        let width = strip.min(columns - first);
        let vectors = width.div_ceil(S::LANES);
        let last = width - (vectors - 1) * S::LANES;
        let tile = Tile {
            left: left.values.as_ptr(),
            by_row: left.by_row,
            left_by_depth: left.by_depth,
            // SAFETY: the address of the strip's first column, which the factor has.
            right: unsafe { right.values.as_ptr().add(right.column(first)) },
            right_by_depth: right.by_depth,
            depth,
            // SAFETY: a column of the output's first row.
            out: unsafe { out.as_mut_ptr().add(first) },
            columns,
            last,
            add,
            ahead,
        };
        // Packed panels have room for whole vectors.
        let partial = !right.packed && last < S::LANES;
        // SAFETY: the tiles are inside of the checked sizes.
        ahead = unsafe {
            match (left.by_depth == 1, partial) {
                (true, false) => strip_of::<S, true, false>(tile, vectors, rows),
                (true, true) => strip_of::<S, true, true>(tile, vectors, rows),
                (false, false) => strip_of::<S, false, false>(tile, vectors, rows),
                (false, true) => strip_of::<S, false, true>(tile, vectors, rows),
            }
        };
    }
}

/// All rows of one strip; returns what is left to prefetch. Narrow strips have taller tiles, so that there are as many sums.
///
/// # Safety
///
/// As [`run_of`]; `tile` is the first of `rows` rows, and `vectors` at most those of [`tile_columns`].
#[inline(always)]
unsafe fn strip_of<S: Simd, const ROWS: bool, const PARTIAL: bool>(tile: Tile, vectors: usize, rows: usize) -> Ahead {
    // SAFETY: the caller's promise. Widths that a level's tiles never have are left out when it is compiled.
    unsafe {
        match vectors {
            1 if S::REGISTERS > 16 => rows_of::<S, 12, 1, ROWS, PARTIAL>(tile, rows),
            1 => rows_of::<S, 8, 1, ROWS, PARTIAL>(tile, rows),
            2 if S::REGISTERS > 16 => rows_of::<S, 8, 2, ROWS, PARTIAL>(tile, rows),
            // A mask or a product that is still to be added takes up a register.
            2 if S::FUSED && !PARTIAL => rows_of::<S, 6, 2, ROWS, PARTIAL>(tile, rows),
            2 => rows_of::<S, 4, 2, ROWS, PARTIAL>(tile, rows),
            3 if S::REGISTERS > 16 => rows_of::<S, 6, 3, ROWS, PARTIAL>(tile, rows),
            4 if S::REGISTERS > 16 => rows_of::<S, 6, 4, ROWS, PARTIAL>(tile, rows),
            _ => unreachable!("{vectors} vectors of a tile"),
        }
    }
}

/// All rows of one strip in tiles of at most `R`, about as high as each other: a tile of few rows has too few sums to hide
/// the latency of the multiply-adds.
///
/// # Safety
///
/// As [`strip_of`].
#[inline(always)]
unsafe fn rows_of<S: Simd, const R: usize, const V: usize, const ROWS: bool, const PARTIAL: bool>(
    mut tile: Tile,
    mut rows: usize,
) -> Ahead {
    // SAFETY: the tile moves by the rows that it has done, and is no higher than those left.
    unsafe {
        while rows > 0 {
            tile.ahead.beside_a_tile();
            let done = match rows.div_ceil(rows.div_ceil(R)) {
                height if height == R => tile_of::<S, R, V, ROWS, PARTIAL>(tile),
                6.. if R > 6 => tile_of::<S, 6, V, ROWS, PARTIAL>(tile),
                5.. if R > 5 && V < 3 => tile_of::<S, 5, V, ROWS, PARTIAL>(tile),
                4.. if R > 4 => tile_of::<S, 4, V, ROWS, PARTIAL>(tile),
                2.. => tile_of::<S, 2, V, ROWS, PARTIAL>(tile),
                _ => tile_of::<S, 1, V, ROWS, PARTIAL>(tile),
            };
            rows -= done;
            tile.left = tile.left.wrapping_add(done * tile.by_row);
            tile.out = tile.out.wrapping_add(done * tile.columns);
        }
    }
    tile.ahead
}

/// `R` rows by `V` vectors; returns `R`. The left factor stands in rows, or in columns, so that one stride is a constant.
///
/// # Safety
///
/// As [`run_of`]: the tile lies inside of the factors and the output.
#[inline(always)]
unsafe fn tile_of<S: Simd, const R: usize, const V: usize, const ROWS: bool, const PARTIAL: bool>(t: Tile) -> usize {
    // Steps whose addresses differ by constants: a thin tile waits for its addresses otherwise.
    const STEPS: usize = 4;
    let (by_row, by_depth) = if ROWS { (t.by_row, 1) } else { (1, t.left_by_depth) };
    let last = if PARTIAL { t.last } else { S::LANES };
    // SAFETY: the caller promises the instructions, and that rows, columns and depths are there.
    unsafe {
        let mut sums = [[S::splat(0.0); V]; R];
        let (mut a, mut b) = (t.left, t.right);
        for _ in 0..t.depth / STEPS {
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

/// One step of the depth.
///
/// # Safety
///
/// As [`run_of`]: `a` is the first row's element of this depth, `b` the first column's.
#[inline(always)]
unsafe fn add_step<S: Simd, const R: usize, const V: usize, const PARTIAL: bool>(
    sums: &mut [[S::V; V]; R],
    (a, by_row): (*const f32, usize),
    b: *const f32,
    last: usize,
) {
    // SAFETY: `multiply` has checked the last element; a partial vector is cut there, and packed panels go on.
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
