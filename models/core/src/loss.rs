//! The loss that a model is trained and scored by: its name and its settings.

use std::fmt;
use std::str::FromStr;

use morphgl_registry::{Error, OptionSpec, OptionType, Result};
use serde::{Deserialize, Serialize};

use crate::submission::{OWN_LOSSES, unknown};
use crate::{LossDescription, Settings, Task};

/// Kind of loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum LossKind {
    /// Cross-entropy of the softmax of a seed's logits. Settings: `label_smoothing` and `class_weights`, as of torch's
    /// `CrossEntropyLoss`, but that the mean is over the seeds, whatever their weights.
    #[default]
    CrossEntropy,
    /// Binary cross-entropy of the sigmoid of logits (torch's `BCEWithLogitsLoss`): the mean over the known labels of a seed, or of
    /// the score of each pair. Setting: `positive_weight`, the weight of labels that are 1 and of pairs that exist.
    BinaryCrossEntropy,
    /// Squared error, the mean over the known values of a seed (torch's `MSELoss`).
    Squared,
    /// Absolute error, the mean over the known values of a seed (torch's `L1Loss`).
    Absolute,
    /// Huber's loss, the mean over the known values of a seed (torch's `HuberLoss`). Setting: `delta`.
    Huber,
    /// Bayesian personalised ranking: −ln σ(positive − negative), the mean over the negatives of a positive (Rendle et al., UAI 2009,
    /// §4).
    Bpr,
    /// Margin ranking: max(0, margin − positive + negative), the mean over the negatives of a positive (torch's
    /// `MarginRankingLoss`). Setting: `margin`.
    Margin,
    /// A loss of another crate.
    Submitted(&'static LossDescription),
}

/// The losses of this crate, in the order of [`OWN_LOSSES`].
const OWN: [LossKind; 7] = [
    LossKind::CrossEntropy,
    LossKind::BinaryCrossEntropy,
    LossKind::Squared,
    LossKind::Absolute,
    LossKind::Huber,
    LossKind::Bpr,
    LossKind::Margin,
];

impl Task {
    /// The losses of this crate that it is trained by, the default first.
    pub fn losses(self) -> &'static [LossKind] {
        match self {
            Task::Classify => &[LossKind::CrossEntropy],
            Task::Multilabel => &[LossKind::BinaryCrossEntropy],
            Task::Regress => &[LossKind::Squared, LossKind::Absolute, LossKind::Huber],
            Task::Link => &[LossKind::BinaryCrossEntropy, LossKind::Bpr, LossKind::Margin],
        }
    }
}

impl LossKind {
    /// All losses: those of this crate, then those of linked crates in the order of their names.
    pub fn all() -> Vec<Self> {
        OWN.into_iter().chain(LossDescription::linked().into_iter().map(LossKind::Submitted)).collect()
    }

    /// Whether a model of this task is trained by it. Losses of other crates are of classes.
    pub fn fits(self, task: Task) -> bool {
        match self {
            LossKind::Submitted(_) => task == Task::Classify,
            own => task.losses().contains(&own),
        }
    }

    /// Its settings.
    pub fn settings(self) -> &'static [OptionSpec] {
        const CROSS_ENTROPY: [OptionSpec; 2] = [
            OptionSpec::new(
                "label_smoothing",
                OptionType::Number,
                "0",
                "share of the probability spread over all classes, from 0 to below 1",
            ),
            OptionSpec::new(
                "class_weights",
                OptionType::Text,
                "",
                "weight of each class, such as 1,2.5,1; or balanced, in inverse proportion to its training nodes",
            ),
        ];
        const BINARY: [OptionSpec; 1] = [OptionSpec::new(
            "positive_weight",
            OptionType::Number,
            "1",
            "weight of labels that are 1, or of pairs that exist",
        )];
        const HUBER: [OptionSpec; 1] =
            [OptionSpec::new("delta", OptionType::Number, "1", "error from which the loss grows linearly")];
        const MARGIN: [OptionSpec; 1] =
            [OptionSpec::new("margin", OptionType::Number, "1", "by how much a positive has to score higher")];
        match self {
            LossKind::CrossEntropy => &CROSS_ENTROPY,
            LossKind::BinaryCrossEntropy => &BINARY,
            LossKind::Huber => &HUBER,
            LossKind::Margin => &MARGIN,
            LossKind::Squared | LossKind::Absolute | LossKind::Bpr => &[],
            LossKind::Submitted(loss) => loss.settings,
        }
    }

    /// Refuses values of the settings of a model with an output of this width.
    pub(crate) fn check(self, settings: Settings<'_>, width: usize) -> std::result::Result<(), String> {
        let at_least = |name: &str, least: f64, open: bool| {
            let value = settings.number(name);
            let fits = if open { value > least } else { value >= least };
            let above = if open { "above" } else { "of at least" };
            if fits { Ok(()) } else { Err(format!("{name} is {value}; give a number {above} {least}")) }
        };
        match self {
            LossKind::CrossEntropy => {
                let smoothing = settings.number("label_smoothing");
                if !(0.0..1.0).contains(&smoothing) {
                    return Err(format!("label_smoothing is {smoothing}; give a share from 0 to below 1"));
                }
                class_weights(settings, width).map(drop)
            }
            LossKind::BinaryCrossEntropy => at_least("positive_weight", 0.0, true),
            LossKind::Huber => at_least("delta", 0.0, true),
            LossKind::Margin => at_least("margin", 0.0, false),
            LossKind::Squared | LossKind::Absolute | LossKind::Bpr => Ok(()),
            LossKind::Submitted(loss) => (loss.check)(settings),
        }
    }
}

/// What `class_weights` says for weights that are computed of the training nodes before a model is built.
pub(crate) const BALANCED: &str = "balanced";

/// The weights of the classes; empty where all are 1.
pub(crate) fn class_weights(settings: Settings<'_>, num_classes: usize) -> std::result::Result<Vec<f32>, String> {
    let text = settings.word("class_weights");
    if text.is_empty() || text == BALANCED {
        return Ok(Vec::new());
    }
    let weights: Vec<f32> = text.split(',').map(|weight| weight.trim().parse().unwrap_or(f32::NAN)).collect();
    if let Some(at) = weights.iter().position(|weight| !weight.is_finite() || *weight < 0.0) {
        let wrong = text.split(',').nth(at).unwrap_or_default();
        return Err(format!(
            "class_weights has {wrong:?}; give a number of at least 0 for each class, such as 1,2.5,1"
        ));
    }
    // Options are checked once before a dataset is read, with an output of width 1.
    if weights.len() != num_classes && num_classes > 1 {
        return Err(format!("class_weights has {} numbers for {num_classes} classes; give one each", weights.len()));
    }
    Ok(weights)
}

impl fmt::Display for LossKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = OWN.iter().position(|kind| kind == self);
        f.pad(match (self, own) {
            (LossKind::Submitted(loss), _) => loss.name,
            (_, own) => OWN_LOSSES[own.expect("all losses of this crate are listed")],
        })
    }
}

impl FromStr for LossKind {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let kinds = Self::all();
        let found = kinds.iter().find(|kind| kind.to_string() == s).copied();
        found.ok_or_else(|| unknown(s, "loss", kinds.iter().map(LossKind::to_string)))
    }
}

impl From<LossKind> for String {
    fn from(kind: LossKind) -> Self {
        kind.to_string()
    }
}

impl TryFrom<String> for LossKind {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}
