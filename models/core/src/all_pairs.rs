//! Ranks of pairs among all nodes by their embeddings, without a matrix of all scores.

use std::hint::black_box;
use std::ops::Range;

use morphgl_platform::{SimdLevel, simd_dispatch};
use rayon::prelude::*;

use bounded::Bounds;

#[cfg_attr(not(target_arch = "x86_64"), path = "all_pairs/unbounded.rs")]
mod bounded;

/// How two embeddings make the score of a pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PairScore<'a> {
    /// The dot product.
    Dot,
    /// DistMult (Yang et al., ICLR 2015, §3): the dot product weighted by these values of a relation.
    DistMult(&'a [f32]),
}

/// Pairs that exist, by source: targets that others are not ranked against (the "filtered" ranks of Bordes et al., NIPS 2013).
#[derive(Debug, Clone, PartialEq)]
pub struct KnownPairs {
    indptr: Vec<u64>,
    targets: Vec<u32>,
}

impl KnownPairs {
    /// The pairs of `lists`, each counted once.
    ///
    /// # Panics
    ///
    /// When a source is not below `num_nodes`.
    ///
    /// # Complexity
    ///
    /// As [`KnownPairs::of`].
    pub fn new(num_nodes: usize, lists: &[&[[u32; 2]]]) -> Self {
        Self::of(num_nodes, || lists.iter().flat_map(|list| list.iter().copied()))
    }

    /// The pairs that `pairs` gives, twice the same, each counted once.
    ///
    /// # Panics
    ///
    /// When a source is not below `num_nodes`.
    ///
    /// # Complexity
    ///
    /// O(nodes + pairs log pairs) time; [`KnownPairs::max_bytes`] of memory.
    pub fn of<I: Iterator<Item = [u32; 2]>>(num_nodes: usize, pairs: impl Fn() -> I) -> Self {
        // Ends of rows, which move to their beginnings as targets are put in.
        let mut indptr = vec![0u64; num_nodes + 1];
        let counts = &mut indptr[..num_nodes];
        pairs().for_each(|[source, _]| counts[source as usize] += 1);
        let mut end = 0;
        for offset in &mut indptr {
            end += *offset;
            *offset = end;
        }
        let mut targets = vec![0u32; end as usize];
        for [source, target] in pairs() {
            let at = &mut indptr[source as usize];
            *at -= 1;
            targets[*at as usize] = target;
        }
        let (mut rows, mut rest) = (Vec::with_capacity(num_nodes.div_ceil(ROWS_OF_TASK)), &mut targets[..]);
        for first in (0..num_nodes).step_by(ROWS_OF_TASK) {
            let last = num_nodes.min(first + ROWS_OF_TASK);
            let (own, others) = rest.split_at_mut((indptr[last] - indptr[first]) as usize);
            rows.push((&indptr[first..=last], own));
            rest = others;
        }
        rows.par_iter_mut().for_each(|(indptr, targets)| {
            for row in indptr.windows(2) {
                targets[(row[0] - indptr[0]) as usize..(row[1] - indptr[0]) as usize].sort_unstable();
            }
        });
        let (mut kept, mut start) = (0, 0);
        for node in 0..num_nodes {
            let (end, first) = (indptr[node + 1] as usize, kept);
            for at in start..end {
                if kept == first || targets[kept - 1] != targets[at] {
                    targets[kept] = targets[at];
                    kept += 1;
                }
            }
            start = end;
            indptr[node + 1] = kept as u64;
        }
        targets.truncate(kept);
        Self { indptr, targets }
    }

    /// Maximum bytes of as many pairs, while they are gathered and afterwards.
    pub fn max_bytes(num_nodes: usize, num_pairs: usize) -> u64 {
        8 * (num_nodes as u64 + 1) + 4 * num_pairs as u64 + 32 * num_nodes.div_ceil(ROWS_OF_TASK) as u64
    }

    /// The known targets of a source, ascending.
    ///
    /// # Panics
    ///
    /// When there is no such node.
    pub fn targets(&self, source: u32) -> &[u32] {
        let at = |node: usize| self.indptr[node] as usize;
        &self.targets[at(source as usize)..at(source as usize + 1)]
    }
}

/// The nodes that the targets of pairs are ranked against, and that partners are of.
#[derive(Debug, Clone)]
pub struct Candidates<'a> {
    /// Their numbers.
    pub nodes: Range<u32>,
    /// Pairs whose targets are left out.
    pub known: Option<&'a KnownPairs>,
}

impl<'a> Candidates<'a> {
    /// The known targets of a source among the nodes, ascending.
    pub(crate) fn known(&self, source: u32) -> &'a [u32] {
        let known = self.known.map_or(&[][..], |known| known.targets(source));
        let below = |node: u32| known.partition_point(|&target| target < node);
        &known[below(self.nodes.start)..below(self.nodes.end)]
    }
}

/// Where the target of a pair stands among the candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TargetRank {
    /// Candidates that score higher.
    pub above: u32,
    /// Candidates that score the same.
    pub equal: u32,
}

impl TargetRank {
    /// The rank from 1, with ties averaged.
    pub fn rank(self) -> f64 {
        1.0 + f64::from(self.above) + f64::from(self.equal) / 2.0
    }
}

/// Sources whose known targets a task sorts.
const ROWS_OF_TASK: usize = 1 << 12;
/// Sources whose scores a thread computes while a panel of targets is in the first-level cache.
const GROUP: usize = 128;
/// Sources and targets of a tile, whose scores stay in registers.
const ROWS: usize = 8;
const LANES: usize = 32;
/// Known targets whose scores are computed together.
const FEW: usize = 8;

/// The rank of each pair's target among the `candidates`, by the scores of `embeddings`, `[nodes, dim]`, with the pair's source: all of
/// them but the target and the known targets of the source; the source itself is one, unless it is known.
///
/// Scores are compared exactly as they are computed: that of a pair is the same number wherever it stands. A target whose score is
/// NaN is behind all candidates, and a candidate's NaN is above no target.
///
/// Tiles of scores are counted in registers and never stored. Where a sample says that it takes less time, dot products of 16 or 8 bits
/// with a bound of their error decide most scores, and f32 the others: the ranks are the same to the last bit. Nodes are taken in chunks,
/// whose packed embeddings take up to `memory` bytes, and at least 32 rows; besides, `1536 · dim` floats and 350 kB per thread, 8 bytes
/// per pair, and `24 · dim²` bytes for embeddings of up to 512 elements are used.
///
/// # Panics
///
/// When embeddings are no rows of `dim`, the values of a relation are not `dim`, a node has no embedding, or a target is no candidate.
///
/// # Complexity
///
/// O(pairs · nodes · dim) operations on the threads of the current rayon pool.
pub fn rank_of_targets(
    embeddings: &[f32],
    dim: usize,
    pairs: &[[u32; 2]],
    score: PairScore<'_>,
    candidates: &Candidates<'_>,
    memory: usize,
) -> Vec<TargetRank> {
    rank_at(SimdLevel::current(), bounded::choose, embeddings, dim, pairs, score, candidates, memory)
}

/// `choose` says by what scores are bounded, if at all: it changes no rank.
#[expect(clippy::too_many_arguments, reason = "those of `rank_of_targets`, and what tests choose")]
fn rank_at(
    level: SimdLevel,
    choose: impl FnOnce(SimdLevel, Rows<'_>, &[[u32; 2]], PairScore<'_>, Range<usize>) -> Option<Bounds>,
    embeddings: &[f32],
    dim: usize,
    pairs: &[[u32; 2]],
    score: PairScore<'_>,
    candidates: &Candidates<'_>,
    memory: usize,
) -> Vec<TargetRank> {
    assert!(dim > 0 && embeddings.len().is_multiple_of(dim), "{} values are no rows of {dim}", embeddings.len());
    let [start, end] = [candidates.nodes.start, candidates.nodes.end].map(|node| node as usize);
    assert!(start <= end && end * dim <= embeddings.len(), "candidates {:?} without embeddings", candidates.nodes);
    let stray = pairs.iter().find(|pair| !candidates.nodes.contains(&pair[1]));
    assert!(stray.is_none(), "the target of {stray:?} is none of the candidates {:?}", candidates.nodes);
    if let PairScore::DistMult(relation) = score {
        assert_eq!(relation.len(), dim, "values of a relation");
    }
    let rows = Rows { values: embeddings, dim };
    let mut ranks = vec![TargetRank::default(); pairs.len()];
    match choose(level, rows, pairs, score, start..end) {
        Some(bounds) => bounded::count(&bounds, rows, pairs, score, start..end, memory, &mut ranks),
        None => count(level, rows, pairs, score, start..end, memory, &mut ranks),
    }
    let finish = |(pair, rank): (&[u32; 2], &mut TargetRank)| {
        leave_out(level, rows, *pair, score, (candidates.known(pair[0]), end - start), rank);
    };
    pairs.par_iter().zip(&mut ranks).with_min_len(16).for_each(finish);
    ranks
}

/// Adds the candidates of `nodes` above and equal to each pair's target.
fn count(
    level: SimdLevel,
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    score: PairScore<'_>,
    nodes: Range<usize>,
    memory: usize,
    ranks: &mut [TargetRank],
) {
    let dim = rows.dim;
    let panels_at_once = (memory / (4 * dim * LANES)).clamp(1, nodes.len().div_ceil(LANES).max(1));
    let mut panels = vec![0f32; panels_at_once * LANES * dim];
    for first in nodes.clone().step_by(panels_at_once * LANES) {
        let nodes = first..nodes.end.min(first + panels_at_once * LANES);
        let panels = &mut panels[..nodes.len().div_ceil(LANES) * LANES * dim];
        let pack = |(i, panel): (usize, &mut [f32])| rows.pack(nodes.start + i * LANES..nodes.end, panel);
        panels.par_chunks_mut(LANES * dim).enumerate().for_each(pack);
        let part = panels_of_task(panels.len() / (LANES * dim), pairs.len().div_ceil(GROUP)) * LANES * dim;
        count_tasks((pairs, GROUP), panels.chunks(part), ranks, |pairs, panels, ranks| {
            count_group(level, rows, pairs, score, panels, ranks);
        });
    }
}

/// Panels that a task counts: where there are fewer groups of sources than threads, a group's panels are divided too.
fn panels_of_task(panels: usize, groups: usize) -> usize {
    let parts = (4 * rayon::current_num_threads()).div_ceil(groups.max(1)).max(1);
    panels.div_ceil(parts).max(1)
}

/// Counts every part of the candidates for groups of `size` pairs, and adds what was counted to their ranks.
fn count_tasks<P: Copy + Sync>(
    (pairs, size): (&[[u32; 2]], usize),
    parts: impl Iterator<Item = P> + Clone,
    ranks: &mut [TargetRank],
    count: impl Fn(&[[u32; 2]], P, &mut [TargetRank]) + Sync,
) {
    let groups = 0..pairs.len().div_ceil(size);
    let tasks: Vec<(usize, P)> = groups.flat_map(|group| parts.clone().map(move |part| (group, part))).collect();
    let counted = tasks.par_iter().map(|&(group, part)| {
        let pairs = &pairs[group * size..pairs.len().min((group + 1) * size)];
        let mut ranks = vec![TargetRank::default(); pairs.len()];
        count(pairs, part, &mut ranks);
        ranks
    });
    let counted: Vec<Vec<TargetRank>> = counted.collect();
    for ((group, _), counted) in tasks.iter().zip(counted) {
        for (rank, counted) in ranks[group * size..].iter_mut().zip(counted) {
            rank.above += counted.above;
            rank.equal += counted.equal;
        }
    }
}

/// Embeddings, one row per node.
#[derive(Clone, Copy)]
struct Rows<'a> {
    values: &'a [f32],
    dim: usize,
}

impl<'a> Rows<'a> {
    fn of(self, node: u32) -> &'a [f32] {
        &self.values[node as usize * self.dim..(node as usize + 1) * self.dim]
    }

    /// Packs the first of these rows by depth; lanes without a row are NaN, which compares to nothing.
    fn pack(self, rows: Range<usize>, panel: &mut [f32]) {
        let rows = &self.values[rows.start * self.dim..rows.end * self.dim];
        for (lane, row) in rows.chunks_exact(self.dim).take(LANES).enumerate() {
            row.iter().zip(panel.chunks_exact_mut(LANES)).for_each(|(&value, lanes)| lanes[lane] = value);
        }
        let filled = rows.len() / self.dim;
        for lane in filled..LANES.max(filled) {
            panel.chunks_exact_mut(LANES).for_each(|lanes| lanes[lane] = f32::NAN);
        }
    }

    /// The left factor of the scores of a source.
    fn query(self, source: u32, score: PairScore<'_>) -> impl Iterator<Item = f32> {
        let relation = if let PairScore::DistMult(relation) = score { Some(relation) } else { None };
        self.of(source)
            .iter()
            .enumerate()
            .map(move |(k, &value)| relation.map_or(value, |relation| value * relation[k]))
    }
}

#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, sum: f32) -> f32 {
    // Without the instruction, a fused multiplication is a call.
    if FUSED { a.mul_add(b, sum) } else { a * b + sum }
}

simd_dispatch! {
    /// Adds the candidates of `panels` above and equal to each target.
    fn count_group(
        rows: Rows<'_>,
        pairs: &[[u32; 2]],
        score: PairScore<'_>,
        panels: &[f32],
        ranks: &mut [TargetRank],
    );
    avx512: count_tiles::<ROWS, LANES, true>(rows, pairs, score, panels, ranks),
    // Two vectors of eight: twelve of the sixteen registers are sums.
    avx2: count_tiles::<6, 16, true>(rows, pairs, score, panels, ranks),
    portable: count_tiles::<4, 8, false>(rows, pairs, score, panels, ranks),
}

/// Candidates above and equal to a source's own target, in each lane: sums over lanes are left to the end.
#[derive(Clone, Copy)]
struct Counts<const L: usize> {
    above: [u32; L],
    equal: [u32; L],
}

/// `R` sources and `L` targets at a time.
#[inline(always)]
fn count_tiles<const R: usize, const L: usize, const FUSED: bool>(
    rows: Rows<'_>,
    pairs: &[[u32; 2]],
    score: PairScore<'_>,
    panels: &[f32],
    ranks: &mut [TargetRank],
) {
    let dim = rows.dim;
    // Left factors of each tile, by depth, and the scores of its targets.
    let mut queries = vec![0f32; pairs.len().div_ceil(R) * R * dim];
    let mut own = vec![[f32::NAN; R]; pairs.len().div_ceil(R)];
    for (i, pair) in pairs.iter().enumerate() {
        let (tile, row) = (i / R, i % R);
        let target = rows.of(pair[1]);
        let mut sum = 0.0;
        for (k, value) in rows.query(pair[0], score).enumerate() {
            queries[tile * R * dim + k * R + row] = value;
            sum = multiply_add::<FUSED>(value, target[k], sum);
        }
        own[tile][row] = sum;
    }
    let mut counts = vec![[Counts { above: [0; L], equal: [0; L] }; R]; own.len()];
    for panel in panels.chunks_exact(LANES * dim) {
        for ((queries, own), counts) in queries.chunks_exact(R * dim).zip(&own).zip(&mut counts) {
            for from in (0..LANES).step_by(L) {
                tile::<R, L, FUSED>(queries, &panel[from..], own, counts);
            }
        }
    }
    for (rank, counts) in ranks.iter_mut().zip(counts.as_flattened()) {
        rank.above += counts.above.iter().sum::<u32>();
        rank.equal += counts.equal.iter().sum::<u32>();
    }
}

/// Counts the scores of a tile above and equal to those of the sources' own targets.
#[inline(always)]
fn tile<const R: usize, const L: usize, const FUSED: bool>(
    queries: &[f32],
    lanes: &[f32],
    own: &[f32; R],
    counts: &mut [Counts<L>; R],
) {
    let mut sums = [[0f32; L]; R];
    for (query, lanes) in queries.chunks_exact(R).zip(lanes.chunks(LANES)) {
        let query: &[f32; R] = query.try_into().expect("chunks of as many");
        let lanes: &[f32; L] = lanes[..L].try_into().expect("a panel has as many lanes");
        for (sums, &query) in sums.iter_mut().zip(query) {
            for (sum, &lane) in sums.iter_mut().zip(lanes) {
                *sum = multiply_add::<FUSED>(query, lane, *sum);
            }
        }
    }
    // Of tiles of whole AVX-512 panels the compiler would keep sums in memory for the counting.
    let sums = if L == LANES { black_box(sums) } else { sums };
    for ((sums, &own), counts) in sums.iter().zip(own).zip(counts) {
        for ((&sum, above), equal) in sums.iter().zip(&mut counts.above).zip(&mut counts.equal) {
            *above += u32::from(sum > own);
            *equal += u32::from(sum == own);
        }
    }
}

simd_dispatch! {
    /// Takes the target and the known targets of its source out of the counts of a pair.
    /// Known targets are those among as many candidates.
    fn leave_out(rows: Rows<'_>, pair: [u32; 2], score: PairScore<'_>, known: (&[u32], usize), rank: &mut TargetRank);
    avx512: leave_out_few::<true>(rows, pair, score, known, rank),
    avx2: leave_out_few::<true>(rows, pair, score, known, rank),
    portable: leave_out_few::<false>(rows, pair, score, known, rank),
}

#[inline(always)]
fn leave_out_few<const FUSED: bool>(
    rows: Rows<'_>,
    [source, target]: [u32; 2],
    score: PairScore<'_>,
    (known, num_candidates): (&[u32], usize),
    rank: &mut TargetRank,
) {
    let query: Vec<f32> = rows.query(source, score).collect();
    // Chains of sums that do not wait for each other.
    let scores = |few: &[u32]| {
        let targets: [&[f32]; FEW] = std::array::from_fn(|i| rows.of(few.get(i).copied().unwrap_or(target)));
        let mut sums = [0f32; FEW];
        for (k, &value) in query.iter().enumerate() {
            for (sum, target) in sums.iter_mut().zip(targets) {
                *sum = multiply_add::<FUSED>(value, target[k], *sum);
            }
        }
        sums
    };
    let own = scores(&[target])[0];
    if own.is_nan() {
        let others = known.iter().filter(|&&known| known != target).count();
        *rank = TargetRank { above: (num_candidates - 1 - others) as u32, equal: 0 };
        return;
    }
    rank.equal -= 1;
    for few in known.chunks(FEW) {
        for (&known, sum) in few.iter().zip(scores(few)) {
            if known != target {
                rank.above -= u32::from(sum > own);
                rank.equal -= u32::from(sum == own);
            }
        }
    }
}

#[cfg(test)]
mod tests;
