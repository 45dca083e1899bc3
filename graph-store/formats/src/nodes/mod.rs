//! Features, labels, splits and ids beside a graph: files of their own, whatever the format of the edges.
//!
//! They are read before the edges, for nodes without an edge are known from them alone, and take their places when the
//! edges are finished and every id has its node.

mod attach;
mod columns;
mod places;
mod read;

use std::path::PathBuf;

use morphgl_graph_store::Result;

use crate::tabular::Texts;
use crate::{Column, Ingest};

pub(crate) use places::Places;

/// Files of nodes beside a graph. Default: none.
///
/// A file is a `.npy` array, delimited text (plain, gzip, bzip2, xz or zstd), Parquet or Arrow IPC (Feather). Rows of a
/// table with a column of ids belong to the nodes of these ids; else row `i` belongs to the node of the `i`-th lowest id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFiles {
    /// A table with columns of ids, labels, splits and features, as far as it has them.
    pub table: Option<PathBuf>,
    /// `[nodes, values]`, or a table whose columns are all features, but for that of ids.
    pub features: Option<PathBuf>,
    /// `[nodes]`, or a table with a column of labels: class numbers, or names, which are numbered in their order.
    pub labels: Option<PathBuf>,
    /// Ids, or a mask of all nodes: of training, validation and test nodes.
    pub splits: [Option<PathBuf>; 3],
    /// The columns that are read; by their names where they are `None`.
    pub columns: NodeColumns,
}

/// Which columns of the tables are read. Default: by their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeColumns {
    /// Ids: `id`, `node`, `node_id`, `name`, or the nameless one that pandas writes.
    pub id: Option<Column>,
    /// Labels: `label`, `class`, `y`, `target` or `category`. Of a numpy array `[nodes, K]` the number of the column.
    pub label: Option<Column>,
    /// Splits: `split`, `fold` or `set` with `train`, `valid` or `val`, `test`; or three masks. Of numpy masks `[nodes, K]`
    /// the number of the column.
    pub split: Option<Column>,
    /// Features: names of one word and a number, such as `f0` and `feat_12`.
    pub features: Option<Vec<Column>>,
}

/// The content of a node file, row by row.
#[derive(Debug)]
pub(crate) struct NodeTable {
    path: PathBuf,
    rows: usize,
    keys: Option<Keys>,
    labels: Option<Vec<i32>>,
    /// Split of each row: 0 train, 1 valid, 2 test, or `NO_SPLIT`.
    splits: Option<Vec<u8>>,
    features: Option<Features>,
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
    /// f32 rows of this length, in a temporary `.npy` file inside the unfinished dataset.
    Rows(PathBuf, usize),
}

impl Ingest<'_> {
    /// Reads the node files; their ids are text if `named`.
    pub(crate) fn read_nodes(&mut self, named: bool) -> Result<()> {
        if self.nodes.is_none() {
            self.nodes = Some(read::all(self, named)?);
        }
        Ok(())
    }

    /// The tables that were read.
    pub(crate) fn node_tables(&self) -> &[NodeTable] {
        self.nodes.as_deref().unwrap_or_default()
    }

    /// The ids in the tables.
    pub(crate) fn node_keys(&self) -> impl Iterator<Item = &Keys> {
        self.node_tables().iter().filter_map(|table| table.keys.as_ref())
    }

    /// Lower bound of the number of nodes, from the node files, for ids that are kept and begin at `first`.
    pub(crate) fn kept_nodes(&self, first: u64) -> u64 {
        let of = |table: &NodeTable| match &table.keys {
            Some(Keys::Numbers(ids)) => ids.iter().max().map_or(0, |id| (id + 1).saturating_sub(first)),
            // A list of the nodes of a split does not have a row for each node.
            _ if table.features.is_none() && table.labels.is_none() => 0,
            _ => table.rows as u64,
        };
        self.node_tables().iter().map(of).max().unwrap_or(0)
    }
}
