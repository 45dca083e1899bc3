//! The scores of a model: which there are, and how each is computed.

mod ranking;
mod regression;

pub(crate) use ranking::{average_precision, roc_auc};

use std::fmt;
use std::str::FromStr;

use morphgl_registry::{Error, Result, Score, Targets};
use serde::{Deserialize, Serialize};

use crate::submission::{OWN_SCORES, unknown};
use crate::{ClassCounts, Predicted, RankingScore, ScoreDescription, Task};

/// A score: what early stopping and the best model go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ScoreKind {
    /// Fraction of the nodes whose class, or all of whose labels, are predicted. For one class per node it is the micro-averaged F1
    /// as well. Of pairs: fraction of the pairs whose score is on their side of 0.
    #[default]
    Accuracy,
    /// Mean loss per node, of the loss that is trained. The lowest is the best.
    Loss,
    /// Mean recall of the classes that nodes have (scikit-learn's `balanced_accuracy_score`).
    BalancedAccuracy,
    /// Mean F1 of the classes that nodes have or are predicted to have, or of all labels, 0 for one without any (scikit-learn's
    /// `f1_score` with `average="macro"`).
    MacroF1,
    /// F1 of all labels of all nodes together (scikit-learn's `f1_score` with `average="micro"`).
    MicroF1,
    /// Area under the ROC curve: of two classes that of class 1, of more the mean of each class against all others
    /// (scikit-learn's `roc_auc_score` with `multi_class="ovr"`); of labels the mean; of pairs that exist against negatives. Equal
    /// probabilities count half.
    RocAuc,
    /// Average precision: of two classes that of class 1, of more the mean of each class against all others (scikit-learn's
    /// `average_precision_score`); of labels the mean; of pairs that exist against negatives.
    AveragePrecision,
    /// Mean absolute error, of several values the mean over them (scikit-learn's `mean_absolute_error`).
    Mae,
    /// Root of the mean squared error, of several values the mean over them (scikit-learn's `root_mean_squared_error`).
    Rmse,
    /// Coefficient of determination, of several values the mean over them (scikit-learn's `r2_score`).
    R2,
    /// A ranking of pairs that exist among negatives (`mrr`, `hits@K`) or all nodes (`filtered-mrr`, `filtered-hits@K`).
    Ranking(RankingScore),
    /// A score of another crate.
    Submitted(&'static ScoreDescription),
}

/// The scores of this crate, in the order of [`OWN_SCORES`].
const OWN: [ScoreKind; 12] = [
    ScoreKind::Accuracy,
    ScoreKind::Loss,
    ScoreKind::BalancedAccuracy,
    ScoreKind::MacroF1,
    ScoreKind::MicroF1,
    ScoreKind::RocAuc,
    ScoreKind::AveragePrecision,
    ScoreKind::Mae,
    ScoreKind::Rmse,
    ScoreKind::R2,
    ScoreKind::Ranking(RankingScore::Mrr),
    ScoreKind::Ranking(RankingScore::FilteredMrr),
];

impl ScoreKind {
    /// All scores: those of this crate, then those of linked crates in the order of their names.
    pub fn all() -> Vec<Self> {
        OWN.into_iter().chain(ScoreDescription::linked().into_iter().map(ScoreKind::Submitted)).collect()
    }

    /// Whether it is a score of models of this task. Scores of other crates are of classes.
    pub fn fits(self, task: Task) -> bool {
        use ScoreKind::*;
        match task {
            Task::Classify => {
                matches!(self, Accuracy | Loss | BalancedAccuracy | MacroF1 | MicroF1 | RocAuc | AveragePrecision)
                    || matches!(self, Submitted(_))
            }
            Task::Multilabel => matches!(self, Accuracy | Loss | MacroF1 | MicroF1 | RocAuc | AveragePrecision),
            Task::Regress => matches!(self, Loss | Mae | Rmse | R2),
            Task::Link => matches!(self, Accuracy | Loss | RocAuc | AveragePrecision | Ranking(_)),
        }
    }

    /// The score that models of this task are chosen by where none is named.
    pub fn usual(task: Task) -> Self {
        match task {
            Task::Classify => ScoreKind::Accuracy,
            Task::Multilabel => ScoreKind::MicroF1,
            Task::Regress => ScoreKind::Rmse,
            Task::Link => ScoreKind::RocAuc,
        }
    }

    /// The ranking of pairs that it is of models of links; `None` of sums.
    pub fn ranking(self) -> Option<RankingScore> {
        match self {
            ScoreKind::RocAuc => Some(RankingScore::RocAuc),
            ScoreKind::AveragePrecision => Some(RankingScore::AveragePrecision),
            ScoreKind::Ranking(ranking) => Some(ranking),
            _ => None,
        }
    }

    /// Refuses a score that is none of the task's.
    ///
    /// # Errors
    ///
    /// It does not fit: the message names those that do.
    pub fn check(self, task: Task) -> Result<()> {
        if self.fits(task) {
            return Ok(());
        }
        let mut names: Vec<String> =
            Self::all().into_iter().filter(|kind| kind.fits(task)).map(|kind| kind.to_string()).collect();
        names.extend(RankingScore::FAMILIES.iter().filter(|_| task == Task::Link).map(|name| name.to_string()));
        Err(Error::setting("score", format!("{self} is no score of the task {task}; use one of {}", names.join(", "))))
    }

    /// Whether the highest value is the best one.
    pub fn highest_is_best(self) -> bool {
        match self {
            ScoreKind::Loss | ScoreKind::Mae | ScoreKind::Rmse => false,
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
            ScoreKind::MacroF1 => match predicted.targets() {
                Targets::Classes(_) => mean(predicted.confusion().classes().filter_map(|c| c.f1())),
                _ if predicted.is_unknown() => f64::NAN,
                _ => mean(predicted.classes().iter().map(|c| c.f1().unwrap_or(0.0))),
            },
            ScoreKind::MicroF1 if predicted.is_unknown() => f64::NAN,
            ScoreKind::MicroF1 => micro_f1(&predicted.classes()),
            ScoreKind::Mae => regression::mean_absolute_error(predicted),
            ScoreKind::Rmse => regression::root_mean_squared_error(predicted),
            ScoreKind::R2 => regression::r2(predicted),
            // Of pairs it is a value of `Ranked`, not of outputs.
            ScoreKind::Ranking(_) => f64::NAN,
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
            (ScoreKind::Ranking(ranking), None) => return ranking.fmt(f),
            (_, own) => OWN_SCORES[own.expect("all kinds of this crate are listed")],
        })
    }
}

impl FromStr for ScoreKind {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let kinds = Self::all();
        let found = kinds.iter().find(|kind| kind.to_string() == s).copied();
        let hits = || s.contains("hits@").then(|| s.parse().ok().map(ScoreKind::Ranking)).flatten();
        let names = || kinds.iter().map(ScoreKind::to_string).chain(RankingScore::FAMILIES.map(String::from));
        found.or_else(hits).ok_or_else(|| unknown(s, "score", names()))
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
    let first = usize::from(predicted.num_classes() == 2 && matches!(predicted.targets(), Targets::Classes(_)));
    mean((first..predicted.num_classes()).filter_map(|class| score(&mut predicted.probabilities(class))))
}

/// The F1 of the sums over all classes, 0 without any.
fn micro_f1(classes: &[ClassCounts]) -> f64 {
    let sums = classes.iter().fold(ClassCounts::default(), |sums, counts| ClassCounts {
        correct: sums.correct + counts.correct,
        nodes: sums.nodes + counts.nodes,
        predicted: sums.predicted + counts.predicted,
    });
    sums.f1().unwrap_or(0.0)
}

/// The mean; NaN of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    sum / count as f64
}
