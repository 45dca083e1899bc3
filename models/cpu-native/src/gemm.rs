//! Matrix products, one interface for all three of a layer: forward, by the input, by the weight.
//!
//! Every element of the result is one sum in the order of the depth, so its bits do not depend on how rows and columns
//! are cut; AVX-512, AVX2 and NEON give the same bits. AMX tiles give others: [`tiles`] says which products are on them.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(test)]
mod exact;
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

/// The left factor: element (row, depth) stands at `row * by_row + depth * by_depth`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) by_row: usize,
    pub(crate) by_depth: usize,
    /// Whether to count its zeros and skip them if there are many: see [`Left::with_zeros`].
    pub(crate) zeros: bool,
}

/// The right factor, in rows or packed by [`pack`]: column `c` begins at [`Right::column`], a depth stands `by_depth` behind
/// the one before. On AMX tiles a packed factor has a form of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Right<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) by_depth: usize,
    /// Elements between panels; panels are `by_depth` columns wide.
    pub(crate) by_panel: usize,
    pub(crate) packed: bool,
}

impl<'a> Left<'a> {
    /// Rows of `depth` elements.
    pub(crate) fn rows(values: &'a [f32], depth: usize) -> Self {
        Self { values, by_row: depth, by_depth: 1, zeros: false }
    }

    /// The transposed matrix of rows of `width` elements.
    pub(crate) fn transposed(values: &'a [f32], width: usize) -> Self {
        Self { values, by_row: 1, by_depth: width, zeros: false }
    }

    /// The same factor; if `zeros`, its zeros are counted, and passed over where they are many.
    pub(crate) fn with_zeros(self, zeros: bool) -> Self {
        Self { zeros, ..self }
    }
}

impl<'a> Right<'a> {
    /// Rows of `width` elements. Where `values` has more rows than a product reads, as many of the next ones are prefetched.
    pub(crate) fn rows(values: &'a [f32], width: usize) -> Self {
        Self { values, by_panel: 0, by_depth: width, packed: false }
    }

    /// What [`pack`] wrote at the same level.
    pub(crate) fn packed(level: SimdLevel, values: &'a [f32], depth: usize) -> Self {
        let panel = panel(level);
        Self { values, by_panel: panel * depth, by_depth: panel, packed: true }
    }

    /// Where a column's first element stands.
    fn column(&self, column: usize) -> usize {
        if self.packed { column / self.by_depth * self.by_panel + column % self.by_depth } else { column }
    }
}

/// A product's right factor, where it is written, and whether it is added to what stands there.
pub(crate) type Times<'a, 'b> = (Right<'a>, &'b mut [f32], bool);

/// The least side of a result, or of a packed factor, for tiles. What is split has to be multiplied often: a step of
/// GraphSAGE takes 0.73 of the time on tiles at width 256, 0.83 at 128, and the same at 64 (bench `step`).
const LEAST: usize = 96;

/// Whether a result of `rows` x `columns`, or any where a factor of `depth` x `columns` is packed, is computed on tiles:
/// a matter of the level and of these sizes alone.
pub(crate) fn tiles(level: SimdLevel, sides: [usize; 2]) -> bool {
    has_tiles(level) && sides.iter().all(|&side| side >= LEAST)
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

/// Multiplies one left factor with two right ones, both packed or none, as [`multiply`].
///
/// # Panics
///
/// When a factor or an output is too short.
pub(crate) fn multiply_all(
    level: SimdLevel,
    [rows, columns, depth]: [usize; 3],
    left: Left<'_>,
    mut times: [Option<Times<'_, '_>>; 2],
) {
    if rows == 0 || columns == 0 {
        return;
    }
    for (_, out, add) in times.iter_mut().flatten() {
        assert!(out.len() >= rows * columns, "room for {rows} x {columns} elements, not {}", out.len());
        if depth == 0 && !*add {
            out[..rows * columns].fill(0.0);
        }
    }
    if depth == 0 {
        return;
    }
    let last = (rows - 1) * left.by_row + (depth - 1) * left.by_depth;
    assert!(last < left.values.len(), "{rows} x {depth} elements of the left factor");
    #[cfg(target_arch = "x86_64")]
    {
        let on_tiles = |right: &Right<'_>| tiles(level, [columns, if right.packed { depth } else { rows }]);
        if times.iter().flatten().any(|(right, _, _)| on_tiles(right)) {
            return tiled::multiply_all(level, [rows, columns, depth], left, times);
        }
    }
    for (right, _, _) in times.iter().flatten() {
        let columns_there = if right.packed { columns.next_multiple_of(right.by_depth) } else { columns };
        let last = right.column(columns_there - 1) + (depth - 1) * right.by_depth;
        assert!(last < right.values.len(), "{depth} x {columns} elements of the right factor");
    }
    if left.zeros && skip_zeros::multiply_all(level, [rows, columns, depth], left, &mut times) {
        return;
    }
    for (right, out, add) in times.into_iter().flatten() {
        kernel::run(level, [rows, columns, depth], (left, right), out, add);
    }
}

/// Floating point operations of products that the tiles do on this call from registers alone; `None` without tiles.
pub(crate) fn tiles_flops(level: SimdLevel) -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    if has_tiles(level) {
        return Some(tiled::flops(level));
    }
    let _ = level;
    None
}

/// Floats that [`pack`] writes.
pub(crate) fn packed_len(level: SimdLevel, depth: usize, columns: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if tiles(level, [columns, depth]) {
        return split::len(columns, depth);
    }
    depth * columns.next_multiple_of(panel(level))
}

simd_dispatch! {
    /// Columns of a panel of a packed matrix: those of the kernel's tiles, so that a tile reads its panel from end to end.
    fn panel() -> usize;
    avx512: kernel::tile_columns::<Avx512>(),
    avx2: kernel::tile_columns::<Avx2>(),
    portable: kernel::tile_columns::<Portable>(),
}

/// Packs a `depth` x `columns` right factor into panels, or splits it into tiles: `weight` has its rows, or, if
/// `transposed`, its columns as rows.
pub(crate) fn pack(level: SimdLevel, weight: &[f32], [depth, columns]: [usize; 2], transposed: bool, out: &mut [f32]) {
    let len = packed_len(level, depth, columns);
    assert!(weight.len() == depth * columns && out.len() == len, "a weight and its panels");
    if depth == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if tiles(level, [columns, depth]) {
        return tiled::pack(level, weight, [depth, columns], transposed, out);
    }
    let panel = panel(level);
    parallel::tasks(columns.div_ceil(panel), [(out, panel * depth)], &|index, [out]| {
        pack_panel(weight, [depth, columns], transposed, (index, panel), out);
    });
}

/// Writes the panel `index` of `panel` columns.
fn pack_panel(
    weight: &[f32],
    [depth, columns]: [usize; 2],
    transposed: bool,
    (index, panel): (usize, usize),
    out: &mut [f32],
) {
    let (first, width) = (index * panel, panel.min(columns - index * panel));
    if transposed {
        // Tiles of 16 columns, so that what is written stays in the cache.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(seed: u32, len: usize) -> Vec<f32> {
        (0..len).map(|i| ((i as u32 ^ seed).wrapping_mul(2_654_435_761) >> 16) as f32 / 32768.0 - 1.0).collect()
    }

    /// Sizes on both sides of the least that is on tiles.
    fn size() -> impl Strategy<Value = usize> {
        prop_oneof![0..40usize, LEAST - 1..LEAST + 40]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn every_level_multiplies(rows in size(), columns in size(), depth in size(), add: bool) {
            let (a, b) = (numbers(1, rows * depth), numbers(2, depth * columns));
            let mut exact = if add { vec![0.5f64; rows * columns] } else { vec![0.0; rows * columns] };
            for r in 0..rows {
                for d in 0..depth {
                    for c in 0..columns {
                        exact[r * columns + c] += f64::from(a[r * depth + d]) * f64::from(b[d * columns + c]);
                    }
                }
            }
            let transposed = |x: &[f32], rows: usize, columns: usize| -> Vec<f32> {
                (0..columns).flat_map(|c| (0..rows).map(move |r| x[r * columns + c])).collect()
            };
            let (at, bt) = (transposed(&a, rows, depth), transposed(&b, depth, columns));
            let mut bits: Option<Vec<f32>> = None;
            for level in SimdLevel::available().rev() {
                let len = packed_len(level, depth, columns);
                // What is behind the last column is not to matter.
                let mut panels = [vec![f32::NAN; len], vec![f32::NAN; len]];
                pack(level, &b, [depth, columns], false, &mut panels[0]);
                pack(level, &bt, [depth, columns], true, &mut panels[1]);
                let mut tiled: Option<Vec<f32>> = None;
                for (left, right) in [
                    (Left::rows(&a, depth), Right::rows(&b, columns)),
                    (Left::transposed(&at, rows), Right::rows(&b, columns)),
                    (Left::rows(&a, depth), Right::packed(level, &panels[0], depth)),
                    (Left::rows(&a, depth), Right::packed(level, &panels[1], depth)),
                    (Left::transposed(&at, rows), Right::packed(level, &panels[0], depth)),
                    (Left::transposed(&at, rows), Right::packed(level, &panels[1], depth)),
                ] {
                    let (mut out, mut other) = (vec![0.5; rows * columns], vec![0.25; rows * columns]);
                    let times = [Some((right, &mut out[..], add)), Some((right, &mut other[..], false))];
                    multiply_all(level, [rows, columns, depth], left, times);
                    for (o, e) in out.iter().zip(&exact) {
                        prop_assert!((f64::from(*o) - e).abs() < 1e-4, "{level:?}: {o}, expected {e}");
                    }
                    let mut again = vec![0.5; rows * columns];
                    multiply(level, [rows, columns, depth], (left, right), &mut again, add);
                    prop_assert_eq!(&again, &out);
                    let twice = if add { other.iter().map(|x| x + 0.5).collect() } else { other };
                    prop_assert_eq!(&twice, &out);
                    if tiles(level, [columns, if right.packed { depth } else { rows }]) {
                        prop_assert_eq!(tiled.get_or_insert(out.clone()), &out);
                    } else if level > SimdLevel::Portable || cfg!(target_arch = "aarch64") {
                        prop_assert_eq!(bits.get_or_insert(out.clone()), &out);
                    }
                }
            }
        }
    }
}
