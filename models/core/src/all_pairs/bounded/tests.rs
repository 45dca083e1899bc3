use std::ops::Range;

use morphgl_platform::{SimdLevel, splitmix64};
use proptest::prelude::*;

use super::*;
use crate::all_pairs::{Candidates, KnownPairs, rank_at};

/// Bases of some of the directions of rows, where they have enough dimensions.
fn bases(values: &[f32], dim: usize) -> Vec<Basis> {
    let gram = basis::gram(Rows { values, dim }, 0..values.len() / dim);
    let directions = basis::principal(&gram, dim);
    let kept = [dim / 4, dim / 2, dim].map(|kept| kept / 4 * 4);
    kept.into_iter().filter(|&kept| kept > 0).map(|kept| Basis::new(&directions, dim, kept)).collect()
}

/// Ranks without bounds, and by each kernel of the level, of the rows and of their projections.
#[track_caller]
fn check(
    rows: &[f32],
    dim: usize,
    pairs: &[[u32; 2]],
    score: PairScore<'_>,
    candidates: &Candidates<'_>,
    memory: usize,
) {
    // Directions of wide rows take long to find.
    let some = if dim < 100 { bases(rows, dim) } else { Vec::new() };
    let bases: Vec<Option<Basis>> = [None].into_iter().chain(some.into_iter().map(Some)).collect();
    for level in SimdLevel::available() {
        let expected = rank_at(level, |_, _, _, _, _| None, rows, dim, pairs, score, candidates, memory);
        for kernel in Kernel::available(level) {
            for basis in &bases {
                let kept = basis.as_ref().map(Basis::kept);
                let bounds = Bounds { kernel, basis: basis.clone() };
                let found = rank_at(level, |_, _, _, _, _| Some(bounds), rows, dim, pairs, score, candidates, memory);
                assert_eq!(found, expected, "{level}, {kernel:?}, {kept:?} directions of {dim}");
            }
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
    /// In a few directions, and a little of everything.
    Few,
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
        Like::Few => {
            let of = |i: usize, k: usize| normal(seed + 1, (i * dim + k) as u64);
            (0..dim).map(|k| (0..5).map(|i| own(i % dim) * of(i, k)).sum::<f32>() + 0.01 * own(k)).collect()
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
        Just(Few),
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
    fn what_rounding_takes_is_bounded(like in likes(), dim in 1usize..101, seed in any::<u64>(), within in any::<bool>()) {
        let row = row(like, seed >> 8, 5, dim);
        let basis = within.then(|| bases(&row, dim).into_iter().next()).flatten();
        // Rows of one scale: the row, and shorter ones.
        let rows: Vec<Vec<f32>> = [1.0, 0.3, 1e-3].iter().map(|&factor| row.iter().map(|x| x * factor).collect()).collect();
        for width in [CodeWidth::Byte(63), CodeWidth::Byte(127), CodeWidth::Word] {
        let mut quantiser = Quantiser::new(basis.as_ref(), width, dim);
        let Scaled { scale, norm, residual, outside } = quantiser.quantise(rows.iter().map(|row| &row[..]));
        if row.iter().any(|x| !x.is_finite() || x.abs() > MAX_ELEMENT) {
            prop_assert!(norm == f32::INFINITY && residual == f32::INFINITY);
            return Ok(());
        }
        for (row, codes) in rows.iter().zip(quantiser.codes()) {
            let length = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>().sqrt();
            let scaled: Vec<f64> = row.iter().map(|&x| f64::from(x) * f64::from(scale)).collect();
            prop_assert!(length(&scaled) < f64::from(norm));
            let (coded, beyond) = match &basis {
                Some(basis) => basis.split(&scaled),
                None => (scaled, 0.0),
            };
            prop_assert!(beyond <= f64::from(outside));
            let rest: Vec<f64> = coded.iter().zip(codes).map(|(x, &code)| x - f64::from(code)).collect();
            prop_assert!(length(&rest) < f64::from(residual) + basis.as_ref().map_or(0.0, |b| f64::from(b.error() * norm)));
            prop_assert!(codes[coded.len()..].iter().all(|&code| code == 0));
            let square: i64 = codes.iter().map(|&code| i64::from(code).pow(2)).sum();
            prop_assert!((square as f32) < width.max_product(coded.len()));
            if let CodeWidth::Byte(largest) = width {
                prop_assert!(codes.iter().all(|code| code.abs() <= i16::from(largest)));
            }
        }
        }
    }

    /// The product of projections is within the basis's error of the product within its directions, and what is outside of them is known.
    #[test]
    fn what_projecting_takes_is_bounded(like in likes(), dim in 4usize..64, seed in any::<u64>()) {
        let seed = seed >> 8;
        let rows: Vec<f32> = (0..9).flat_map(|node| row(like, seed, node, dim)).collect();
        for basis in bases(&rows, dim) {
            let pairs = rows.chunks_exact(dim).zip(rows[dim..].chunks_exact(dim));
            for (a, b) in pairs.filter(|(a, b)| a.iter().chain(*b).all(|x| x.abs() < 1e18)) {
                let [of_a, of_b] = [a, b].map(|row| {
                    let mut projected = vec![0.0; basis.kept()];
                    basis.project(row, &mut projected);
                    let exact: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
                    (projected.into_iter().map(f64::from).collect::<Vec<_>>(), exact)
                });
                let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                let length = |row: &[f64]| product(row, row).sqrt();
                let outside = basis.split(&of_a.1).1 * basis.split(&of_b.1).1;
                let lengths = length(&of_a.1) * length(&of_b.1);
                let difference = product(&of_a.0, &of_b.0) - product(&of_a.1, &of_b.1);
                prop_assert!(difference.abs() <= outside + f64::from(basis.error()) * lengths + 1e-30);
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
        choose(level, Rows { values, dim }, &pairs, PairScore::Dot, 0..num_nodes).map(|bounds| bounds.kernel)
    };
    let normal: Vec<f32> = (0..(num_nodes * dim) as u64).map(|i| normal(1, i)).collect();
    let kernels = Kernel::fastest(level);
    assert_eq!(chosen(&normal).is_some(), !kernels.is_empty());
    assert!(chosen(&normal).is_none_or(|kernel| kernels.contains(&kernel)));
    assert_eq!(chosen(&vec![0.0; num_nodes * dim]), None);
}

/// A basis is found where rows are in few directions, of as many as are needed.
#[test]
fn few_directions_are_found() {
    let (num_nodes, dim) = (MIN_CANDIDATES, 48);
    let values: Vec<f32> = (0..num_nodes as u64).flat_map(|node| row(Like::Few, 7, node, dim)).collect();
    let of = |values: &[f32], pairs: usize| Basis::of(Rows { values, dim }, 0..num_nodes, pairs);
    assert_eq!(of(&values, 1 << 20).map(|basis| basis.kept()), Some(8));
    assert!(of(&values, 64).is_none(), "of few scores");
    let normal: Vec<f32> = (0..(num_nodes * dim) as u64).map(|i| normal(1, i)).collect();
    assert!(of(&normal, 1 << 20).is_none(), "of all directions");
    assert!(of(&vec![0.0; num_nodes * dim], 1 << 20).is_none(), "of none");
    let basis = of(&values, 1 << 20).expect("as above");
    let mean = |part: fn(&Basis, &[f64]) -> f64| {
        let rows = values.chunks_exact(dim).map(|row| row.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>());
        rows.map(|row| part(&basis, &row)).sum::<f64>()
    };
    let outside = mean(|basis, row| basis.split(row).1.powi(2)) / mean(|_, row| row.iter().map(|x| x * x).sum());
    assert!(outside < 2e-3, "{outside} of the squares");
}
