//! GEMM: one interface for a layer's forward pass and the gradients of its input and its weight.
//!
//! Every element of the result is one sum in the order of the depth, so its bits do not depend on how rows and columns are
//! divided among tasks. AVX-512, AVX2 and NEON give the same bits, AMX tiles others; [`tiles`] says which GEMMs use them;
//! those whose left factor is mostly zeros skip these on vector registers instead (`skip_zeros`).

#[cfg(target_arch = "x86_64")]
mod amx;
mod kernel;
mod skip_zeros;
#[cfg(target_arch = "x86_64")]
mod split;
#[cfg(target_arch = "x86_64")]
mod tiled;

use morphgl_platform::{SimdLevel, simd_dispatch};

use crate::parallel;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Portable, has_tiles};

/// The left factor: element (row, depth) is at index `row * by_row + depth * by_depth`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) by_row: usize,
    pub(crate) by_depth: usize,
    /// See [`Left::with_zeros`].
    pub(crate) zeros: bool,
}

/// The right factor, in rows or packed by [`pack`]: column `c` begins at index [`Right::column`], and consecutive depths are
/// `by_depth` elements apart. Panels are followed by the factor's AMX tiles (`split`), where its GEMMs use them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Right<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) by_depth: usize,
    /// Elements of a panel, which has `by_depth` columns.
    pub(crate) by_panel: usize,
    pub(crate) packed: bool,
}

impl<'a> Left<'a> {
    /// Rows of `depth` elements.
    pub(crate) fn rows(values: &'a [f32], depth: usize) -> Self {
        Self { values, by_row: depth, by_depth: 1, zeros: false }
    }

    /// The transpose of rows of `width` elements. As with [`Right::rows`], rows of `values` after
    /// those that the GEMM reads are prefetched.
    pub(crate) fn transposed(values: &'a [f32], width: usize) -> Self {
        Self { values, by_row: 1, by_depth: width, zeros: false }
    }

    /// The same factor; if `zeros`, its zeros are counted, and skipped where they are many.
    pub(crate) fn with_zeros(self, zeros: bool) -> Self {
        Self { zeros, ..self }
    }
}

impl<'a> Right<'a> {
    /// Rows of `width` elements. If `values` has more rows than the GEMM reads, as many of the next rows are prefetched.
    pub(crate) fn rows(values: &'a [f32], width: usize) -> Self {
        Self { values, by_panel: 0, by_depth: width, packed: false }
    }

    /// Output of [`pack`] at the same level.
    pub(crate) fn packed(level: SimdLevel, values: &'a [f32], depth: usize) -> Self {
        let panel = panel(level);
        Self { values, by_panel: panel * depth, by_depth: panel, packed: true }
    }

    /// Index of a column's first element.
    fn column(&self, column: usize) -> usize {
        if self.packed { column / self.by_depth * self.by_panel + column % self.by_depth } else { column }
    }
}

/// A right factor, the output, and whether the product is added to the output.
pub(crate) type Target<'a, 'b> = (Right<'a>, &'b mut [f32], bool);

/// Minimum side of a result, or of a packed factor, on AMX tiles. The split of the factors must be amortised: a step of
/// GraphSAGE on tiles took 0.73 of the time at width 256, 0.83 at 128, and the same time at 64 on a Xeon (bench `step`).
pub(crate) const MIN_TILE_SIDE: usize = 96;

/// Whether a result of `rows` x `columns`, or one with a packed factor of `depth` x `columns`, is computed on AMX tiles,
/// unless zeros are skipped; it depends on the level and these sizes alone.
pub(crate) fn tiles(level: SimdLevel, sides: [usize; 2]) -> bool {
    has_tiles(level) && sides.iter().all(|&side| side >= MIN_TILE_SIDE)
}

/// Writes `left * right` to the `rows` x `columns` matrix `out`, or adds it if `add`.
///
/// # Panics
///
/// When a factor or the output is too short.
pub(crate) fn multiply(
    level: SimdLevel,
    sizes: [usize; 3],
    (left, right): (Left<'_>, Right<'_>),
    out: &mut [f32],
    add: bool,
) {
    multiply_all(level, sizes, left, [Some((right, out, add)), None]);
}

/// Multiplies one left factor by two right factors, both packed or neither, as [`multiply`] does.
///
/// # Panics
///
/// When a factor or an output is too short.
pub(crate) fn multiply_all(
    level: SimdLevel,
    [rows, columns, depth]: [usize; 3],
    left: Left<'_>,
    mut targets: [Option<Target<'_, '_>>; 2],
) {
    if rows == 0 || columns == 0 {
        return;
    }
    for (_, out, add) in targets.iter_mut().flatten() {
        assert!(out.len() >= rows * columns, "an output of {rows} x {columns} elements, not {}", out.len());
        if depth == 0 && !*add {
            out[..rows * columns].fill(0.0);
        }
    }
    if depth == 0 {
        return;
    }
    let last = (rows - 1) * left.by_row + (depth - 1) * left.by_depth;
    assert!(last < left.values.len(), "{rows} x {depth} elements of the left factor");
    let on_tiles = |right: &Right<'_>| tiles(level, [columns, if right.packed { depth } else { rows }]);
    let on_tiles = targets.iter().flatten().any(|(right, _, _)| on_tiles(right));
    for (right, _, _) in targets.iter().flatten() {
        let padded_columns = if right.packed { columns.next_multiple_of(right.by_depth) } else { columns };
        let last = right.column(padded_columns - 1) + (depth - 1) * right.by_depth;
        assert!(last < right.values.len(), "{depth} x {columns} elements of the right factor");
    }
    if left.zeros && skip_zeros::multiply_all(level, [rows, columns, depth], left, &mut targets, on_tiles) {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if on_tiles {
        return tiled::multiply_all(level, [rows, columns, depth], left, targets);
    }
    for (right, out, add) in targets.into_iter().flatten() {
        kernel::run(level, [rows, columns, depth], (left, right), out, add);
    }
}

/// Multiplies AMX tiles from registers alone; returns the number of f32 operations, or `None` without tiles.
pub(crate) fn tiles_flops(level: SimdLevel) -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    if has_tiles(level) {
        return Some(tiled::flops(level));
    }
    let _ = level;
    None
}

/// Length of the output of [`pack`].
pub(crate) fn packed_len(level: SimdLevel, depth: usize, columns: usize) -> usize {
    let panels = panels_len(level, depth, columns);
    #[cfg(target_arch = "x86_64")]
    if tiles(level, [columns, depth]) {
        return panels + split::len(columns, depth);
    }
    panels
}

/// Elements of the panels, which begin the output of [`pack`].
fn panels_len(level: SimdLevel, depth: usize, columns: usize) -> usize {
    depth * columns.next_multiple_of(panel(level))
}

simd_dispatch! {
    /// Columns of a panel of a packed matrix: those of the kernel's tiles, so that a tile reads its panel sequentially.
    fn panel() -> usize;
    avx512: kernel::tile_columns::<Avx512>(),
    avx2: kernel::tile_columns::<Avx2>(),
    portable: kernel::tile_columns::<Portable>(),
}

/// Packs a `depth` x `columns` right factor into panels, and splits it into AMX tiles where its GEMMs use them; `weight` is the
/// factor, or its transpose if `transposed`.
pub(crate) fn pack(level: SimdLevel, weight: &[f32], [depth, columns]: [usize; 2], transposed: bool, out: &mut [f32]) {
    let len = packed_len(level, depth, columns);
    assert!(weight.len() == depth * columns && out.len() == len, "the lengths of a weight and its panels");
    if depth == 0 {
        return;
    }
    let panels = panels_len(level, depth, columns);
    #[cfg(target_arch = "x86_64")]
    if tiles(level, [columns, depth]) {
        tiled::pack(level, weight, [depth, columns], transposed, &mut out[panels..]);
    }
    let (panels, panel) = (&mut out[..panels], panel(level));
    parallel::tasks(columns.div_ceil(panel), [(panels, panel * depth)], &|index, [out]| {
        pack_panel(weight, [depth, columns], transposed, (index, panel), out);
    });
}

/// Writes panel `index`, of `panel` columns.
fn pack_panel(
    weight: &[f32],
    [depth, columns]: [usize; 2],
    transposed: bool,
    (index, panel): (usize, usize),
    out: &mut [f32],
) {
    let (first, width) = (index * panel, panel.min(columns - index * panel));
    if transposed {
        // 16 depths at a time, so that the written lines stay in the cache.
        for start in (0..depth).step_by(16) {
            for c in 0..width {
                let row = &weight[(first + c) * depth..(first + c + 1) * depth];
                for d in start..(start + 16).min(depth) {
                    out[d * panel + c] = row[d];
                }
            }
        }
    } else {
        for (d, out) in out.chunks_exact_mut(panel).enumerate() {
            out[..width].copy_from_slice(&weight[d * columns + first..][..width]);
        }
    }
}

#[cfg(test)]
mod tests;
