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
//! further from the scaled score of the target than both bounds together. The other scores, some per mille to some percent, are open:
//! they are computed as f32 dot products in the fastest order of summation, and those within 2γ|q||c| again in the order of the elements.

use std::ops::Range;

use morphgl_platform::{CACHE_LINE, SimdLevel, prefetch_line};
use rayon::prelude::*;

use super::{FEW, LANES, PairScore, Rows, TargetRank, count_tasks, multiply_add, panels_of_task};

mod kernels;

pub(super) use kernels::Kernel;

/// Elements of a quad, whose products an instruction adds in a lane of 32 bits.
const QUAD: usize = 4;
/// Elements that are rounded together.
const PART: usize = 16;
/// Pairs whose codes stay in the caches while the panels of candidates pass.
const GROUP: usize = 1024;
/// Minimum number of open scores that are computed together.
const WAITING: usize = 64;

/// Largest code of a candidate. Codes are stored as unsigned bytes, this bias added.
const MAX_CODE: f32 = 127.0;
const BIAS: u8 = 128;
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
/// Added to a number of a magnitude below 2²², it leaves the nearest whole number in the lowest bits of the sum.
const ROUNDING: f32 = 12_582_912.0;

/// With fewer pairs, candidates or elements than these, bounds save no time.
const MIN_PAIRS: usize = 256;
const MIN_CANDIDATES: usize = 4096;
const MIN_DIM: usize = 24;
/// Pairs and panels of candidates of which [`choose`] counts open scores.
const SAMPLED_PAIRS: usize = 128;
const SAMPLED_PANELS: usize = 16;

/// What is known of a row that was rounded, in units of its codes; norms are rounded up, and infinite where a row has no bound.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Scaled {
    scale: f32,
    /// The norm of the scaled row.
    norm: f32,
    /// The norm of what rounding took from it.
    residual: f32,
}

/// Limits of the codes of queries or of candidates.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Limits {
    /// Largest magnitude of a code.
    code: f32,
    /// Quads of a block, and the largest norm of the codes of a block whose products are added in the same lane of 16 bits.
    block: Option<(usize, f32)>,
}

/// Scales and rounds a row; `codes` has its length, rounded up to a multiple of [`PART`].
#[inline(always)]
fn quantise(row: &[f32], limits: Limits, codes: &mut [i8]) -> Scaled {
    // Bits of magnitudes have their order, and those of NaN are the largest.
    let mut max = 0u32;
    for x in row {
        max = max.max(x.abs().to_bits());
    }
    let max = f32::from_bits(max);
    if max.is_nan() || max > MAX_ELEMENT {
        codes.fill(0);
        return Scaled { scale: 1.0, norm: f32::INFINITY, residual: f32::INFINITY };
    }
    let mut scale = (limits.code / max).min(MAX_SCALE);
    if let Some((quads, largest)) = limits.block {
        let mut square = 0f32;
        for block in row.chunks(QUAD * quads) {
            let (quads, rest) = block.as_chunks::<QUAD>();
            let mut sums = [0f32; QUAD];
            sums[..rest.len()].copy_from_slice(rest);
            for sum in &mut sums {
                *sum *= scale;
                *sum *= *sum;
            }
            for quad in quads {
                for k in 0..QUAD {
                    let scaled = quad[k] * scale;
                    sums[k] = scaled.mul_add(scaled, sums[k]);
                }
            }
            // A lane of 16 bits has the products of two neighbours of each quad.
            square = square.max((sums[0] + sums[1]).max(sums[2] + sums[3]));
        }
        if square > largest * largest {
            scale *= largest / square.sqrt();
        }
    }
    let (mut norms, mut residuals) = ([0f32; PART], [0f32; PART]);
    let (parts, rest) = row.as_chunks::<PART>();
    let (codes, _) = codes.as_chunks_mut::<PART>();
    for (part, codes) in parts.iter().zip(&mut *codes) {
        round(part, scale, codes, &mut norms, &mut residuals);
    }
    if let Some(codes) = codes.get_mut(parts.len()) {
        let mut last = [0f32; PART];
        last[..rest.len()].copy_from_slice(rest);
        round(&last, scale, codes, &mut norms, &mut residuals);
    }
    let norm = INFLATION * sum(norms).sqrt() + FLOOR;
    Scaled { scale, norm, residual: INFLATION * sum(residuals).sqrt() + SCALING * norm + FLOOR }
}

/// Scales and rounds a part of a row; adds the squares of its elements, and of what rounding took from them.
#[inline(always)]
fn round(part: &[f32; PART], scale: f32, codes: &mut [i8; PART], norms: &mut [f32; PART], residuals: &mut [f32; PART]) {
    for k in 0..PART {
        let scaled = part[k] * scale;
        let rounded = scaled + ROUNDING;
        codes[k] = rounded.to_bits() as i8;
        let left = scaled - (rounded - ROUNDING);
        norms[k] = scaled.mul_add(scaled, norms[k]);
        residuals[k] = left.mul_add(left, residuals[k]);
    }
}

#[inline(always)]
fn sum(lanes: [f32; PART]) -> f32 {
    let (mut eight, mut four) = ([0f32; 8], [0f32; 4]);
    for i in 0..8 {
        eight[i] = lanes[i] + lanes[i + 8];
    }
    for i in 0..4 {
        four[i] = eight[i] + eight[i + 4];
    }
    (four[0] + four[2]) + (four[1] + four[3])
}

/// The bound of the relative error of an f32 sum of so many products of unit vectors.
fn gamma(dim: usize) -> f32 {
    (dim + 8) as f32 * f32::EPSILON * 0.51
}

/// The codes of a quad of each lane's candidate, [`BIAS`] added.
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
    /// A bit per lane that has a candidate.
    filled: u32,
}

impl Lanes {
    const EMPTY: Self = Self { scale: [0.0; LANES], norm: [0.0; LANES], residual: [0.0; LANES], filled: 0 };
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
fn pack(rows: Rows<'_>, nodes: Range<usize>, limits: Limits, lanes: &mut Lanes, quads: &mut [Quads]) {
    *lanes = Lanes::EMPTY;
    let mut codes = vec![0i8; rows.dim.next_multiple_of(PART)];
    for (lane, node) in nodes.take(LANES).enumerate() {
        let scaled = quantise(rows.of(node as u32), limits, &mut codes);
        for (quads, &codes) in quads.iter_mut().zip(codes.as_chunks::<QUAD>().0) {
            // All four at a time.
            let biased = u32::from_le_bytes(codes.map(|code| code as u8)) ^ u32::from_le_bytes([BIAS; QUAD]);
            quads.0[lane] = biased.to_le_bytes();
        }
        (lanes.scale[lane], lanes.norm[lane], lanes.residual[lane]) = (scaled.scale, scaled.norm, scaled.residual);
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
    fn new(rows: Rows<'_>, pairs: &[[u32; 2]], score: PairScore<'_>, kernel: Kernel) -> Self {
        let (dim, tiles, quads) = (rows.dim, pairs.len().div_ceil(R), rows.dim.div_ceil(QUAD));
        let block = kernel.block(quads);
        let blocks = quads.div_ceil(block);
        // All candidates are below.
        let nothing = Bound { threshold: f32::INFINITY, per_norm: 0.0, per_residual: 0.0 };
        let mut group = Self {
            queries: Vec::with_capacity(pairs.len()),
            values: Vec::with_capacity(pairs.len() * dim),
            codes: vec![[0; R]; tiles * quads],
            starts: vec![[0; R]; tiles * blocks],
            bounds: vec![[nothing; R]; tiles],
        };
        let mut rounded = vec![0i8; dim.next_multiple_of(PART)];
        for (i, &[source, target]) in pairs.iter().enumerate() {
            let (tile, row) = (i / R, i % R);
            group.values.extend(rows.query(source, score));
            let query = &group.values[i * dim..];
            let mut own = 0.0;
            for (&a, &b) in query.iter().zip(rows.of(target)) {
                own = multiply_add::<true>(a, b, own);
            }
            let Scaled { scale, norm, residual } = quantise(query, kernel.query_limits(quads), &mut rounded);
            let (codes, starts) = (&mut group.codes[tile * quads..], &mut group.starts[tile * blocks..]);
            for (quad, &four) in rounded.as_chunks::<QUAD>().0.iter().take(quads).enumerate() {
                codes[quad][row] = i32::from_le_bytes(four.map(|code| code as u8));
                let start = &mut starts[quad / block][row];
                *start = kernel.without_bias(*start, four);
            }
            group.bounds[tile][row] = Bound {
                // Nothing is above or equal to NaN.
                threshold: if own.is_nan() { f32::INFINITY } else { own * scale },
                per_norm: INFLATION * (residual + gamma(dim) * norm),
                per_residual: INFLATION * (norm + residual),
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
        dot: impl Fn(&[f32], &[f32]) -> f32,
        tile: impl Fn((&Lanes, &[Quads]), (&[[i32; R]], &[[i32; R]], &[Bound; R]), &mut [Sides; R]),
    ) -> Tally {
        let (dim, quads) = (rows.dim, rows.dim.div_ceil(QUAD));
        let blocks = self.starts.len() / self.bounds.len();
        let mut sides = vec![[Sides::default(); R]; self.bounds.len()];
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
            for at in 0..count {
                let [i, node] = open[at];
                let (query, (lanes, lane)) = (&self.queries[i as usize], panels.lane_of(node));
                let values = &self.values[i as usize * dim..(i as usize + 1) * dim];
                let difference = (dot(values, rows.of(node)) - query.own) * (query.scale * lanes.scale[lane]);
                let error = query.per_norm * lanes.norm[lane] + FLOOR;
                let (above, below) = (difference > error, difference < -error);
                ranks[i as usize].above += u32::from(above);
                open[exact] = [i, node];
                exact += usize::from(!above & !below);
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
    kernel: Kernel,
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    score: PairScore<'_>,
    nodes: Range<usize>,
    memory: usize,
    ranks: &mut [TargetRank],
) {
    let quads = rows.dim.div_ceil(QUAD);
    let bytes = size_of::<Lanes>() + quads * size_of::<Quads>();
    let at_once = (memory / bytes).clamp(1, nodes.len().div_ceil(LANES).max(1));
    let mut lanes = vec![Lanes::EMPTY; at_once];
    let mut codes = vec![Quads([[0; QUAD]; LANES]); at_once * quads];
    for first in nodes.clone().step_by(at_once * LANES) {
        let nodes = first..nodes.end.min(first + at_once * LANES);
        let panels = nodes.len().div_ceil(LANES);
        let (lanes, codes) = (&mut lanes[..panels], &mut codes[..panels * quads]);
        lanes.par_iter_mut().zip(codes.par_chunks_mut(quads)).enumerate().for_each(|(i, (lanes, codes))| {
            kernel.pack(rows, nodes.start + i * LANES..nodes.end, lanes, codes);
        });
        let part = panels_of_task(panels, pairs.len().div_ceil(GROUP));
        let parts = lanes.chunks(part).zip(codes.chunks(part * quads)).enumerate();
        let parts = parts.map(|(i, (lanes, quads))| Panels { first: first + i * part * LANES, lanes, quads });
        count_tasks((pairs, GROUP), parts, ranks, |pairs, panels, ranks| {
            kernel.count(rows, pairs, score, panels, ranks);
        });
    }
}

/// The kernel of a level, where a sample of the scores says that ranks take less time by bounds than without.
pub(super) fn choose(
    level: SimdLevel,
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    score: PairScore<'_>,
    nodes: Range<usize>,
) -> Option<Kernel> {
    let kernel = Kernel::available(level).last()?;
    let dim = rows.dim;
    if !(MIN_DIM..=MAX_DIM).contains(&dim) || pairs.len() < MIN_PAIRS || nodes.len() < MIN_CANDIDATES {
        return None;
    }
    let sample: Vec<[u32; 2]> = pairs.iter().copied().step_by(pairs.len().div_ceil(SAMPLED_PAIRS)).collect();
    let mut ranks = vec![TargetRank::default(); sample.len()];
    let mut quads = vec![Quads([[0; QUAD]; LANES]); SAMPLED_PANELS * dim.div_ceil(QUAD)];
    let mut tally = Tally::default();
    for (i, quads) in quads.chunks_mut(dim.div_ceil(QUAD)).enumerate() {
        let first = nodes.start + i * (nodes.len() - LANES) / (SAMPLED_PANELS - 1);
        let mut lanes = Lanes::EMPTY;
        kernel.pack(rows, first..nodes.end, &mut lanes, quads);
        let of_panel = kernel.count(rows, &sample, score, Panels { first, lanes: &[lanes], quads }, &mut ranks);
        tally = Tally { open: tally.open + of_panel.open, exact: tally.exact + of_panel.exact };
    }
    let dim = dim as u64;
    let scores = (sample.len() * SAMPLED_PANELS * LANES) as u64;
    // Fitted to times of `benches/ranking.rs` with 16 to 256 elements. Bounds save half of the time of an f32 tile.
    let lost = tally.open * (150 + dim) + 8 * tally.exact * dim;
    (kernel.elements_per_open() * lost <= scores * dim).then_some(kernel)
}

#[cfg(test)]
mod tests;
