//! What a model learns to predict.

use std::fmt;
use std::str::FromStr;

use morphgl_registry::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::submission::unknown;

/// What a model learns to predict of nodes, or of edges where [`ModelSpec::edge_outputs`](crate::ModelSpec::edge_outputs) says so.
/// [`ModelSpec::num_classes`](crate::ModelSpec::num_classes) is the width of its output: that many classes, labels or values, or elements
/// of an embedding of links and edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Task {
    /// The class of a node or edge, one of several, by the softmax of its logits.
    #[default]
    Classify,
    /// Which of several labels a node or edge has, each by the sigmoid of its logit; with one label, binary classification.
    Multilabel,
    /// One or several real values of a node or edge.
    Regress,
    /// Whether two nodes have an edge, by a [`Decoder`](crate::Decoder) of their embeddings.
    Link,
}

impl Task {
    /// All tasks.
    pub const ALL: [Task; 4] = [Task::Classify, Task::Multilabel, Task::Regress, Task::Link];
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Task::Classify => "classify",
            Task::Multilabel => "multilabel",
            Task::Regress => "regress",
            Task::Link => "link",
        })
    }
}

impl FromStr for Task {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let found = Task::ALL.into_iter().find(|task| task.to_string() == s);
        found.ok_or_else(|| unknown(s, "task", Task::ALL.iter().map(Task::to_string)))
    }
}

impl From<Task> for String {
    fn from(task: Task) -> Self {
        task.to_string()
    }
}

impl TryFrom<String> for Task {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}
