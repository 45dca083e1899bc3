//! Ranks by dot products of 8 or 16 bits with a bound of their error: f32 scores are computed only where the bound leaves open on which side of
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
//! further from the scaled score of the target than both bounds together. The candidates of a panel have one scale, and so one pair of
//! limits per query, whole numbers that sums of products are compared with. Where rows have most of their length in few directions, q
//! and c are first projected on them, and the bound has a third term ([`basis`]). The other scores, some per mille with 16
//! bits and some percent with 8, are open: they are computed as f32 dot products in the fastest order of summation, and those within 2γ|q||c| again in the
//! order of the elements.

use std::ops::Range;

use morphgl_platform::{CACHE_LINE, SimdLevel, prefetch_line};
use rayon::prelude::*;

use super::{FEW, LANES, PairScore, Rows, TargetRank, count_tasks, multiply_add, panels_of_task};

mod basis;
mod kernels;
mod quantise;

use basis::Basis;
use kernels::Kernel;
use quantise::{CodeWidth, Quantiser, Scaled};

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
/// Bound of the relative errors of a scaled element and of the difference of two scores.
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
    /// Number of elements of which a row of so many has codes.
    fn coded(&self, dim: usize) -> usize {
        self.basis.as_ref().map_or(dim, Basis::kept)
    }

    /// Number of lanes of 32 bits that the codes of a row of so many elements fill.
    fn depth(&self, dim: usize) -> usize {
        self.coded(dim).div_ceil(self.kernel.width().per_lane()).next_multiple_of(self.kernel.step())
    }
}

/// The bound of the relative error of an f32 sum of so many products of unit vectors.
fn gamma(dim: usize) -> f32 {
    (dim + 8) as f32 * f32::EPSILON * 0.51
}

/// Codes of four or two neighbouring elements of each lane's candidate.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Codes([i32; LANES]);

/// Panels of [`LANES`] candidates.
#[derive(Debug, Clone, Copy)]
struct Panels<'a> {
    /// The first candidate.
    first: usize,
    /// The number of the last candidate, plus 1.
    end: usize,
    /// What is known of all candidates of a panel.
    scaled: &'a [Scaled],
    /// Of each panel as many as a row has.
    codes: &'a [Codes],
}

/// Packs the first of the nodes into a panel.
#[inline(always)]
fn pack(rows: Rows<'_>, nodes: Range<usize>, bounds: &Bounds, scaled: &mut Scaled, panel: &mut [Codes]) {
    panel.fill(Codes([0; LANES]));
    let width = bounds.kernel.width();
    let mut quantiser = Quantiser::new(bounds.basis.as_ref(), width, rows.dim);
    *scaled = quantiser.quantise(nodes.take(LANES).map(|node| rows.of(node as u32)));
    for (lane, codes) in quantiser.codes().enumerate() {
        match width {
            CodeWidth::Byte(largest) => {
                let bias = i16::from(largest) + 1;
                for (panel, &codes) in panel.iter_mut().zip(codes.as_chunks().0) {
                    panel.0[lane] = i32::from_le_bytes(codes.map(|code| (code + bias) as u8));
                }
            }
            CodeWidth::Word => {
                for (panel, &codes) in panel.iter_mut().zip(codes.as_chunks().0) {
                    panel.0[lane] = quantise::words(codes);
                }
            }
        }
    }
}

/// Candidates of a panel, a bit per lane: those that are above a target, and those that are not below it. The bound leaves open what is
/// neither.
#[derive(Debug, Clone, Copy, Default)]
struct Sides {
    above: u32,
    not_below: u32,
}

/// What sums of products with the queries of a tile are compared with: a larger one than `above` is above the target, one that is at
/// most `below` is below it.
#[derive(Debug, Clone, Copy)]
struct Limits<'a, const R: usize> {
    above: &'a [i32; R],
    below: &'a [i32; R],
}

/// The queries of a group, `R` per tile.
struct Group<const R: usize> {
    queries: Vec<Query>,
    /// Their left factors, `[queries, dim]`.
    values: Vec<f32>,
    /// By tile and depth, codes of each query.
    codes: Vec<[i32; R]>,
    bounds: Vec<Bound>,
    /// More than the magnitude of any product of codes.
    max_product: f32,
}

/// What the limits of a query are made of.
#[derive(Debug, Clone, Copy)]
struct Bound {
    /// The score of the target, times the query's scale.
    threshold: f32,
    /// Error per unit of the candidates' norm.
    per_norm: f32,
    /// Error per unit of the candidates' residual.
    per_residual: f32,
    /// Error per unit of what the candidates have outside of the basis.
    per_outside: f32,
    /// What sums have over products of codes, since candidates' bytes have a bias.
    bias: i32,
}

impl Bound {
    /// All candidates are below.
    const NOTHING: Self =
        Self { threshold: f32::INFINITY, per_norm: 0.0, per_residual: 0.0, per_outside: 0.0, bias: 0 };

    /// The limits of sums for a panel: what is above is larger than the first, what is below at most the second.
    #[inline(always)]
    fn limits(self, panel: Scaled, max: f32) -> [i32; 2] {
        let threshold = self.threshold * panel.scale;
        let error = self.per_norm * panel.norm + self.per_residual * panel.residual;
        // More than rounding takes from a threshold of at most `max`, and from the limits as they become whole.
        let error = error + self.per_outside * panel.outside + (max / (1 << 20) as f32 + 1.0);
        let [above, below] = [threshold + error, threshold - error];
        // Where one is NaN, all is open.
        let above = if above < max { above } else { max };
        let above = if above > -max { above } else { -max };
        let below = if below > -max { below } else { -max };
        let below = if below < max { below } else { max };
        // SAFETY: both are within ±`max`, which is less than 2³¹.
        [above, below].map(|limit| unsafe { limit.to_int_unchecked::<i32>() } + self.bias)
    }
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
        let (basis, width) = (bounds.basis.as_ref(), bounds.kernel.width());
        let (dim, tiles, depth) = (rows.dim, pairs.len().div_ceil(R), bounds.depth(rows.dim));
        let mut group = Self {
            queries: Vec::with_capacity(pairs.len()),
            values: Vec::with_capacity(pairs.len() * dim),
            codes: vec![[0; R]; tiles * depth],
            bounds: vec![Bound::NOTHING; tiles * R],
            max_product: width.max_product(bounds.coded(dim)),
        };
        let mut quantiser = Quantiser::new(basis, width, dim);
        let per_product = gamma(dim) + basis.map_or(0.0, Basis::error);
        for (i, &[source, target]) in pairs.iter().enumerate() {
            let (tile, row) = (i / R, i % R);
            group.values.extend(rows.query(source, score));
            let query = &group.values[i * dim..];
            let mut own = 0.0;
            for (&a, &b) in query.iter().zip(rows.of(target)) {
                own = multiply_add::<true>(a, b, own);
            }
            let Scaled { scale, norm, residual, outside } = quantiser.quantise([query].into_iter());
            let codes = quantiser.codes().next().expect("a row");
            let of_tile = group.codes[tile * depth..][..depth].iter_mut().map(|codes| &mut codes[row]);
            let bias = match width {
                CodeWidth::Byte(largest) => {
                    let four = codes.as_chunks().0.iter().map(|codes| codes.map(|code| code as u8));
                    of_tile.zip(four).for_each(|(lane, codes)| *lane = i32::from_le_bytes(codes));
                    codes.iter().map(|&code| (i32::from(largest) + 1) * i32::from(code)).sum()
                }
                CodeWidth::Word => {
                    of_tile.zip(codes.as_chunks().0).for_each(|(lane, &codes)| *lane = quantise::words(codes));
                    0
                }
            };
            group.bounds[i] = Bound {
                // Nothing is above or equal to NaN.
                threshold: if own.is_nan() { f32::INFINITY } else { own * scale },
                per_norm: INFLATION * (residual + per_product * norm),
                per_residual: INFLATION * (norm + residual),
                per_outside: INFLATION * outside,
                bias,
            };
            group.queries.push(Query { own, scale, per_norm: INFLATION * 2.0 * gamma(dim) * norm });
        }
        group
    }

    /// Adds the candidates of the panels above and equal to each target. `tile` finds the sides of a panel's candidates for a tile's
    /// queries, whose codes and limits it gets.
    #[inline(always)]
    fn count(
        &self,
        rows: Rows<'_>,
        panels: Panels<'_>,
        ranks: &mut [TargetRank],
        dots: impl Fn([&[f32]; FEW], [&[f32]; FEW]) -> [f32; FEW],
        tile: impl Fn(&[Codes], &[[i32; R]], Limits<'_, R>, &mut [Sides; R]),
    ) -> Tally {
        let (dim, tiles) = (rows.dim, self.bounds.len() / R);
        let depth = self.codes.len() / tiles;
        let mut sides = vec![[Sides::default(); R]; tiles];
        let [mut above, mut below] = [vec![0; tiles * R], vec![0; tiles * R]];
        // Open scores, by query and candidate. They wait for the rows that are prefetched.
        let mut open = vec![[0u32; 2]; WAITING + LANES * (sides.len() * R + 1)];
        // Lanes of a panel whose scores are open, of the queries that have any.
        let mut masks = vec![[0u32; 2]; sides.len() * R];
        let (mut count, mut of_last, mut tally) = (0, 0, Tally::default());
        for (panel, (&scaled, candidates)) in panels.scaled.iter().zip(panels.codes.chunks_exact(depth)).enumerate() {
            let first = panels.first + panel * LANES;
            let filled = u32::MAX >> (LANES - (panels.end - first).min(LANES));
            let first = first as u32;
            // Where many scores are open, most rows of the panel will be read.
            if of_last >= LANES {
                prefetch_rows(rows, first, LANES);
            }
            for ((above, below), bound) in above.iter_mut().zip(&mut below).zip(&self.bounds) {
                [*above, *below] = bound.limits(scaled, self.max_product);
            }
            let limits = above.as_chunks::<R>().0.iter().zip(below.as_chunks::<R>().0);
            for ((codes, (above, below)), sides) in self.codes.chunks_exact(depth).zip(limits).zip(&mut sides) {
                tile(candidates, codes, Limits { above, below }, sides);
            }
            let before = count;
            let mut last = 0;
            for (i, (sides, rank)) in sides.as_flattened().iter().zip(&mut *ranks).enumerate() {
                rank.above += (sides.above & filled).count_ones();
                let left = sides.not_below & !sides.above & filled;
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
            if count < WAITING && panel + 1 < panels.scaled.len() {
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
                    let query = &self.queries[i as usize];
                    let panel = panels.scaled[(node as usize - panels.first) / LANES];
                    let difference = (score - query.own) * (query.scale * panel.scale);
                    let error = query.per_norm * panel.norm + FLOOR;
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
    let depth = bounds.depth(rows.dim);
    let bytes = size_of::<Scaled>() + depth * size_of::<Codes>();
    let at_once = (memory / bytes).clamp(1, nodes.len().div_ceil(LANES).max(1));
    let mut scaled = vec![Scaled::default(); at_once];
    let mut codes = vec![Codes([0; LANES]); at_once * depth];
    for first in nodes.clone().step_by(at_once * LANES) {
        let nodes = first..nodes.end.min(first + at_once * LANES);
        let panels = nodes.len().div_ceil(LANES);
        let (scaled, codes) = (&mut scaled[..panels], &mut codes[..panels * depth]);
        scaled.par_iter_mut().zip(codes.par_chunks_mut(depth)).enumerate().for_each(|(i, (scaled, codes))| {
            bounds.pack(rows, nodes.start + i * LANES..nodes.end, scaled, codes);
        });
        let part = panels_of_task(panels, pairs.len().div_ceil(GROUP));
        let parts = scaled.chunks(part).zip(codes.chunks(part * depth)).enumerate();
        let parts =
            parts.map(|(i, (scaled, codes))| Panels { first: first + i * part * LANES, end: nodes.end, scaled, codes });
        count_tasks((pairs, GROUP), parts, ranks, |pairs, panels, ranks| {
            bounds.count(rows, pairs, score, panels, ranks);
        });
    }
}

/// The bounds of a level by which ranks take least time, as a sample of the scores says, where that is less than without.
pub(super) fn choose(
    level: SimdLevel,
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    score: PairScore<'_>,
    nodes: Range<usize>,
) -> Option<Bounds> {
    let dim = rows.dim;
    if !(MIN_DIM..=MAX_DIM).contains(&dim) || pairs.len() < MIN_PAIRS || nodes.len() < MIN_CANDIDATES {
        return None;
    }
    let kernels = Kernel::fastest(level);
    let basis = if kernels.is_empty() { None } else { Basis::of(rows, nodes.clone(), pairs.len()) };
    let sample: Vec<[u32; 2]> = pairs.iter().copied().step_by(pairs.len().div_ceil(SAMPLED_PAIRS)).collect();
    let timed = kernels.iter().map(|&kernel| {
        let bounds = Bounds { kernel, basis: basis.clone() };
        (bounds.cost(rows, &sample, score, nodes.clone()), bounds)
    });
    let (cost, bounds) = timed.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (cost <= dim as f32).then_some(bounds)
}

impl Bounds {
    /// The time that a score takes, in that of an element of an f32 tile, by some panels of candidates. Fitted to times of
    /// `benches/ranking.rs` with 16 to 256 elements.
    fn cost(&self, rows: Rows<'_>, sample: &[[u32; 2]], score: PairScore<'_>, nodes: Range<usize>) -> f32 {
        let (dim, depth) = (rows.dim, self.depth(rows.dim));
        let mut ranks = vec![TargetRank::default(); sample.len()];
        let mut codes = vec![Codes([0; LANES]); depth];
        let mut tally = Tally::default();
        for i in 0..SAMPLED_PANELS {
            let first = nodes.start + i * (nodes.len() - LANES) / (SAMPLED_PANELS - 1);
            let mut scaled = Scaled::default();
            self.pack(rows, first..nodes.end, &mut scaled, &mut codes);
            let panels = Panels { first, end: nodes.end, scaled: &[scaled], codes: &codes };
            let of_panel = self.count(rows, sample, score, panels, &mut ranks);
            tally = Tally { open: tally.open + of_panel.open, exact: tally.exact + of_panel.exact };
        }
        let open = tally.open as f32 * (150 + dim) as f32 + (8 * tally.exact) as f32 * dim as f32;
        let scores = (sample.len() * SAMPLED_PANELS * LANES) as f32;
        self.kernel.per_element() * self.coded(dim) as f32 + self.kernel.per_open() * open / scores
    }
}

#[cfg(test)]
mod tests;
