//! What a dataset's classes, feature columns and targets are called, and how its features were prepared.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{EdgeSplits, Meta};

/// Names of classes, feature columns and targets, by which a model finds them in another dataset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Schema {
    /// Name of each class, in the order of their numbers; `None` where classes are numbers alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<String>>,
    /// Name of each feature column; `None` where columns have none, or two have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Vec<String>>,
    /// Name of each column of targets; `None` where columns have none, or two have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<String>>,
    /// How rows of features were normalised when they were imported: `none`, or the variant; `None` where not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalization: Option<String>,
}

impl Schema {
    /// Normalisation of features that are as the source has them.
    pub const AS_IS: &str = "none";
    /// Normalisation to rows of sum 1.
    pub const ROWS: &str = "rows";
    /// Beginning of the normalisation of columns to mean 0 and deviation 1; an id of the means and deviations follows.
    pub const STANDARDISED: &str = "standardised ";
}

impl Meta {
    /// The dataset's schema, from its provenance: `class_names`, `feature_names`, `target_names`,
    /// `features_normalized`,
    /// `features_standardised`.
    pub fn schema(&self) -> Schema {
        let dim = |name| self.arrays.get(name).and_then(|array| array.shape.get(1).copied()).unwrap_or(0);
        let normalization = match self.provenance.get("features_normalized") {
            Some(Value::Bool(true)) => Some(Schema::ROWS),
            Some(Value::String(variant)) => Some(variant.as_str()),
            // An import records what it changed.
            _ if self.provenance.contains_key("format") => Some(Schema::AS_IS),
            _ => None,
        };
        let standardised = self.provenance.get("features_standardised").and_then(|columns| columns.get("id")?.as_str());
        let normalization = match (normalization, standardised) {
            (None | Some(Schema::AS_IS), Some(id)) => Some(format!("{}{id}", Schema::STANDARDISED)),
            (Some(rows), Some(id)) => Some(format!("{}{id} after {rows}", Schema::STANDARDISED)),
            (normalization, None) => normalization.map(str::to_string),
        };
        Schema {
            classes: self.names("class_names", self.num_classes as u64),
            features: self.names("feature_names", dim("features")),
            targets: self.names("target_names", dim("targets")),
            normalization,
        }
    }

    /// As [`Meta::schema`], with the names of the classes and targets of labelled edges, `edge_class_names` and `edge_target_names`, in
    /// place of those of nodes; `num_classes` are the classes of edges.
    pub fn edge_schema(&self, num_classes: usize) -> Schema {
        let dims = EdgeSplits::TARGET_ARRAYS
            .iter()
            .filter_map(|[_, targets]| self.arrays.get(*targets)?.shape.get(1).copied());
        Schema {
            classes: self.names("edge_class_names", num_classes as u64),
            targets: self.names("edge_target_names", dims.max().unwrap_or(0)),
            ..self.schema()
        }
    }

    /// The list `key` of the provenance, where it has `count` names that all differ.
    fn names(&self, key: &str, count: u64) -> Option<Vec<String>> {
        let list = self.provenance.get(key)?.as_array()?;
        let names: Vec<String> = list.iter().map(|name| name.as_str().map(str::to_string)).collect::<Option<_>>()?;
        let distinct: BTreeSet<&String> = names.iter().collect();
        (names.len() as u64 == count && distinct.len() == names.len() && count > 0).then_some(names)
    }
}
