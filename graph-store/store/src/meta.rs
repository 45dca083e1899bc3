//! `graph.json`: what a dataset's arrays are.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Dtype, Result};

/// Marks a `graph.json` as ours.
pub const DATASET_FORMAT: &str = "morphgl-dataset";
/// The newest version of the format this build reads, and the one it writes.
pub const DATASET_VERSION: u32 = 1;

/// The content of `graph.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Always [`DATASET_FORMAT`].
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// What people call the dataset.
    pub name: String,
    /// Number of nodes.
    pub num_nodes: u64,
    /// Number of directed edges.
    pub num_edges: u64,
    /// Number of classes, 0 without labels.
    pub num_classes: usize,
    /// The arrays by name: `indptr`, `indices`, `weights`, `features`, `labels`, `train`, `valid`, `test`, `node_ids`,
    /// `node_names`, `node_name_ends`.
    pub arrays: BTreeMap<String, ArrayMeta>,
    /// Where the data came from and what was done to it, in the words of the program that wrote it.
    #[serde(default)]
    pub provenance: BTreeMap<String, serde_json::Value>,
}

impl Meta {
    /// Reads and checks the `graph.json` of the dataset at `path`.
    ///
    /// # Errors
    ///
    /// No dataset there, a newer version, or arrays that do not fit one another.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        crate::dataset::read_meta(path.as_ref())
    }
}

/// One array of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArrayMeta {
    /// File name within the directory.
    pub file: String,
    /// Element type.
    pub dtype: Dtype,
    /// Lengths of the dimensions, slowest first.
    pub shape: Vec<u64>,
    /// XXH3-64 of the elements' bytes (the npy header is left out), 16 hexadecimal digits.
    pub xxh3: String,
}
