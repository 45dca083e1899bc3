//! Ranks by 8-bit dot products with a bound of their error: f32 scores are computed only where the bound leaves open on which side of
//! the target's score they are. The counts are those of [`count`](super::count) to the last bit.
//!
//! A query q and a candidate c are scaled and rounded to whole numbers (their codes): iq = q' + r and jc = c' + s with scales i and j.
//! By Cauchy and Schwarz
//!
//! ```text
//! |ij⟨q, c⟩ − ⟨q', c'⟩| = |⟨r, jc⟩ + ⟨q', s⟩| ≤ |r|·|jc| + |q'|·|s|
//! ```
//!
//! and the sum of n products that f32 instructions make deviates from ⟨q, c⟩ by at most γ|q||c|, γ = nu / (1 − nu), u = 2⁻²⁴ (Higham,
//! Accuracy and Stability of Numerical Algorithms, 2nd ed., SIAM 2002, §3.1). A candidate is above or below the target where ⟨q', c'⟩ is
//! further from the scaled score of the target than both bounds together. Where rows have most of their length in few directions, q and c
//! are first projected on them, and the bound has a third term ([`basis`]). The other scores, some per mille to some percent, are open:
//! they are computed as f32 dot products in the fastest order of summation, and those within 2γ|q||c| again in the order of the elements.

use std::ops::Range;

use morphgl_platform::{CACHE_LINE, SimdLevel, prefetch_line};
use rayon::prelude::*;

use super::{FEW, LANES, PairScore, Rows, TargetRank, count_tasks, multiply_add, panels_of_task};

mod basis;
mod kernels;
mod quantise;

use basis::Basis;
use kernels::Kernel;
use quantise::{Limits, Quantiser, Scaled};

/// Elements of a quad, whose products an instruction adds in a lane of 32 bits.
const QUAD: usize = 4;
/// Pairs whose codes stay in the caches while the panels of candidates pass.
const GROUP: usize = 1024;
/// Minimum number of open scores that are computed together.
const WAITING: usize = 64;

/// Widest embeddings for which the bounds below hold.
const MAX_DIM: usize = 4096;
/// Largest scale: products that underflow in f32 remain below [`FLOOR`] when they are scaled.
const MAX_SCALE: f32 = (1u64 << 50) as f32;
/// Largest element of a row that has a bound: no sum of products of two rows overflows.
const MAX_ELEMENT: f32 = (1u64 << 50) as f32;
/// Factor of norms and bounds, for what rounding takes from them in f32.
const INFLATION: f32 = 1.0 + 1.0 / 1024.0;
/// Bound of the relative errors of a scaled element, of the target's scaled score and of its difference from a dot product.
const SCALING: f32 = 1.0 / (1 << 18) as f32;
/// Added to norms and bounds, in units of a code: more than all that underflows.
const FLOOR: f32 = 1.0 / 1024.0;

/// With fewer pairs, candidates or elements than these, bounds save no time.
const MIN_PAIRS: usize = 256;
const MIN_CANDIDATES: usize = 4096;
const MIN_DIM: usize = 24;
/// Pairs and panels of candidates of which [`choose`] counts open scores.
const SAMPLED_PAIRS: usize = 128;
const SAMPLED_PANELS: usize = 16;

/// By what scores are bounded.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    kernel: Kernel,
    basis: Option<Basis>,
}

impl Bounds {
    /// Number of quads of a row's codes, for rows of so many elements.
    fn quads(&self, dim: usize) -> usize {
        self.basis.as_ref().map_or(dim, Basis::kept).div_ceil(QUAD)
    }
}

/// The bound of the relative error of an f32 sum of so many products of unit vectors.
fn gamma(dim: usize) -> f32 {
    (dim + 8) as f32 * f32::EPSILON * 0.51
}

/// The codes of a quad of each lane's candidate, the kernel's bias added.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Quads([[u8; QUAD]; LANES]);

/// What is known of the candidates of a panel, one per lane: the fields of [`Scaled`] as arrays.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Lanes {
    scale: [f32; LANES],
    norm: [f32; LANES],
    residual: [f32; LANES],
    outside: [f32; LANES],
    /// A bit per lane that has a candidate.
    filled: u32,
}

impl Lanes {
    const EMPTY: Self =
        Self { scale: [0.0; LANES], norm: [0.0; LANES], residual: [0.0; LANES], outside: [0.0; LANES], filled: 0 };
}

/// Panels of [`LANES`] candidates.
#[derive(Debug, Clone, Copy)]
struct Panels<'a> {
    /// The first candidate.
    first: usize,
    lanes: &'a [Lanes],
    /// Of each panel as many as a row has quads.
    quads: &'a [Quads],
}

impl<'a> Panels<'a> {
    /// The panel and the lane of a candidate.
    #[inline(always)]
    fn lane_of(self, node: u32) -> (&'a Lanes, usize) {
        let at = node as usize - self.first;
        (&self.lanes[at / LANES], at % LANES)
    }
}

/// Packs the first of the nodes into a panel.
#[inline(always)]
fn pack(
    rows: Rows<'_>,
    nodes: Range<usize>,
    (basis, limits): (Option<&Basis>, Limits),
    lanes: &mut Lanes,
    quads: &mut [Quads],
) {
    *lanes = Lanes::EMPTY;
    let mut quantiser = Quantiser::new(basis, limits, rows.dim);
    for (lane, node) in nodes.take(LANES).enumerate() {
        let scaled = quantiser.quantise(rows.of(node as u32));
        for (quads, &codes) in quads.iter_mut().zip(quantiser.codes.as_chunks::<QUAD>().0) {
            quads.0[lane] = codes.map(|code| (code as u8).wrapping_add(limits.bias));
        }
        (lanes.scale[lane], lanes.norm[lane]) = (scaled.scale, scaled.norm);
        (lanes.residual[lane], lanes.outside[lane]) = (scaled.residual, scaled.outside);
        lanes.filled |= 1 << lane;
    }
}

/// What dot products with the codes of a query are compared with.
#[derive(Debug, Clone, Copy)]
struct Bound {
    /// The score of the target, times the query's scale.
    threshold: f32,
    /// Error per unit of a candidate's norm.
    per_norm: f32,
    /// Error per unit of a candidate's residual.
    per_residual: f32,
    /// Error per unit of what a candidate has outside of the basis.
    per_outside: f32,
}

/// Candidates of a panel, a bit per lane: those that are above a target, and those that the bound leaves open.
#[derive(Debug, Clone, Copy, Default)]
struct Sides {
    above: u32,
    open: u32,
}

/// The queries of a group, `R` per tile.
struct Group<const R: usize> {
    queries: Vec<Query>,
    /// Their left factors, `[queries, dim]`.
    values: Vec<f32>,
    /// By tile and quad, four codes of each query.
    codes: Vec<[i32; R]>,
    /// By tile and block, what sums of products begin with: the products with the candidates' bias, negated.
    starts: Vec<[i32; R]>,
    bounds: Vec<[Bound; R]>,
}

/// What open scores of a query are compared with.
#[derive(Debug, Clone, Copy)]
struct Query {
    /// The score of the target.
    own: f32,
    scale: f32,
    /// The error of a scaled f32 score per unit of a candidate's norm.
    per_norm: f32,
}

/// Scores that a bound left open, and those of them that were computed in the order of the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tally {
    open: u64,
    exact: u64,
}

impl<const R: usize> Group<R> {
    #[inline(always)]
    fn new(rows: Rows<'_>, pairs: &[[u32; 2]], score: PairScore<'_>, bounds: &Bounds) -> Self {
        let (kernel, basis) = (bounds.kernel, bounds.basis.as_ref());
        let (dim, tiles, quads) = (rows.dim, pairs.len().div_ceil(R), bounds.quads(rows.dim));
        let block = kernel.block(quads);
        let blocks = quads.div_ceil(block);
        // All candidates are below.
        let nothing = Bound { threshold: f32::INFINITY, per_norm: 0.0, per_residual: 0.0, per_outside: 0.0 };
        let mut group = Self {
            queries: Vec::with_capacity(pairs.len()),
            values: Vec::with_capacity(pairs.len() * dim),
            codes: vec![[0; R]; tiles * quads],
            starts: vec![[0; R]; tiles * blocks],
            bounds: vec![[nothing; R]; tiles],
        };
        let limits = kernel.limits(quads);
        let mut quantiser = Quantiser::new(basis, limits, dim);
        let per_product = gamma(dim) + basis.map_or(0.0, Basis::error);
        for (i, &[source, target]) in pairs.iter().enumerate() {
            let (tile, row) = (i / R, i % R);
            group.values.extend(rows.query(source, score));
            let query = &group.values[i * dim..];
            let mut own = 0.0;
            for (&a, &b) in query.iter().zip(rows.of(target)) {
                own = multiply_add::<true>(a, b, own);
            }
            let Scaled { scale, norm, residual, outside } = quantiser.quantise(query);
            let (codes, starts) = (&mut group.codes[tile * quads..], &mut group.starts[tile * blocks..]);
            for (quad, &four) in quantiser.codes.as_chunks::<QUAD>().0.iter().take(quads).enumerate() {
                codes[quad][row] = i32::from_le_bytes(four.map(|code| code as u8));
                let start = &mut starts[quad / block][row];
                *start = kernel.without_bias(*start, limits.bias, four);
            }
            group.bounds[tile][row] = Bound {
                // Nothing is above or equal to NaN.
                threshold: if own.is_nan() { f32::INFINITY } else { own * scale },
                per_norm: INFLATION * (residual + per_product * norm),
                per_residual: INFLATION * (norm + residual),
                per_outside: INFLATION * outside,
            };
            group.queries.push(Query { own, scale, per_norm: INFLATION * 2.0 * gamma(dim) * norm });
        }
        group
    }

    /// Adds the candidates of the panels above and equal to each target. `tile` finds the sides of a panel's candidates for a tile's
    /// queries, whose codes, starts and bounds it gets.
    #[inline(always)]
    fn count(
        &self,
        rows: Rows<'_>,
        panels: Panels<'_>,
        ranks: &mut [TargetRank],
        dots: impl Fn([&[f32]; FEW], [&[f32]; FEW]) -> [f32; FEW],
        tile: impl Fn((&Lanes, &[Quads]), (&[[i32; R]], &[[i32; R]], &[Bound; R]), &mut [Sides; R]),
    ) -> Tally {
        let (dim, tiles) = (rows.dim, self.bounds.len());
        let (quads, blocks) = (self.codes.len() / tiles, self.starts.len() / tiles);
        let mut sides = vec![[Sides::default(); R]; tiles];
        // Open scores, by query and candidate. They wait for the rows that are prefetched.
        let mut open = vec![[0u32; 2]; WAITING + LANES * (sides.len() * R + 1)];
        // Lanes of a panel whose scores are open, of the queries that have any.
        let mut masks = vec![[0u32; 2]; sides.len() * R];
        let (mut count, mut of_last, mut tally) = (0, 0, Tally::default());
        for (panel, (lanes, codes)) in panels.lanes.iter().zip(panels.quads.chunks_exact(quads)).enumerate() {
            let first = (panels.first + panel * LANES) as u32;
            // Where many scores are open, most rows of the panel will be read.
            if of_last >= LANES {
                prefetch_rows(rows, first, LANES);
            }
            let tiles = self.codes.chunks_exact(quads).zip(self.starts.chunks_exact(blocks)).zip(&self.bounds);
            for (((query, starts), bounds), sides) in tiles.zip(&mut sides) {
                tile((lanes, codes), (query, starts, bounds), sides);
            }
            let before = count;
            let mut last = 0;
            for (i, (sides, rank)) in sides.as_flattened().iter().zip(&mut *ranks).enumerate() {
                rank.above += (sides.above & lanes.filled).count_ones();
                let left = sides.open & lanes.filled;
                masks[last] = [i as u32, left];
                last += usize::from(left != 0);
            }
            for &[i, mut left] in &masks[..last] {
                let end = count + left.count_ones() as usize;
                // Two at a time, one of which may be none: a branch per score would often be mispredicted.
                loop {
                    for entry in &mut open[count..count + 2] {
                        *entry = [i, first + left.trailing_zeros()];
                        left &= left.wrapping_sub(1);
                    }
                    count += 2;
                    if count >= end {
                        break;
                    }
                }
                count = end;
            }
            of_last = count - before;
            if of_last < LANES {
                open[before..count].iter().for_each(|&[_, node]| prefetch_rows(rows, node, 1));
            }
            if count < WAITING && panel + 1 < panels.lanes.len() {
                continue;
            }
            let mut exact = 0;
            // Whole groups of scores, of which those at the end do not count.
            open[count..count + FEW].fill([0, panels.first as u32]);
            for at in (0..count).step_by(FEW) {
                let few: [[u32; 2]; FEW] = *open[at..].first_chunk().expect("room for one panel more");
                let values = few.map(|[i, _]| &self.values[i as usize * dim..][..dim]);
                let scores = dots(values, few.map(|[_, node]| rows.of(node)));
                for ([i, node], score) in few.into_iter().zip(scores).take(count - at) {
                    let (query, (lanes, lane)) = (&self.queries[i as usize], panels.lane_of(node));
                    let difference = (score - query.own) * (query.scale * lanes.scale[lane]);
                    let error = query.per_norm * lanes.norm[lane] + FLOOR;
                    let (above, below) = (difference > error, difference < -error);
                    ranks[i as usize].above += u32::from(above);
                    open[exact] = [i, node];
                    exact += usize::from(!above & !below);
                }
            }
            for few in open[..exact].chunk_by(|a, b| a[0] == b[0]).flat_map(|of_query| of_query.chunks(FEW)) {
                let i = few[0][0] as usize;
                compare(rows, &self.values[i * dim..(i + 1) * dim], self.queries[i].own, few, &mut ranks[i]);
            }
            tally.open += count as u64;
            tally.exact += exact as u64;
            count = 0;
        }
        tally
    }
}

/// Prefetches rows, some of which may not exist.
#[inline(always)]
fn prefetch_rows(rows: Rows<'_>, first: u32, count: usize) {
    let start = rows.values.as_ptr().wrapping_add(first as usize * rows.dim);
    for at in (0..count * rows.dim).step_by(CACHE_LINE / size_of::<f32>()) {
        prefetch_line(start.wrapping_add(at));
    }
}

/// Adds candidates above and equal to a query's target, by scores in the order of the elements. `few` are entries of one query.
#[inline(always)]
fn compare(rows: Rows<'_>, query: &[f32], own: f32, few: &[[u32; 2]], rank: &mut TargetRank) {
    let nodes: [&[f32]; FEW] = std::array::from_fn(|i| &rows.of(few[i.min(few.len() - 1)][1])[..query.len()]);
    let mut sums = [0f32; FEW];
    for (k, &value) in query.iter().enumerate() {
        for (sum, node) in sums.iter_mut().zip(nodes) {
            *sum = multiply_add::<true>(value, node[k], *sum);
        }
    }
    for &sum in &sums[..few.len()] {
        rank.above += u32::from(sum > own);
        rank.equal += u32::from(sum == own);
    }
}

/// As [`count`](super::count), whose level has the kernel.
pub(super) fn count(
    bounds: &Bounds,
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    score: PairScore<'_>,
    nodes: Range<usize>,
    memory: usize,
    ranks: &mut [TargetRank],
) {
    let quads = bounds.quads(rows.dim);
    let bytes = size_of::<Lanes>() + quads * size_of::<Quads>();
    let at_once = (memory / bytes).clamp(1, nodes.len().div_ceil(LANES).max(1));
    let mut lanes = vec![Lanes::EMPTY; at_once];
    let mut codes = vec![Quads([[0; QUAD]; LANES]); at_once * quads];
    for first in nodes.clone().step_by(at_once * LANES) {
        let nodes = first..nodes.end.min(first + at_once * LANES);
        let panels = nodes.len().div_ceil(LANES);
        let (lanes, codes) = (&mut lanes[..panels], &mut codes[..panels * quads]);
        lanes.par_iter_mut().zip(codes.par_chunks_mut(quads)).enumerate().for_each(|(i, (lanes, codes))| {
            bounds.pack(rows, nodes.start + i * LANES..nodes.end, lanes, codes);
        });
        let part = panels_of_task(panels, pairs.len().div_ceil(GROUP));
        let parts = lanes.chunks(part).zip(codes.chunks(part * quads)).enumerate();
        let parts = parts.map(|(i, (lanes, quads))| Panels { first: first + i * part * LANES, lanes, quads });
        count_tasks((pairs, GROUP), parts, ranks, |pairs, panels, ranks| {
            bounds.count(rows, pairs, score, panels, ranks);
        });
    }
}

/// The bounds of a level, where a sample of the scores says that ranks take less time by them than without.
pub(super) fn choose(
    level: SimdLevel,
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    score: PairScore<'_>,
    nodes: Range<usize>,
) -> Option<Bounds> {
    let kernel = Kernel::available(level).last()?;
    let dim = rows.dim;
    if !(MIN_DIM..=MAX_DIM).contains(&dim) || pairs.len() < MIN_PAIRS || nodes.len() < MIN_CANDIDATES {
        return None;
    }
    let bounds = Bounds { kernel, basis: Basis::of(rows, nodes.clone(), pairs.len()) };
    let sample: Vec<[u32; 2]> = pairs.iter().copied().step_by(pairs.len().div_ceil(SAMPLED_PAIRS)).collect();
    let mut ranks = vec![TargetRank::default(); sample.len()];
    let of_row = bounds.quads(dim);
    let mut quads = vec![Quads([[0; QUAD]; LANES]); SAMPLED_PANELS * of_row];
    let mut tally = Tally::default();
    for (i, quads) in quads.chunks_mut(of_row).enumerate() {
        let first = nodes.start + i * (nodes.len() - LANES) / (SAMPLED_PANELS - 1);
        let mut lanes = Lanes::EMPTY;
        bounds.pack(rows, first..nodes.end, &mut lanes, quads);
        let of_panel = bounds.count(rows, &sample, score, Panels { first, lanes: &[lanes], quads }, &mut ranks);
        tally = Tally { open: tally.open + of_panel.open, exact: tally.exact + of_panel.exact };
    }
    let (dim, coded) = (dim as u64, (QUAD * of_row) as u64);
    let scores = (sample.len() * SAMPLED_PANELS * LANES) as u64;
    // Fitted to times of `benches/ranking.rs` with 16 to 256 elements. An element of a code takes half the time of one of an f32 tile.
    let lost = tally.open * (150 + dim) + 8 * tally.exact * dim;
    (kernel.elements_per_open() * lost <= scores * (2 * dim - coded.min(dim))).then_some(bounds)
}

#[cfg(test)]
mod tests;
