use std::ops::Range;

use morphgl_platform::{SimdLevel, splitmix64};
use proptest::prelude::*;

use super::*;
use crate::all_pairs::{Candidates, KnownPairs, rank_at};

/// Ranks without bounds, and by each kernel of the level.
#[track_caller]
fn check(
    rows: &[f32],
    dim: usize,
    pairs: &[[u32; 2]],
    score: PairScore<'_>,
    candidates: &Candidates<'_>,
    memory: usize,
) {
    for level in SimdLevel::available() {
        let expected = rank_at(level, |_, _, _, _, _| None, rows, dim, pairs, score, candidates, memory);
        for kernel in Kernel::available(level) {
            let found = rank_at(level, |_, _, _, _, _| Some(kernel), rows, dim, pairs, score, candidates, memory);
            assert_eq!(found, expected, "{level}, {kernel:?}");
        }
        assert_eq!(rank_at(level, choose, rows, dim, pairs, score, candidates, memory), expected, "{level}, chosen");
    }
}

/// From 0 to 1.
fn fraction(seed: u64, i: u64) -> f32 {
    (splitmix64(splitmix64(seed).wrapping_add(i)) >> 40) as f32 / (1 << 24) as f32
}

/// Numbers like those of a normal distribution: sums of twelve.
fn normal(seed: u64, i: u64) -> f32 {
    (0..12).map(|j| fraction(seed, 12 * i + j)).sum::<f32>() - 6.0
}

/// What rows are like.
#[derive(Debug, Clone, Copy)]
enum Like {
    Normal,
    /// Around some centres, as trained embeddings are; norms differ.
    Clustered,
    /// Small whole numbers: many scores are equal.
    Whole,
    /// Some rows are those of others, or zero.
    Repeated,
    /// A few elements are much larger than the others.
    Outliers,
    /// Rows of very different magnitude.
    Magnitudes,
    /// Some elements are infinite or NaN, some rows overflow or underflow.
    Broken,
}

fn row(like: Like, seed: u64, node: u64, dim: usize) -> Vec<f32> {
    let at = |k: usize| node * dim as u64 + k as u64;
    let kind = splitmix64(seed ^ (node << 20));
    let own = |k: usize| normal(seed, at(k));
    match like {
        Like::Normal => (0..dim).map(own).collect(),
        Like::Clustered => {
            let (centre, length) = (kind % 5, 0.05 + 3.0 * fraction(seed + 3, node));
            (0..dim).map(|k| length * (normal(seed + 1, centre * dim as u64 + k as u64) + 0.2 * own(k))).collect()
        }
        Like::Whole => (0..dim).map(|k| (own(k)).round()).collect(),
        Like::Repeated if kind.is_multiple_of(4) => vec![0.0; dim],
        Like::Repeated => (0..dim).map(|k| normal(seed, kind % 7 * dim as u64 + k as u64)).collect(),
        Like::Outliers => (0..dim).map(|k| own(k) * if k % 11 == 3 { 100.0 } else { 1.0 }).collect(),
        Like::Magnitudes => {
            let power = 10f32.powi((kind % 37) as i32 - 18);
            (0..dim).map(|k| own(k) * power).collect()
        }
        Like::Broken => {
            let large = [f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-42, 1e30, -1e19, f32::MIN_POSITIVE];
            let mut row: Vec<f32> = (0..dim).map(own).collect();
            if kind.is_multiple_of(3) {
                row[(kind >> 8) as usize % dim] = large[(kind >> 32) as usize % large.len()];
            } else if kind % 3 == 1 {
                let of_row = large[(kind >> 32) as usize % large.len()];
                row.iter_mut().for_each(|x| *x *= of_row);
            }
            row
        }
    }
}

fn likes() -> impl Strategy<Value = Like> {
    use Like::*;
    prop_oneof![
        Just(Normal),
        Just(Clustered),
        Just(Whole),
        Just(Repeated),
        Just(Outliers),
        Just(Magnitudes),
        Just(Broken)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn ranks_are_those_without_bounds(
        like in likes(),
        dim in prop_oneof![1usize..70, 70usize..301],
        num_nodes in 1usize..200,
        num_pairs in 0usize..40,
        seed in any::<u64>(),
        memory in prop_oneof![Just(0usize), Just(1 << 14), Just(1 << 24)],
        distmult in any::<bool>(),
        filtered in any::<bool>(),
        from in 0.0..0.9f64,
    ) {
        let seed = seed >> 8;
        let rows: Vec<f32> = (0..num_nodes as u64).flat_map(|node| row(like, seed, node, dim)).collect();
        let first = (from * num_nodes as f64) as usize;
        let node = |i: usize, Range { start, end }: Range<usize>| {
            (start as u64 + splitmix64(seed.wrapping_add(i as u64)) % (end - start) as u64) as u32
        };
        let pair = |i: usize| [node(2 * i, 0..num_nodes), node(2 * i + 1, first..num_nodes)];
        let pairs: Vec<[u32; 2]> = (0..num_pairs).map(pair).collect();
        let others: Vec<[u32; 2]> = (1000..1000 + 2 * num_nodes).map(pair).collect();
        let known = KnownPairs::new(num_nodes, &[&others]);
        let candidates = Candidates { nodes: first as u32..num_nodes as u32, known: filtered.then_some(&known) };
        let relation = row(like, seed + 9, 1 << 30, dim);
        let score = if distmult { PairScore::DistMult(&relation) } else { PairScore::Dot };
        check(&rows, dim, &pairs, score, &candidates, memory);
    }

    /// Codes and norms of rows are what the bounds are derived from.
    #[test]
    fn what_rounding_takes_is_bounded(like in likes(), dim in 1usize..301, seed in any::<u64>(), query in any::<bool>()) {
        let quads = dim.div_ceil(QUAD);
        let row = row(like, seed >> 8, 5, dim);
        for kernel in [Kernel::Avx2, Kernel::AvxVnni, Kernel::Vnni] {
            let limits = if query { kernel.query_limits(quads) } else { kernel.candidate_limits(quads) };
            let mut codes = vec![0i8; dim.next_multiple_of(PART)];
            let Scaled { scale, norm, residual } = quantise(&row, limits, &mut codes);
            if row.iter().any(|x| !x.is_finite() || x.abs() > MAX_ELEMENT) {
                prop_assert!(norm == f32::INFINITY && residual == f32::INFINITY);
                continue;
            }
            let scaled = row.iter().map(|&x| f64::from(x) * f64::from(scale));
            let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
            prop_assert!(squares(&mut scaled.clone()) < f64::from(norm));
            let rest = &mut scaled.zip(&codes).map(|(x, &code)| x - f64::from(code));
            prop_assert!(squares(rest) < f64::from(residual));
            prop_assert!(codes.iter().all(|code| f32::from(code.unsigned_abs()) <= limits.code));
            if let Some((block, largest)) = limits.block {
                prop_assert!(block <= 8);
                for block in codes[..quads * QUAD].chunks(QUAD * block) {
                    for half in 0..2 {
                        let lane = block.chunks(QUAD).flat_map(|quad| &quad[2 * half..2 * half + 2]);
                        let square: i32 = lane.map(|&code| i32::from(code).pow(2)).sum();
                        prop_assert!(f64::from(square).sqrt() <= f64::from(largest) + 2.0);
                    }
                }
            }
        }
    }
}

/// More pairs than a group has, more candidates than are packed at a time, and enough of both for bounds to be chosen.
#[test]
fn ranks_of_many_pairs_are_those_without_bounds() {
    let (num_nodes, dim) = (MIN_CANDIDATES + 77, 40);
    for like in [Like::Normal, Like::Clustered, Like::Repeated] {
        let rows: Vec<f32> = (0..num_nodes as u64).flat_map(|node| row(like, 3, node, dim)).collect();
        let node = |i: usize| (splitmix64(i as u64) % num_nodes as u64) as u32;
        let pairs: Vec<[u32; 2]> = (0..GROUP + 33).map(|i| [node(2 * i), node(2 * i + 1)]).collect();
        let candidates = Candidates { nodes: 0..num_nodes as u32, known: None };
        check(&rows, dim, &pairs, PairScore::Dot, &candidates, 1 << 18);
    }
}

/// Bounds are chosen where targets are among the best, and not where all scores are equal.
#[test]
fn bounds_are_chosen_where_few_scores_are_open() {
    let (num_nodes, dim, level) = (MIN_CANDIDATES, 64, SimdLevel::current());
    let chosen = |values: &[f32]| {
        let pairs: Vec<[u32; 2]> = (0..MIN_PAIRS as u32).map(|node| [node, node]).collect();
        choose(level, Rows { values, dim }, &pairs, PairScore::Dot, 0..num_nodes)
    };
    let normal: Vec<f32> = (0..(num_nodes * dim) as u64).map(|i| normal(1, i)).collect();
    assert_eq!(chosen(&normal), Kernel::available(level).last());
    assert_eq!(chosen(&vec![0.0; num_nodes * dim]), None);
}
