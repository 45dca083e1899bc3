//! Processors without a kernel of 8-bit dot products.

use std::ops::Range;

use morphgl_platform::SimdLevel;

use super::{PairScore, Rows, TargetRank};

/// There is none.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bounds {}

pub(super) fn choose(_: SimdLevel, _: Rows<'_>, _: &[[u32; 2]], _: PairScore<'_>, _: Range<usize>) -> Option<Bounds> {
    None
}

pub(super) fn count(
    bounds: &Bounds,
    _: Rows<'_>,
    _: &[[u32; 2]],
    _: PairScore<'_>,
    _: Range<usize>,
    _: usize,
    _: &mut [TargetRank],
) {
    match *bounds {}
}
