//! How a model does on a set of nodes: what training, checkpoints and groups keep of an evaluation.

use morphgl_model_core::{ClassCounts, Confusion, Predicted, ScoreKind, Task};
use morphgl_registry::Score;
use serde::{Deserialize, Serialize};

/// How a model does on a set of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluated {
    /// Sums over the nodes with a label.
    #[serde(flatten)]
    pub sums: Score,
    /// The run's score where it is not a function of the sums; NaN, in JSON null, where it is not defined.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "nan_for_null")]
    pub value: Option<f64>,
}

fn nan_for_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Ok(Some(Option::deserialize(deserializer)?.unwrap_or(f64::NAN)))
}

impl Evaluated {
    /// The value of the score that it was evaluated by.
    pub fn score(&self, kind: ScoreKind) -> f64 {
        match kind {
            ScoreKind::Accuracy => self.sums.accuracy(),
            ScoreKind::Loss => self.sums.loss(),
            _ => self.value.unwrap_or(f64::NAN),
        }
    }
}

impl From<Score> for Evaluated {
    fn from(sums: Score) -> Self {
        Self { sums, value: None }
    }
}

/// How a model does on a split.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scored {
    /// Sums over the nodes with a target, or over the pairs.
    pub(crate) sums: Score,
    /// The values of the scores that were asked for, NaN where one is not defined.
    pub(crate) values: Vec<f64>,
    /// How many nodes of each class are predicted to be of each; `None` of other tasks.
    pub(crate) confusion: Option<Confusion>,
    /// What each class or label says; none of values and links.
    pub(crate) classes: Vec<ClassCounts>,
}

impl Scored {
    /// The scores of what is predicted, and what each class says.
    pub(crate) fn of(sums: Score, predicted: &Predicted<'_>, task: Task, kinds: &[ScoreKind]) -> Self {
        let values = kinds.iter().map(|kind| kind.value(&sums, predicted)).collect();
        let confusion = (task == Task::Classify).then(|| predicted.confusion());
        let classes = if task == Task::Regress { Vec::new() } else { predicted.classes() };
        Self { sums, values, confusion, classes }
    }
}
