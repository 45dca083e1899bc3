//! Scores of pairs against negatives: the values of OGB's evaluator and of scikit-learn, and limits.

use morphgl_model_core::{Ranked, RankingScore, TargetRank, mean_reciprocal_rank};

/// What `scores/ranked.py` draws by.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> i64 {
        self.0 = self.0 * 48271 % 2_147_483_647;
        self.0 as i64
    }
}

/// Scores of pairs, of negatives per pair and of shared negatives of a case of `scores/ranked.py`.
fn case(index: u64) -> [Vec<f32>; 3] {
    let mut draw = Draw(index + 1);
    (0..5).for_each(|_| _ = draw.next());
    let [pairs, own, shared] = [20, 30, 40].map(|range| (draw.next() % range + 1) as usize);
    let mut value = || match index % 2 {
        0 => (draw.next() % 7 - 3) as f32,
        _ => (draw.next() % (1 << 20) - (1 << 19)) as f32 / (1 << 17) as f32,
    };
    [pairs, pairs * own, shared].map(|count| (0..count).map(|_| value()).collect())
}

#[test]
fn values_are_those_of_ogb_and_scikit_learn() {
    use RankingScore::{AveragePrecision, Hits, Mrr, RocAuc};
    let of_own = [Mrr, Hits(1), Hits(3), Hits(10)];
    let of_shared = [Hits(1), Hits(5), Hits(20), RocAuc, AveragePrecision];
    let mut cases = 0;
    for (index, row) in include_str!("scores/ranked.csv").lines().skip(1).enumerate() {
        let [positives, own, shared] = case(index as u64);
        let (own, shared) = (Ranked::per_pair(&positives, &own), Ranked::shared(&positives, &shared));
        let found = of_own.map(|score| (score, score.value(&own)));
        let found: Vec<_> = found.into_iter().chain(of_shared.map(|score| (score, score.value(&shared)))).collect();
        let expected: Vec<f64> = row.split(',').map(|value| value.parse().expect("a number")).collect();
        assert_eq!(expected.len(), found.len());
        for ((score, found), expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "case {index}, {score}: {found}, expected {expected}");
        }
        cases += 1;
    }
    assert_eq!(cases, 1000);
}

#[test]
fn ties_are_averaged_and_nan_is_last() {
    let ranked = Ranked::per_pair(&[1.0, f32::NAN], &[2.0, 1.0, 1.0, 0.0, -1.0, f32::NAN]);
    assert_eq!(ranked.ranks(), [3.0, 3.5]);
    let shared = Ranked::shared(&[1.0, f32::NAN, -0.0], &[2.0, 1.0, 0.0]);
    assert_eq!(shared.ranks(), [2.5, 4.0, 3.5]);
    assert_eq!(mean_reciprocal_rank([2.0, 4.0]), 0.375);
    assert!(mean_reciprocal_rank([]).is_nan());
    assert!(RankingScore::RocAuc.value(&Ranked::shared(&[1.0], &[])).is_nan());
    assert_eq!(RankingScore::Hits(5).value(&Ranked::shared(&[1.0], &[2.0])), 1.0, "fewer negatives than five");
}

#[test]
fn ranks_among_all_nodes_are_scored_as_counted() {
    let rank = |above, equal| TargetRank { above, equal };
    let ranks = [rank(0, 0), rank(1, 2), rank(9, 0)];
    let ranked = Ranked::among_all(&ranks);
    assert_eq!(ranked.ranks(), [1.0, 3.0, 10.0]);
    let mean = (1.0 + 1.0 / 3.0 + 0.1) / 3.0;
    assert!((RankingScore::FilteredMrr.value(&ranked) - mean).abs() < 1e-12);
    assert_eq!(RankingScore::FilteredHits(3).value(&ranked), 2.0 / 3.0);
    assert!(RankingScore::RocAuc.value(&ranked).is_nan());
    assert!(RankingScore::FilteredMrr.value(&Ranked::among_all(&[])).is_nan());
}

#[test]
fn scores_have_names() {
    for name in ["mrr", "hits@1", "hits@50", "roc-auc", "average-precision", "filtered-mrr", "filtered-hits@3"] {
        assert_eq!(name.parse::<RankingScore>().expect(name).to_string(), name);
    }
    for name in ["hits", "hits@", "hits@0", "hits@-1", "auc"] {
        let error = name.parse::<RankingScore>().expect_err(name).to_string();
        let names = "mrr, roc-auc, average-precision, filtered-mrr, hits@K, filtered-hits@K";
        assert!(error.contains(&format!("not a score of pairs; use one of {names}")), "{error}");
    }
}
