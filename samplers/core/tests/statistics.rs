//! Inclusion probabilities of the picks, by chi-square tests over fixed seeds at p = 1e-3.

use morphgl_registry::BatchId;
use morphgl_sampler_core::{PickScratch, Row, Stream, bounded, pick_uniform, pick_weighted};

/// Picks `k` of `d` positions for one node.
type Pick<'a> = &'a mut dyn FnMut(&Row, u32, &mut [u32]);

/// Picks of nodes 0, 1, 2, …, each with random numbers of its own.
fn repeat(trials: u32, d: u32, k: usize, pick: Pick<'_>, mut each: impl FnMut(&[u32])) {
    let mut out = vec![0; k];
    for node in 0..trials {
        let row = Row { seed: 20_260, batch: BatchId { epoch: 1, index: 2 }, hop: 1, node, edge_type: 0 };
        pick(&row, d, &mut out);
        each(&out);
    }
}

/// The value a chi-square variable of so many degrees of freedom exceeds with probability 1e-3.
fn critical(freedom: f64) -> f64 {
    const TABLE: [(f64, f64); 9] = [
        (5.0, 20.515),
        (6.0, 22.458),
        (7.0, 24.322),
        (9.0, 27.877),
        (20.0, 45.315),
        (27.0, 55.476),
        (251.0, 325.970),
        (399.0, 492.022),
        (999.0, 1142.848),
    ];
    let row = TABLE.iter().find(|row| row.0 == freedom);
    row.expect("the table has the degrees of freedom that the tests use").1
}

/// The statistic of how often each position was picked, chi-square with `d - 1` degrees of freedom when every subset of
/// `k` is equally likely.
///
/// Within one pick the indicators X_1 … X_d depend on one another: they sum to k. With p = k/d, var X_a = p (1 - p), and
/// cov(X_a, X_b) = k (k - 1) / (d (d - 1)) - p^2 = -p (1 - p) / (d - 1). So the covariance matrix of one pick is
/// p (1 - p) d / (d - 1) times (I - J/d), J being all ones: a projection of rank d - 1, scaled.
/// The counts N_a of n picks, less their mean n p, have n times that, so by the central limit theorem
/// sum over a of (N_a - n p)^2 / (n p (1 - p) d / (d - 1)) tends to chi-square with d - 1 degrees of freedom.
fn inclusion_statistic(trials: u32, d: u32, k: usize, pick: Pick<'_>) -> f64 {
    let mut counts = vec![0.0; d as usize];
    repeat(trials, d, k, pick, |picks| picks.iter().for_each(|&p| counts[p as usize] += 1.0));
    let (n, d, k) = (f64::from(trials), f64::from(d), k as f64);
    let (mean, variance) = (n * k / d, n * (k / d) * (1.0 - k / d) * d / (d - 1.0));
    counts.iter().map(|c: &f64| (c - mean) * (c - mean) / variance).sum()
}

/// The plain chi-square statistic over all subsets, which are disjoint outcomes, and the number of subsets.
fn subset_statistic(trials: u32, d: u32, k: usize, pick: Pick<'_>) -> (f64, f64) {
    let subsets: Vec<u32> = (0u32..1 << d).filter(|s| s.count_ones() == k as u32).collect();
    let mut counts = vec![0.0; 1 << d];
    repeat(trials, d, k, pick, |picks| counts[picks.iter().map(|p| 1usize << p).sum::<usize>()] += 1.0);
    let expected = f64::from(trials) / subsets.len() as f64;
    let deviation = |&s: &u32| (counts[s as usize] - expected) * (counts[s as usize] - expected) / expected;
    (subsets.iter().map(deviation).sum(), subsets.len() as f64)
}

fn ours(row: &Row, degree: u32, out: &mut [u32]) {
    pick_uniform(row, degree, out, &mut PickScratch::default());
}

/// The published mistake: Floyd's method with the draw over `{0..j-1}` instead of `{0..=j}`.
fn biased(row: &Row, degree: u32, out: &mut [u32]) {
    for i in 0..out.len() {
        let j = degree - out.len() as u32 + i as u32;
        let word = row.block(Stream::Sampling, i as u32 / 4)[i % 4];
        let drawn = bounded(j, word, |r| row.block(Stream::SamplingRetry, r / 4)[r as usize % 4]);
        out[i] = if out[..i].contains(&drawn) { j } else { drawn };
    }
    out.sort_unstable();
}

const CASES: [(u32, usize, u32); 5] =
    [(6, 5, 60_000), (7, 5, 60_000), (10, 5, 60_000), (8, 2, 60_000), (1000, 15, 600_000)];

#[test]
fn every_neighbour_is_equally_likely() {
    for (d, k, trials) in CASES {
        let statistic = inclusion_statistic(trials, d, k, &mut ours);
        let critical = critical(f64::from(d) - 1.0);
        assert!(statistic < critical, "({d},{k}): chi-square {statistic:.1}, critical {critical:.1}");
    }
}

#[test]
fn every_subset_is_equally_likely() {
    for (d, k, trials) in CASES.into_iter().filter(|case| case.0 <= 10) {
        let (statistic, subsets) = subset_statistic(trials, d, k, &mut ours);
        let critical = critical(subsets - 1.0);
        assert!(statistic < critical, "({d},{k}): chi-square {statistic:.1}, critical {critical:.1}");
    }
}

#[test]
fn the_tests_reject_a_draw_over_one_number_less() {
    for (d, k, trials) in CASES {
        let statistic = inclusion_statistic(trials, d, k, &mut biased);
        let critical = critical(f64::from(d) - 1.0);
        assert!(statistic > critical, "({d},{k}): chi-square {statistic:.1}, critical {critical:.1}");
    }
    let (statistic, subsets) = subset_statistic(60_000, 6, 5, &mut biased);
    assert!(statistic > critical(subsets - 1.0), "(6,5): chi-square {statistic:.1}");
}

#[test]
fn the_biased_draw_has_the_published_probabilities() {
    let mut counts = [0u32; 6];
    repeat(10_000, 6, 5, &mut biased, |picks| picks.iter().for_each(|&p| counts[p as usize] += 1));
    assert_eq!(counts.iter().filter(|&&c| c == 10_000).count(), 1, "one neighbour is never left out: {counts:?}");
}

#[test]
fn large_picks_are_uniform_too() {
    // 100 picks are kept in the bitmap, not in the sorted list.
    let statistic = inclusion_statistic(4000, 400, 100, &mut ours);
    assert!(statistic < critical(399.0), "chi-square {statistic:.1}");
}

/// Probability of the pair {a, b} when drawn one after another: w_a/W · w_b/(W - w_a) + w_b/W · w_a/(W - w_b).
#[test]
fn weighted_pairs_have_their_exact_probabilities() {
    let weights = [1.0f32, 2.0, 0.0, 0.5, 4.0, 1.0];
    let (total, trials) = (8.5, 60_000);
    let mut counts = [[0.0; 6]; 6];
    let mut pick = |row: &Row, _: u32, out: &mut [u32]| {
        pick_weighted(row, &weights, out, &mut PickScratch::default());
    };
    repeat(trials, 6, 2, &mut pick, |picks| counts[picks[0] as usize][picks[1] as usize] += 1.0);
    let (mut statistic, mut pairs) = (0.0, 0.0);
    for a in 0..6 {
        for b in a + 1..6 {
            let (w, v) = (f64::from(weights[a]), f64::from(weights[b]));
            let expected = f64::from(trials) * (w / total * v / (total - w) + v / total * w / (total - v));
            if expected == 0.0 {
                assert_eq!(counts[a][b], 0.0, "an edge of weight 0 was picked");
            } else {
                statistic += (counts[a][b] - expected) * (counts[a][b] - expected) / expected;
                pairs += 1.0;
            }
        }
    }
    assert_eq!(pairs, 10.0);
    assert!(statistic < critical(9.0), "chi-square {statistic:.1}");
}
