//! The scores of a model on nodes with a class each: which there are, and how each is computed.

mod ranking;

pub(crate) use ranking::{average_precision, roc_auc};

use std::fmt;
use std::str::FromStr;

use morphgl_registry::{Error, Result, Score};
use serde::{Deserialize, Serialize};

use crate::submission::{OWN_SCORES, unknown};
use crate::{Predicted, ScoreDescription};

/// A score: what early stopping and the best model go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ScoreKind {
    /// Fraction of the nodes whose class is predicted. For one class per node it is the micro-averaged F1 as well.
    #[default]
    Accuracy,
    /// Mean loss per node, of the loss that is trained. The lowest is the best.
    Loss,
    /// Mean recall of the classes that nodes have (scikit-learn's `balanced_accuracy_score`).
    BalancedAccuracy,
    /// Mean F1 of the classes that nodes have or are predicted to have (scikit-learn's `f1_score` with `average="macro"`).
    MacroF1,
    /// Area under the ROC curve: of two classes that of class 1, of more the mean of each class against all others
    /// (scikit-learn's `roc_auc_score` with `multi_class="ovr"`). Equal probabilities count half.
    RocAuc,
    /// Average precision: of two classes that of class 1, of more the mean of each class against all others (scikit-learn's
    /// `average_precision_score`).
    AveragePrecision,
    /// A score of another crate.
    Submitted(&'static ScoreDescription),
}

/// The scores of this crate, in the order of [`OWN_SCORES`].
const OWN: [ScoreKind; 6] = [
    ScoreKind::Accuracy,
    ScoreKind::Loss,
    ScoreKind::BalancedAccuracy,
    ScoreKind::MacroF1,
    ScoreKind::RocAuc,
    ScoreKind::AveragePrecision,
];

impl ScoreKind {
    /// All scores: those of this crate, then those of linked crates in the order of their names.
    pub fn all() -> Vec<Self> {
        OWN.into_iter().chain(ScoreDescription::linked().into_iter().map(ScoreKind::Submitted)).collect()
    }

    /// Whether the highest value is the best one.
    pub fn highest_is_best(self) -> bool {
        match self {
            ScoreKind::Loss => false,
            ScoreKind::Submitted(score) => score.highest_is_best,
            _ => true,
        }
    }

    /// Whether it is a function of the sums that a training operator returns for a mini-batch ([`Score`]); others need all logits.
    pub fn is_of_sums(self) -> bool {
        matches!(self, ScoreKind::Accuracy | ScoreKind::Loss)
    }

    /// Its value, of the sums over nodes and of their logits, which a score that is a function of the sums ignores; NaN where it is
    /// not defined, such as without labelled nodes, or for an area under the ROC curve where all nodes have the same class.
    ///
    /// # Complexity
    ///
    /// O(nodes · classes) time; with the logarithm of nodes, and O(nodes) memory, for areas and average precision.
    pub fn value(self, sums: &Score, predicted: &Predicted<'_>) -> f64 {
        match self {
            ScoreKind::Accuracy => sums.accuracy(),
            ScoreKind::Loss => sums.loss(),
            ScoreKind::BalancedAccuracy => mean(predicted.confusion().classes().filter_map(|c| c.recall())),
            ScoreKind::MacroF1 => mean(predicted.confusion().classes().filter_map(|c| c.f1())),
            ScoreKind::RocAuc => against_others(predicted, ranking::roc_auc),
            ScoreKind::AveragePrecision => against_others(predicted, ranking::average_precision),
            ScoreKind::Submitted(score) => (score.value)(predicted),
        }
    }

    /// A value in words: per cent for accuracy, else four digits.
    pub fn words(self, value: f64) -> String {
        match self {
            ScoreKind::Accuracy => format!("{:.2}%", 100.0 * value),
            _ => format!("{value:.4}"),
        }
    }
}

impl fmt::Display for ScoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = OWN.iter().position(|kind| kind == self);
        f.pad(match (self, own) {
            (ScoreKind::Submitted(score), _) => score.name,
            (_, own) => OWN_SCORES[own.expect("all kinds of this crate are listed")],
        })
    }
}

impl FromStr for ScoreKind {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let kinds = Self::all();
        let found = kinds.iter().find(|kind| kind.to_string() == s).copied();
        found.ok_or_else(|| unknown(s, "score", kinds.iter().map(ScoreKind::to_string)))
    }
}

impl From<ScoreKind> for String {
    fn from(kind: ScoreKind) -> Self {
        kind.to_string()
    }
}

impl TryFrom<String> for ScoreKind {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

/// A score that tells one class from all others: of two classes that of class 1; of more the mean over the classes for which it is
/// defined.
fn against_others(predicted: &Predicted<'_>, score: fn(&mut [(f64, bool)]) -> Option<f64>) -> f64 {
    let first = usize::from(predicted.num_classes() == 2);
    mean((first..predicted.num_classes()).filter_map(|class| score(&mut predicted.probabilities(class))))
}

/// The mean; NaN of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    sum / count as f64
}
