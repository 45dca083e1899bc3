//! The loss that a model is trained and scored by.

use std::fmt;
use std::str::FromStr;

use morphgl_registry::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::LossDescription;
use crate::submission::unknown;

/// Kind of loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum LossKind {
    /// Cross-entropy of the softmax of a seed's logits.
    #[default]
    CrossEntropy,
    /// A loss of another crate.
    Submitted(&'static LossDescription),
}

impl fmt::Display for LossKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LossKind::CrossEntropy => "cross-entropy",
            LossKind::Submitted(loss) => loss.name,
        })
    }
}

impl FromStr for LossKind {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let submitted = LossDescription::linked().into_iter().map(LossKind::Submitted);
        let kinds: Vec<LossKind> = [LossKind::CrossEntropy].into_iter().chain(submitted).collect();
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
