//! Assigns the rows of node files to nodes, and writes features, labels, targets and splits.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dtype, Error, Load, NpyWriter, Result, read_npy};

use super::node_index::NodeIndex;
use super::{Features, FirstColumn, NO_SPLIT, NodeTable, TRAIN};
use crate::files::{file_name, invalid};
use crate::ingest::features::{self, BATCH_VALUES};
use crate::npy::open_array;
use crate::splits::{self, EITHER};
use crate::tabular::lists::{NAMED, counted, first_of};
use crate::{Ingest, UnknownNodes};

/// The node of each row of a file.
pub(super) enum RowNodes {
    /// Row `i` belongs to node `i`.
    InOrder,
    /// Row `i` belongs to the `i`-th of these nodes; `u32::MAX` for none.
    Listed(Vec<u32>),
}

impl RowNodes {
    fn node(&self, row: usize) -> Option<u32> {
        match self {
            Self::InOrder => Some(row as u32),
            Self::Listed(nodes) => Some(nodes[row]).filter(|&node| node != u32::MAX),
        }
    }

    /// The values of rows in the order of the nodes, `default` for nodes without a row.
    pub(super) fn by_node<T: Clone>(&self, rows: impl IntoIterator<Item = T>, default: T, num_nodes: u64) -> Vec<T> {
        let mut values = vec![default; num_nodes as usize];
        for (row, value) in rows.into_iter().enumerate() {
            if let Some(node) = self.node(row) {
                values[node as usize] = value;
            }
        }
        values
    }
}

/// Cure for a split's file of zeros and ones that may be ids or a mask.
const WHICH_FILE: &str = "write them as text below the name of their column, id or train_mask (val_mask, test_mask)";

/// Fewest nodes whose ids are recognised in a column: zeros and ones are common.
const RECOGNISED: u64 = 3;

impl FirstColumn {
    /// Refuses a first column that lists every node once: it is one of ids, and rows in its order were given to wrong nodes.
    fn check(mut self, path: &Path, index: &NodeIndex, num_nodes: u64) -> Result<()> {
        let known = self.numbers.iter().filter(|&&id| index.node(id).is_some()).count() as u64;
        self.numbers.sort_unstable();
        let repeats = self.numbers.array_windows().any(|[a, b]| a == b);
        if repeats || known != num_nodes || num_nodes < RECOGNISED {
            return Ok(());
        }
        let Self { noun, as_ids, as_values, .. } = self;
        let what = format!("the first column has the id of every node once, and would be a {noun}");
        invalid(path, what, format!("read it as ids by {as_ids}, or as a {noun} by {as_values}"))
    }
}

impl Ingest<'_> {
    /// Adds the content of the node files to the graph, whose edges are written.
    pub(crate) fn attach_nodes(&mut self, num_nodes: u64) -> Result<()> {
        self.read_nodes(false)?;
        if self.options().nodes.unknown_nodes.is_some() && self.listed_alone.is_none() {
            return invalid("--unknown-nodes", "the nodes of this format are its rows", "leave it out");
        }
        let node_table = self.listed_keys().map(|(path, _)| path.to_path_buf());
        let tables = self.nodes.take().unwrap_or_default();
        if tables.is_empty() {
            return Ok(());
        }
        let index = NodeIndex::of(self, num_nodes)?;
        let mut splits = None;
        for table in tables {
            let NodeTable {
                path, rows, keys, first_column, labels, splits: parts, features, targets, lone_ids, ..
            } = table;
            if splits::is_either(&lone_ids, num_nodes) {
                return invalid(&path, EITHER, WHICH_FILE);
            }
            if let Some(first) = first_column {
                first.check(&path, &index, num_nodes)?;
            }
            let nodes = match &keys {
                Some(keys) => {
                    let is_node_table = node_table.as_ref() == Some(&path);
                    let drop_unknown = self.drops_unknown_nodes() && !is_node_table;
                    // In a list of training nodes, one that repeats is trained on as often.
                    let is_list = features.is_none() && labels.is_none() && targets.is_none();
                    let trains = parts.as_ref().is_some_and(|parts| parts.iter().all(|&part| part == TRAIN));
                    let nodes = index.nodes(&path, keys, num_nodes, (drop_unknown, is_list && trains))?;
                    let unknown = nodes.iter().filter(|&&node| node == u32::MAX).count();
                    if let (Some(table), 1..) = (&node_table, unknown) {
                        let (rows, were) = (counted(unknown as u64, "row"), if unknown == 1 { "was" } else { "were" });
                        let what = format!("{rows} of nodes that {} does not list {were} left out", file_name(table));
                        self.note(format!("{}: {what}", file_name(&path)));
                    }
                    let is_strict = is_node_table && self.options().nodes.unknown_nodes == Some(UnknownNodes::Refuse);
                    if features.is_some() || is_strict {
                        let what = if features.is_some() { "features" } else { "row" };
                        self.refuse_missing(&path, &nodes, num_nodes, &index, what)?;
                    }
                    RowNodes::Listed(nodes)
                }
                None => self.rows_in_order(&path, rows, &index, num_nodes)?,
            };
            if let Some(features) = features {
                self.attach_features(&path, &features, &nodes, num_nodes)?;
            }
            if let Some(labels) = labels {
                let labels = nodes.by_node(labels, -1, num_nodes);
                let unlabelled = labels.iter().filter(|&&label| label == -1).count();
                if unlabelled > 0 {
                    self.note(format!("{unlabelled} of {num_nodes} nodes have no label"));
                }
                self.labels(&path, &labels, None)?;
            }
            if let Some(targets) = targets {
                self.write_targets(&path, targets, &nodes, num_nodes)?;
            }
            if let Some(parts) = parts {
                let (_, splits) = splits.get_or_insert((path, [const { Vec::new() }; 3]));
                for (row, part) in parts.into_iter().enumerate().filter(|&(_, part)| part != NO_SPLIT) {
                    splits[usize::from(part)].extend(nodes.node(row));
                }
            }
        }
        if let Some((path, mut splits)) = splits {
            splits.iter_mut().for_each(|nodes| nodes.sort_unstable());
            self.splits(&path, &splits[0], &splits[1], &splits[2])?;
        }
        Ok(())
    }

    /// Refuses nodes that are not among those of the rows of a file with ids; they have no `what`.
    fn refuse_missing(&self, path: &Path, rows: &[u32], num_nodes: u64, index: &NodeIndex, what: &str) -> Result<()> {
        let mut has_row = vec![false; num_nodes as usize];
        rows.iter().filter(|&&node| node != u32::MAX).for_each(|&node| has_row[node as usize] = true);
        let missing = || (0..).zip(&has_row).filter(|(_, has_row)| !**has_row).map(|(node, _)| node);
        let count = missing().count() as u64;
        if count == 0 {
            return Ok(());
        }
        let ids = first_of(missing().take(NAMED).map(|node| index.id(node)).collect(), count);
        let what = format!("{count} of {num_nodes} nodes have no {what}: {ids}");
        let cure = match self.listed_alone.as_deref().filter(|options| !options.is_empty()) {
            Some(options) => format!("give every node its row, or import the nodes of this file alone by {options}"),
            None => "give every node its row".to_string(),
        };
        invalid(path, what, cure)
    }

    /// Matches rows without ids to nodes: in the order of the nodes' ids where there are as many rows as nodes, else row `i`
    /// to the node with id `i`.
    fn rows_in_order(&mut self, path: &Path, rows: usize, index: &NodeIndex, num_nodes: u64) -> Result<RowNodes> {
        let is_identity = matches!(index, NodeIndex::Identity(_));
        if rows as u64 == num_nodes {
            if !is_identity {
                self.note(format!("{}: row i is the node of the i-th lowest id", file_name(path)));
            }
            return Ok(RowNodes::InOrder);
        }
        if is_identity || index.highest().is_none_or(|highest| highest >= rows as u64) {
            let what = format!("{rows} rows, but the graph has {num_nodes} nodes");
            return invalid(path, what, "give every node its row, or add a column of ids");
        }
        let nodes: Vec<u32> = (0..rows as u64).map(|id| index.node(id).unwrap_or(u32::MAX)).collect();
        let unused = nodes.iter().filter(|&&node| node == u32::MAX).count();
        let what = "row i is the node of id i";
        let (unused, were) = (counted(unused as u64, "row"), if unused == 1 { "was" } else { "were" });
        self.note(format!("{}: {what}; {unused} of ids without an edge {were} left out", file_name(path)));
        Ok(RowNodes::Listed(nodes))
    }

    fn attach_features(&mut self, path: &Path, features: &Features, nodes: &RowNodes, num_nodes: u64) -> Result<()> {
        let (rows, dim) = match (features, nodes) {
            (Features::Array(path), RowNodes::InOrder) => {
                return features::push_array(self, open_array(path)?, Dtype::F32);
            }
            (Features::Array(path), _) => self.spool(path)?,
            (Features::Rows { rows, dim, columns }, _) => {
                self.feature_columns.clone_from(columns);
                (rows.clone(), *dim)
            }
        };
        let (values, _) = read_npy::<f32>(&rows, Load::Mmap)?;
        let row_of = nodes.by_node(0..(values.len() / dim.max(1)) as u32, u32::MAX, num_nodes);
        let mut sink = self.features(path, dim, Dtype::F32)?;
        sink.push_rows(row_of.len(), |node, row| row.copy_from_slice(&values[row_of[node] as usize * dim..][..dim]))?;
        sink.finish()?;
        drop(values);
        std::fs::remove_file(&rows).map_err(|e| Error::io(&rows, e))
    }

    /// Copies an array as f32 into a temporary file inside the unfinished dataset, to read its rows in any order.
    fn spool(&self, path: &Path) -> Result<(PathBuf, usize)> {
        let mut array = open_array(path)?;
        let dim = features::feature_dim(&array)?;
        let spool = self.dir().join("features.rows.npy");
        let mut out = NpyWriter::<f32>::create(&spool)?;
        let mut values = Vec::new();
        while array.remaining() > 0 {
            values.clear();
            array.floats(BATCH_VALUES as u64, &mut values)?;
            out.write(&values)?;
        }
        out.finish(Some(dim))?;
        Ok((spool, dim))
    }
}
