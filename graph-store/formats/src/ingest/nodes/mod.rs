//! Features, labels, splits and ids beside a graph: files of their own, whatever the format of the edges.
//!
//! They are read before the edges, since nodes without an edge are known from them alone, and are assigned to nodes when the
//! edges are finished.

mod attach;
mod columns;
mod labels;
mod node_index;
mod read;

pub use columns::is_id_column;

use std::path::PathBuf;

use morphgl_graph_store::Result;

use crate::Ingest;
use crate::tabular::Texts;

/// The content of a node file, row by row.
#[derive(Debug)]
pub(crate) struct NodeTable {
    path: PathBuf,
    rows: usize,
    keys: Option<Keys>,
    /// The first column of features, while it may be one of ids that nothing names.
    first_column: Option<FirstColumn>,
    labels: Option<Vec<i32>>,
    /// Split of each row: 0 train, 1 valid, 2 test, or `NO_SPLIT`.
    splits: Option<Vec<u8>>,
    features: Option<Features>,
}

/// The columns of a table that are features.
#[derive(Debug, Clone)]
pub(crate) struct FeatureColumns {
    /// Their names; in a table without names, their numbers from 1.
    pub(crate) names: Vec<String>,
    pub(crate) are_named: bool,
}

/// Whole numbers in the first of the columns that are features by default, and the options that decide what they are.
#[derive(Debug)]
struct FirstColumn {
    numbers: Vec<u64>,
    as_ids: String,
    as_features: String,
}

/// No split.
const NO_SPLIT: u8 = 3;

/// The nodes' ids in row order.
#[derive(Debug)]
pub(crate) enum Keys {
    Numbers(Vec<u64>),
    Names(Texts),
}

/// Feature rows of a file.
#[derive(Debug)]
enum Features {
    /// A `.npy` file, read once the order of its rows is known.
    Array(PathBuf),
    /// f32 rows of `dim` values, in a temporary `.npy` file inside the unfinished dataset.
    Rows { rows: PathBuf, dim: usize, columns: Option<FeatureColumns> },
}

impl Ingest<'_> {
    /// Reads the node files; their ids are text if `named`.
    pub(crate) fn read_nodes(&mut self, named: bool) -> Result<()> {
        if self.nodes.is_none() {
            self.nodes = Some(read::all(self, named)?);
        }
        Ok(())
    }

    /// The ids in the node files.
    pub(crate) fn node_keys(&self) -> impl Iterator<Item = &Keys> {
        self.nodes.iter().flatten().filter_map(|table| table.keys.as_ref())
    }

    /// Sets the lower bound of the number of nodes from the node files, for ids that are kept and begin at `first`.
    pub(crate) fn keep_ids(&mut self, first: u64) {
        let min_nodes = |table: &NodeTable| match &table.keys {
            Some(Keys::Numbers(ids)) => ids.iter().max().map_or(0, |id| id.saturating_add(1).saturating_sub(first)),
            // A list of the nodes of a split does not have a row for each node.
            _ if table.features.is_none() && table.labels.is_none() => 0,
            _ => table.rows as u64,
        };
        self.min_nodes = self.nodes.iter().flatten().map(min_nodes).max().unwrap_or(0);
    }
}
