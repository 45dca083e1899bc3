//! Rows of a task as seeds: nodes at times of their own.

use std::sync::Arc;

use morphgl_graph_store::TaskRows;

use crate::{Error, Result};

/// The rows of a seed set ([`SeedSet::of_rows`](crate::SeedSet::of_rows)): a seed is a node at a time, and what is to be predicted of it the
/// label or the targets that the dataset has of its row.
#[derive(Debug, Clone, PartialEq)]
pub struct RowSeeds {
    // Invariant: not empty, as many of each.
    rows: Arc<[u32]>,
    nodes: Arc<[u32]>,
    times: Arc<[i64]>,
}

impl RowSeeds {
    /// Checks the numbers of `rows`, of those `all`; `what` names them in errors.
    pub(crate) fn new(what: &str, rows: &[u32], all: &TaskRows) -> Result<Self> {
        if rows.is_empty() {
            let cure = "it is empty; import the dataset with a split of its task, or make one with --split 0.6,0.2,0.2";
            return Err(Error::setting(what, cure));
        }
        if let Some(row) = rows.iter().find(|row| **row as usize >= all.len()) {
            return Err(Error::setting(what, format!("row {row} does not exist, there are {}", all.len())));
        }
        let nodes = rows.iter().map(|&row| all.nodes()[row as usize]).collect();
        let times = rows.iter().map(|&row| all.times()[row as usize]).collect();
        Ok(Self { rows: rows.into(), nodes, times })
    }

    /// Number of each row among those of the dataset, in the order given.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Node of each row, in the order given.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// Time of each row, in the order given: nothing later is sampled for it.
    pub fn times(&self) -> &[i64] {
        &self.times
    }
}
