//! Scores of a ranking of nodes by the probability of a class.

/// Sorts by falling probability, and returns what every run of equal probabilities adds: nodes of the class, and others.
fn runs(ranked: &mut [(f64, bool)]) -> impl Iterator<Item = (u64, u64)> {
    ranked.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    ranked.chunk_by(|a, b| a.0 == b.0).map(|run| {
        let of_class = run.iter().filter(|(_, of_class)| *of_class).count() as u64;
        (of_class, run.len() as u64 - of_class)
    })
}

/// The area under the ROC curve: the probability that a node of the class is before one of another, with equal ones counted half;
/// `None` without nodes of both kinds.
pub(crate) fn roc_auc(ranked: &mut [(f64, bool)]) -> Option<f64> {
    let (mut before, mut others, mut pairs) = (0u64, 0u64, 0.0);
    for (of_class, of_others) in runs(ranked) {
        pairs += of_others as f64 * (before as f64 + of_class as f64 / 2.0);
        (before, others) = (before + of_class, others + of_others);
    }
    (before > 0 && others > 0).then(|| pairs / (before as f64 * others as f64))
}

/// The sum of precision times the increase of recall over all thresholds; `None` without a node of the class.
pub(crate) fn average_precision(ranked: &mut [(f64, bool)]) -> Option<f64> {
    let (mut before, mut all, mut sum) = (0u64, 0u64, 0.0);
    for (of_class, of_others) in runs(ranked) {
        (before, all) = (before + of_class, all + of_class + of_others);
        sum += of_class as f64 * (before as f64 / all as f64);
    }
    (before > 0).then(|| sum / before as f64)
}
