//! Features, labels, targets, splits and ids beside a graph: files of their own, whatever the format of the edges.
//!
//! They are read before the edges, since nodes without an edge are known from them alone, and are assigned to nodes when the
//! edges are finished.

mod attach;
mod columns;
pub(crate) mod labels;
pub(crate) mod node_index;
mod read;
mod targets;

pub use columns::is_id_column;
pub(crate) use read::split_of;
pub(crate) use targets::Targets;

use std::path::{Path, PathBuf};

use morphgl_graph_store::Result;

use crate::tabular::Texts;
use crate::{Ingest, UnknownNodes};
use attach::RowNodes;

/// The content of a node file, row by row.
#[derive(Debug)]
pub(crate) struct NodeTable {
    path: PathBuf,
    rows: usize,
    keys: Option<Keys>,
    /// Whether it is not a list of the nodes of a split, which lists some nodes of the graph.
    lists_nodes: bool,
    /// The first column of features or targets, while it may be one of ids that nothing names.
    first_column: Option<FirstColumn>,
    labels: Option<Vec<i32>>,
    /// Split of each row: 0 train, 1 valid, 2 test, or `NO_SPLIT`.
    splits: Option<Vec<u8>>,
    features: Option<Features>,
    targets: Option<Targets>,
    /// Ids of a split that nothing calls ids: in a graph of one or two nodes they may be a mask.
    lone_ids: Vec<u64>,
}

/// The columns of a table that are features.
#[derive(Debug, Clone)]
pub(crate) struct FeatureColumns {
    /// Their names; in a table without names, their numbers from 1.
    pub(crate) names: Vec<String>,
    pub(crate) are_named: bool,
}

/// Whole numbers in the first of the columns that are features or targets by default, and the options that decide what they are.
#[derive(Debug)]
struct FirstColumn {
    numbers: Vec<u64>,
    /// What the column would be: a feature or a target.
    noun: &'static str,
    as_ids: String,
    as_values: String,
}

/// The training split.
const TRAIN: u8 = 0;
/// No split.
pub(crate) const NO_SPLIT: u8 = 3;

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

    /// The node table, among files with ids: that of the features, else the first one that is no list of a split.
    fn node_table(&self) -> Option<&NodeTable> {
        let with_ids = || self.nodes.iter().flatten().filter(|table| table.keys.is_some() && table.lists_nodes);
        with_ids().find(|table| table.features.is_some()).or_else(|| with_ids().next())
    }

    /// The file of the node table, and its ids.
    pub(crate) fn listed_keys(&self) -> Option<(&Path, &Keys)> {
        self.node_table().and_then(|table| Some((&*table.path, table.keys.as_ref()?)))
    }

    /// The node files that say which nodes there are; of those with ids the node table alone, where the nodes of all others are
    /// left out.
    fn tables_of_nodes(&self) -> impl Iterator<Item = &NodeTable> {
        let alone = self.drops_unknown_nodes().then(|| self.node_table()).flatten();
        let is_read =
            move |table: &&NodeTable| table.keys.is_none() || alone.is_none_or(|alone| std::ptr::eq(*table, alone));
        self.nodes.iter().flatten().filter(is_read)
    }

    /// Whether edges and rows of nodes that the node table does not list are left out.
    pub(crate) fn drops_unknown_nodes(&self) -> bool {
        self.options().nodes.unknown_nodes == Some(UnknownNodes::Drop)
    }

    /// The ids in the node files.
    pub(crate) fn node_keys(&self) -> impl Iterator<Item = &Keys> {
        self.tables_of_nodes().filter_map(|table| table.keys.as_ref())
    }

    /// Sets the lower bound of the number of nodes from the node files, for ids that are kept and begin at `first`.
    pub(crate) fn keep_ids(&mut self, first: u64) {
        let min_nodes = |table: &NodeTable| match &table.keys {
            Some(Keys::Numbers(ids)) => ids.iter().max().map_or(0, |id| id.saturating_add(1).saturating_sub(first)),
            // A list of the nodes of a split does not have a row for each node.
            _ if table.features.is_none() && table.labels.is_none() && table.targets.is_none() => 0,
            _ => table.rows as u64,
        };
        self.min_nodes = self.tables_of_nodes().map(min_nodes).max().unwrap_or(0);
    }
}
