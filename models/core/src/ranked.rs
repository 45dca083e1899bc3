//! Scores of pairs that exist against pairs that do not: how well a model predicts links.

use std::fmt;
use std::str::FromStr;

use morphgl_registry::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::all_pairs::TargetRank;
use crate::score::{average_precision, roc_auc};
use crate::submission::unknown;

/// A score of link prediction; the highest is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum RankingScore {
    /// Mean reciprocal rank: `mrr`.
    #[default]
    Mrr,
    /// Fraction of the pairs among the first K: `hits@K`.
    Hits(u32),
    /// Area under the ROC curve of all pairs (scikit-learn's `roc_auc_score`): `roc-auc`. Equal scores count half.
    RocAuc,
    /// Average precision of all pairs (scikit-learn's `average_precision_score`): `average-precision`.
    AveragePrecision,
    /// Mean reciprocal rank among all nodes but the known partners of a pair's source (the "filtered" setting of Bordes et al., NIPS
    /// 2013): `filtered-mrr`.
    FilteredMrr,
    /// Fraction of the pairs among the first K of all nodes but the known partners: `filtered-hits@K`.
    FilteredHits(u32),
}

impl RankingScore {
    /// The scores that have a K.
    pub(crate) const FAMILIES: [&str; 2] = ["hits@K", "filtered-hits@K"];

    /// Whether targets are ranked among all nodes ([`Ranked::among_all`]), not against negatives.
    pub fn is_filtered(self) -> bool {
        matches!(self, Self::FilteredMrr | Self::FilteredHits(_))
    }

    /// The value; NaN where it is not defined, as without a pair.
    ///
    /// # Complexity
    ///
    /// O(scores) time, with the logarithm of negatives where all pairs share them, and for area and average precision, which take
    /// 16 bytes of memory per score.
    pub fn value(self, ranked: &Ranked<'_>) -> f64 {
        match self {
            Self::Mrr | Self::FilteredMrr => mean_reciprocal_rank(ranked.ranks()),
            Self::Hits(k) | Self::FilteredHits(k) => ranked.hits(k),
            Self::RocAuc => roc_auc(&mut ranked.all()).unwrap_or(f64::NAN),
            Self::AveragePrecision => average_precision(&mut ranked.all()).unwrap_or(f64::NAN),
        }
    }
}

impl fmt::Display for RankingScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mrr => f.pad("mrr"),
            Self::Hits(k) => f.pad(&format!("hits@{k}")),
            Self::RocAuc => f.pad("roc-auc"),
            Self::AveragePrecision => f.pad("average-precision"),
            Self::FilteredMrr => f.pad("filtered-mrr"),
            Self::FilteredHits(k) => f.pad(&format!("filtered-hits@{k}")),
        }
    }
}

impl FromStr for RankingScore {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let hits = |prefix: &str| s.strip_prefix(prefix).and_then(|k| k.parse().ok()).filter(|&k| k > 0);
        let own = [Self::Mrr, Self::RocAuc, Self::AveragePrecision, Self::FilteredMrr];
        let found = own.into_iter().find(|score| score.to_string() == s);
        let found = found.or_else(|| hits("hits@").map(Self::Hits));
        found.or_else(|| hits("filtered-hits@").map(Self::FilteredHits)).ok_or_else(|| {
            let names = own.map(|score| score.to_string()).into_iter().chain(Self::FAMILIES.map(String::from));
            unknown(s, "score of pairs", names)
        })
    }
}

impl From<RankingScore> for String {
    fn from(score: RankingScore) -> Self {
        score.to_string()
    }
}

impl TryFrom<String> for RankingScore {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

/// Scores of pairs that exist, and of those that do not, which they are ranked against. A score that is NaN is below all others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked<'a> {
    positives: &'a [f32],
    negatives: &'a [f32],
    /// Number of negatives of each pair; `None` where all pairs share them.
    per_pair: Option<usize>,
    /// The ranks, where they were counted.
    counted: Option<&'a [TargetRank]>,
}

impl<'a> Ranked<'a> {
    /// Each pair against negatives of its own, as many for each, those of a pair one after another (OGB's MRR of ogbl-citation2).
    ///
    /// # Panics
    ///
    /// When the negatives are no multiple of the pairs.
    pub fn per_pair(positives: &'a [f32], negatives: &'a [f32]) -> Self {
        let count = negatives.len() / positives.len().max(1);
        assert_eq!(count * positives.len(), negatives.len(), "as many negatives for each of {} pairs", positives.len());
        Self { positives, negatives, per_pair: Some(count), counted: None }
    }

    /// All pairs against one list of negatives (OGB's Hits@K of ogbl-collab and ogbl-ppa).
    pub fn shared(positives: &'a [f32], negatives: &'a [f32]) -> Self {
        Self { positives, negatives, per_pair: None, counted: None }
    }

    /// Each pair among all nodes, by ranks that were counted ([`Decoder::ranks`](crate::Decoder::ranks)). Areas are not defined: no pair that
    /// does not exist has a score.
    pub fn among_all(ranks: &'a [TargetRank]) -> Self {
        Self { positives: &[], negatives: &[], per_pair: Some(0), counted: Some(ranks) }
    }

    /// The rank of each pair among its negatives, from 1: the mean of the optimistic rank, behind the negatives that score higher,
    /// and of the pessimistic one, behind those that score equal too, as OGB's evaluator averages ties.
    pub fn ranks(&self) -> Vec<f64> {
        self.counts().into_iter().map(|[above, equal]| 1.0 + above as f64 + equal as f64 / 2.0).collect()
    }

    /// Fraction of the pairs among the first `k`, as OGB's evaluator defines it: of negatives per pair, pairs of a rank of at most
    /// `k`; of shared ones, pairs that score higher than the `k`-th highest negative, and all where there are fewer. NaN
    /// without pairs.
    pub fn hits(&self, k: u32) -> f64 {
        let k = u64::from(k);
        let hit = |&[above, equal]: &[u64; 2]| match self.per_pair {
            Some(_) => 2 * above + equal <= 2 * (k - 1),
            None => above + equal < k,
        };
        let counts = self.counts();
        counts.iter().filter(|counts| k > 0 && hit(counts)).count() as f64 / counts.len() as f64
    }

    /// Numbers of negatives above and equal to each pair.
    fn counts(&self) -> Vec<[u64; 2]> {
        if let Some(ranks) = self.counted {
            return ranks.iter().map(|rank| [rank.above.into(), rank.equal.into()]).collect();
        }
        match self.per_pair {
            Some(count) => {
                let negatives = |i: usize| &self.negatives[i * count..(i + 1) * count];
                let count = |(i, &positive): (usize, &f32)| {
                    let positive = ordered(positive);
                    negatives(i).iter().fold([0, 0], |[above, equal], &negative| {
                        let negative = ordered(negative);
                        [above + u64::from(negative > positive), equal + u64::from(negative == positive)]
                    })
                };
                self.positives.iter().enumerate().map(count).collect()
            }
            None => {
                let mut negatives: Vec<f32> = self.negatives.iter().copied().map(ordered).collect();
                negatives.sort_unstable_by(|a, b| b.total_cmp(a));
                let count = |&positive: &f32| {
                    let positive = ordered(positive);
                    let above = negatives.partition_point(|&negative| negative > positive);
                    let equal = negatives[above..].partition_point(|&negative| negative == positive);
                    [above as u64, equal as u64]
                };
                self.positives.iter().map(count).collect()
            }
        }
    }

    /// All scores, and whether their pairs exist.
    fn all(&self) -> Vec<(f64, bool)> {
        let of = |scores: &'a [f32], exists| scores.iter().map(move |&score| (f64::from(ordered(score)), exists));
        of(self.positives, true).chain(of(self.negatives, false)).collect()
    }
}

/// The mean of the reciprocal ranks; NaN of none.
pub fn mean_reciprocal_rank(ranks: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = ranks.into_iter().fold((0.0, 0u64), |(sum, count), rank| (sum + rank.recip(), count + 1));
    sum / count as f64
}

/// A score with one zero, that is below all others where it is NaN.
fn ordered(score: f32) -> f32 {
    if score.is_nan() { f32::NEG_INFINITY } else { score + 0.0 }
}
