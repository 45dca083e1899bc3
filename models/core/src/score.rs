//! The scores of a model on nodes with a class each: which there are, and how each is computed.

mod ranking;

use std::fmt;
use std::str::FromStr;

use morphgl_registry::{Error, Result, Score};
use serde::{Deserialize, Serialize};

use crate::ScoreDescription;
use crate::submission::unknown;

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

/// Names of the scores of this crate, in the order of [`ScoreKind`].
pub(crate) const OWN_SCORES: [&str; 6] =
    ["accuracy", "loss", "balanced-accuracy", "macro-f1", "roc-auc", "average-precision"];
const OWN: [ScoreKind; 6] = [
    ScoreKind::Accuracy,
    ScoreKind::Loss,
    ScoreKind::BalancedAccuracy,
    ScoreKind::MacroF1,
    ScoreKind::RocAuc,
    ScoreKind::AveragePrecision,
];

impl ScoreKind {
    /// The scores there are: those of this crate, then those of linked crates by name.
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
            ScoreKind::RocAuc => predicted.against_others(ranking::roc_auc),
            ScoreKind::AveragePrecision => predicted.against_others(ranking::average_precision),
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

/// Logits of nodes, and their labels.
#[derive(Debug, Clone, Copy)]
pub struct Predicted<'a> {
    logits: &'a [f32],
    labels: &'a [i32],
    num_classes: usize,
}

impl<'a> Predicted<'a> {
    /// Of logits `[nodes, num_classes]` and a label per node, -1 for nodes without one, which do not count.
    ///
    /// # Panics
    ///
    /// When there are not `num_classes` logits per label, or a label is not below `num_classes`.
    pub fn new(logits: &'a [f32], labels: &'a [i32], num_classes: usize) -> Self {
        assert_eq!(logits.len(), labels.len() * num_classes, "logits and labels x classes");
        assert!(labels.iter().all(|&label| label < num_classes as i32), "labels below {num_classes}");
        Self { logits, labels, num_classes }
    }

    /// Number of classes.
    pub fn num_classes(&self) -> usize {
        self.num_classes
    }

    /// Of each node with a label: its logits, and its class.
    pub fn nodes(&self) -> impl Iterator<Item = (&'a [f32], usize)> + use<'a> {
        let rows = self.logits.chunks_exact(self.num_classes.max(1)).zip(self.labels);
        rows.filter_map(|(row, &label)| Some((row, usize::try_from(label).ok()?)))
    }

    /// How many nodes of each class are predicted to be of each class: the one of the highest logit, the first of equal ones.
    pub fn confusion(&self) -> Confusion {
        let mut counts = vec![0; self.num_classes * self.num_classes];
        for (row, class) in self.nodes() {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            if let Some(predicted) = row.iter().position(|&x| x == max) {
                counts[class * self.num_classes + predicted] += 1;
            }
        }
        Confusion { counts, num_classes: self.num_classes }
    }

    /// Of each node with a label: the probability of `class` by the softmax of its logits, and whether it is of that class.
    pub fn probabilities(&self, class: usize) -> Vec<(f64, bool)> {
        let probability = |row: &[f32]| {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exp = |x: f32| f64::from(x - max).exp();
            exp(row[class]) / row.iter().map(|&x| exp(x)).sum::<f64>()
        };
        self.nodes().map(|(row, of)| (probability(row), of == class)).collect()
    }

    /// A score of two classes: of class 1 of two, and of more the mean over those where it is defined.
    fn against_others(&self, score: fn(&mut [(f64, bool)]) -> Option<f64>) -> f64 {
        let first = usize::from(self.num_classes == 2);
        mean((first..self.num_classes).filter_map(|class| score(&mut self.probabilities(class))))
    }
}

/// Numbers of nodes by their class and the one that is predicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confusion {
    counts: Vec<u64>,
    num_classes: usize,
}

/// What a confusion matrix says about a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ClassCounts {
    /// Nodes of the class that are predicted to be of it.
    pub correct: u64,
    /// Nodes of the class.
    pub nodes: u64,
    /// Nodes that are predicted to be of the class.
    pub predicted: u64,
}

impl ClassCounts {
    /// Fraction of the nodes of the class that are predicted to be; `None` without any.
    pub fn recall(&self) -> Option<f64> {
        (self.nodes > 0).then(|| self.correct as f64 / self.nodes as f64)
    }

    /// Fraction of those predicted to be of the class that are; `None` where none is predicted.
    pub fn precision(&self) -> Option<f64> {
        (self.predicted > 0).then(|| self.correct as f64 / self.predicted as f64)
    }

    /// Harmonic mean of precision and recall, 0 where one of them is 0 or undefined; `None` where no node has the class or is predicted
    /// to have it.
    pub fn f1(&self) -> Option<f64> {
        let either = self.nodes + self.predicted;
        (either > 0).then(|| 2.0 * self.correct as f64 / either as f64)
    }
}

impl Confusion {
    /// A row per class that nodes have, a column per class that is predicted.
    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.counts.chunks_exact(self.num_classes.max(1))
    }

    /// The counts of each class.
    pub fn classes(&self) -> impl Iterator<Item = ClassCounts> {
        (0..self.num_classes).map(|class| ClassCounts {
            correct: self.counts[class * self.num_classes + class],
            nodes: self.rows().nth(class).map_or(0, |row| row.iter().sum()),
            predicted: self.rows().map(|row| row[class]).sum(),
        })
    }
}

/// The mean; NaN of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    sum / count as f64
}
