//! Weighted sums of rows: aggregation over a block, forward over its rows and backward over its sources.
//!
//! Every output row is summed by one task in the order of its edges, in registers, whatever the element type is.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use morphgl_graph_store::FeatureView;

use crate::csr::check_offsets;
use morphgl_platform::SimdLevel;

mod sums;

/// For each output row, which input rows are summed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lists<'a> {
    // Invariant: offsets ascend and end at the number of entries; entries and the nodes of self loops are below
    // `num_rows`; as many coefficients.
    indptr: &'a [u32],
    entries: &'a [u32],
    num_rows: usize,
    /// What each entry's row is multiplied by.
    coefficients: Option<&'a [f32]>,
    /// What the sum of each output row is multiplied by.
    scales: Option<&'a [f32]>,
    /// What the input row of the output row's own number is multiplied by, for the first output rows.
    loops: Option<&'a [f32]>,
    /// The input row of each output row's own number, where that is not the row of this number.
    own: Option<&'a [u32]>,
}

impl<'a> Lists<'a> {
    /// Sums of `num_rows` input rows.
    ///
    /// # Panics
    ///
    /// When offsets, entries or coefficients do not fit.
    pub(crate) fn new(
        (indptr, entries, num_rows): (&'a [u32], &'a [u32], usize),
        coefficients: Option<&'a [f32]>,
        scales: Option<&'a [f32]>,
        loops: Option<&'a [f32]>,
    ) -> Self {
        check_offsets(indptr, entries.len());
        let most = entries.iter().fold(0, |most, &e| most.max(e));
        assert!(entries.is_empty() || (most as usize) < num_rows, "entry {most} of {num_rows} rows");
        assert!(coefficients.is_none_or(|c| c.len() == entries.len()), "a coefficient an entry");
        assert!(scales.is_none_or(|s| s.len() == indptr.len() - 1), "a scale a row");
        assert!(loops.is_none_or(|l| l.len() <= num_rows), "an input row a self loop");
        Self { indptr, entries, num_rows, coefficients, scales, loops, own: None }
    }

    /// The same, where the input row of an output row's own number is that of its node.
    ///
    /// # Panics
    ///
    /// When a self loop has no node, or its node no row.
    pub(crate) fn with_nodes(self, nodes: &'a [u32]) -> Self {
        let own = &nodes[..self.loops.map_or(0, <[f32]>::len)];
        let most = own.iter().fold(0, |most, &v| most.max(v));
        assert!(own.is_empty() || (most as usize) < self.num_rows, "node {most} of {} rows", self.num_rows);
        Self { own: Some(own), ..self }
    }

    fn row(&self, row: usize) -> Range<usize> {
        self.indptr[row] as usize..self.indptr[row + 1] as usize
    }

    /// The coefficient and the input row of an output row's own number.
    #[inline(always)]
    fn own(&self, row: usize) -> Option<(f32, usize)> {
        let coefficient = self.loops.and_then(|l| l.get(row)).copied()?;
        Some((coefficient, self.own.map_or(row, |nodes| nodes[row] as usize)))
    }
}

/// Writes the sums of output rows `rows` over `x`, rows of `width` elements.
///
/// # Panics
///
/// When `x` or `out` is too short.
pub(crate) fn sum_rows(
    level: SimdLevel,
    lists: &Lists<'_>,
    rows: Range<usize>,
    x: FeatureView<'_>,
    width: usize,
    out: &mut [f32],
) {
    assert!(x.len() >= lists.num_rows * width, "{} rows of {width} elements", lists.num_rows);
    assert!(rows.end < lists.indptr.len() && out.len() == rows.len() * width, "room for {rows:?}");
    if width == 0 {
        return;
    }
    sums::run(level, lists, rows, x, width, out);
}

/// Writes the elements `range` of `x` as floats.
pub(crate) fn widen(x: FeatureView<'_>, range: Range<usize>, out: &mut [f32]) {
    match x {
        FeatureView::F32(x) => out.copy_from_slice(&x[range]),
        FeatureView::F16(x) => x[range].convert_to_f32_slice(out),
        FeatureView::Bf16(x) => out.iter_mut().zip(&x[range]).for_each(|(o, x)| *o = x.to_f32()),
        FeatureView::U8(x) => out.iter_mut().zip(&x[range]).for_each(|(o, x)| *o = f32::from(*x)),
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_level_and_type_sums_alike(
            degrees in prop::collection::vec(0u32..9, 1..12),
            width in 0usize..600,
            weighted: bool,
            looped: bool,
        ) {
            let num_rows = 30;
            let mut indptr = vec![0];
            degrees.iter().for_each(|d| indptr.push(indptr[indptr.len() - 1] + d));
            let count = indptr[degrees.len()] as usize;
            let entries: Vec<u32> = (0..count as u32).map(|e| e * 7 % num_rows as u32).collect();
            let weights: Vec<f32> = (0..count).map(|e| 0.25 * (e % 5) as f32 - 0.3).collect();
            let scales: Vec<f32> = degrees.iter().map(|&d| 1.0 / d.max(1) as f32).collect();
            let loops: Vec<f32> = degrees.iter().map(|&d| 0.5 + d as f32).collect();
            let some = |on: bool, x| on.then_some(x);
            let lists = Lists::new(
                (&indptr, &entries, num_rows),
                some(weighted, &weights[..]),
                some(!weighted, &scales[..]),
                some(looped, &loops[..]),
            );
            let bytes: Vec<u8> = (0..num_rows * width).map(|i| (i * 31 % 127) as u8).collect();
            let floats: Vec<f32> = bytes.iter().map(|&b| f32::from(b)).collect();
            let halves: Vec<f16> = floats.iter().map(|&x| f16::from_f32(x)).collect();
            let brains: Vec<bf16> = floats.iter().map(|&x| bf16::from_f32(x)).collect();
            let rows = degrees.len();
            let mut exact = vec![0.0f64; rows * width];
            for row in 0..rows {
                for c in 0..width {
                    let at = |v: usize| f64::from(floats[v * width + c]);
                    let mut sum: f64 =
                        lists.row(row).map(|e| f64::from(if weighted { weights[e] } else { 1.0 }) * at(entries[e] as usize)).sum();
                    if !weighted { sum *= f64::from(scales[row]); }
                    if looped { sum += f64::from(loops[row]) * at(row); }
                    exact[row * width + c] = sum;
                }
            }
            for level in SimdLevel::available().rev() {
                for x in [FeatureView::F32(&floats), FeatureView::F16(&halves), FeatureView::Bf16(&brains), FeatureView::U8(&bytes)] {
                    let mut out = vec![7.0; rows * width];
                    let middle = rows / 2;
                    let (first, second) = out.split_at_mut(middle * width);
                    sum_rows(level, &lists, 0..middle, x, width, first);
                    sum_rows(level, &lists, middle..rows, x, width, second);
                    for (o, e) in out.iter().zip(&exact) {
                        prop_assert!((f64::from(*o) - e).abs() < 1e-2, "{level:?}: {o}, expected {e}");
                    }
                    let mut wide = vec![0.0; width * 3];
                    widen(x, 2 * width..5 * width, &mut wide);
                    prop_assert_eq!(&wide, &floats[2 * width..5 * width]);
                }
            }
        }
    }
}
