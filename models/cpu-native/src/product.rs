//! Matrix products, one kernel for all three of a layer: forward, by the input, by the weight.
//!
//! Every element of the result is one sum in the order of the depth, so its bits do not depend on how rows and columns
//! are cut; AVX-512 and AVX2 give the same bits.

mod kernel;

use crate::level::Level;
use crate::parallel;

/// Columns of a panel of a packed matrix.
pub(crate) const PANEL: usize = 64;

/// The left factor: element (row, depth) stands at `row * by_row + depth * by_depth`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) by_row: usize,
    pub(crate) by_depth: usize,
}

/// The right factor: element (depth, column) stands at `column / 64 * by_panel + depth * by_depth + column % 64`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Right<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) by_panel: usize,
    pub(crate) by_depth: usize,
}

impl<'a> Left<'a> {
    /// Rows of `depth` elements.
    pub(crate) fn rows(values: &'a [f32], depth: usize) -> Self {
        Self { values, by_row: depth, by_depth: 1 }
    }

    /// The transposed matrix of rows of `width` elements.
    pub(crate) fn transposed(values: &'a [f32], width: usize) -> Self {
        Self { values, by_row: 1, by_depth: width }
    }
}

impl<'a> Right<'a> {
    /// Rows of `width` elements.
    pub(crate) fn rows(values: &'a [f32], width: usize) -> Self {
        Self { values, by_panel: PANEL, by_depth: width }
    }

    /// What [`pack`] wrote.
    pub(crate) fn packed(values: &'a [f32], depth: usize) -> Self {
        Self { values, by_panel: PANEL * depth, by_depth: PANEL }
    }
}

/// Writes `left * right` to the `rows` x `columns` matrix `out`, or adds it if `add`.
///
/// # Panics
///
/// When a factor or the output is too short.
pub(crate) fn multiply(
    level: Level,
    [rows, columns, depth]: [usize; 3],
    (left, right): (Left<'_>, Right<'_>),
    out: &mut [f32],
    add: bool,
) {
    if rows == 0 || columns == 0 {
        return;
    }
    assert!(out.len() >= rows * columns, "room for {rows} x {columns} elements, not {}", out.len());
    if depth == 0 {
        if !add {
            out[..rows * columns].fill(0.0);
        }
        return;
    }
    let last = (rows - 1) * left.by_row + (depth - 1) * left.by_depth;
    assert!(last < left.values.len(), "{rows} x {depth} elements of the left factor");
    let last = (columns - 1) / PANEL * right.by_panel + (depth - 1) * right.by_depth + (columns - 1) % PANEL;
    assert!(last < right.values.len(), "{depth} x {columns} elements of the right factor");
    kernel::run(level, [rows, columns, depth], (left, right), out, add);
}

/// Floats that [`pack`] writes.
pub(crate) fn packed_len(depth: usize, columns: usize) -> usize {
    depth * columns.next_multiple_of(PANEL)
}

/// Packs a `depth` x `columns` right factor into panels: `weight` has its rows, or, if `transposed`, its columns as rows.
pub(crate) fn pack(weight: &[f32], [depth, columns]: [usize; 2], transposed: bool, out: &mut [f32]) {
    assert!(weight.len() == depth * columns && out.len() == packed_len(depth, columns), "a weight and its panels");
    if depth == 0 {
        return;
    }
    parallel::tasks(columns.div_ceil(PANEL), [(out, PANEL * depth)], &|panel, [out]| {
        let (first, width) = (panel * PANEL, PANEL.min(columns - panel * PANEL));
        if transposed {
            // Tiles of 16 columns, so that what is written stays in the cache.
            for start in (0..depth).step_by(16) {
                for c in 0..width {
                    let row = &weight[(first + c) * depth..(first + c + 1) * depth];
                    for d in start..(start + 16).min(depth) {
                        out[d * PANEL + c] = row[d];
                    }
                }
            }
        } else {
            for (d, out) in out.chunks_exact_mut(PANEL).enumerate() {
                out[..width].copy_from_slice(&weight[d * columns + first..][..width]);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(seed: u32, len: usize) -> Vec<f32> {
        (0..len).map(|i| ((i as u32 ^ seed).wrapping_mul(2_654_435_761) >> 16) as f32 / 32768.0 - 1.0).collect()
    }

    proptest! {
        #[test]
        fn every_level_multiplies(rows in 0usize..30, columns in 0usize..150, depth in 0usize..40, add: bool) {
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
            let mut panels = [vec![0.0; packed_len(depth, columns)], vec![0.0; packed_len(depth, columns)]];
            pack(&b, [depth, columns], false, &mut panels[0]);
            pack(&bt, [depth, columns], true, &mut panels[1]);
            prop_assert_eq!(&panels[0], &panels[1]);
            let packed = Right::packed(&panels[0], depth);
            let mut bits: Option<Vec<f32>> = None;
            for level in Level::available() {
                for factors in [
                    (Left::rows(&a, depth), Right::rows(&b, columns)),
                    (Left::rows(&a, depth), packed),
                    (Left::transposed(&at, rows), packed),
                ] {
                    let mut out = vec![0.5; rows * columns];
                    multiply(level, [rows, columns, depth], factors, &mut out, add);
                    for (o, e) in out.iter().zip(&exact) {
                        prop_assert!((f64::from(*o) - e).abs() < 1e-4, "{level:?}: {o}, expected {e}");
                    }
                    let fused = level.set() != crate::level::Set::Portable;
                    if fused {
                        prop_assert_eq!(bits.get_or_insert(out.clone()), &out);
                    }
                }
            }
        }
    }
}
