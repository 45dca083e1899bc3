//! Given rows of the first layer (neutronorch §4): those of a mini-batch, and the tables they come from.

use std::fmt;
use std::sync::Arc;

use crate::Result;

/// Rows of the first layer's output that a mini-batch brings along, so that they are not computed from their neighbours
/// (neutronorch §4.2). Their nodes are no destination nodes of the first block: they are the last source nodes of the second.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GivenRows {
    /// Their nodes, by first appearance.
    pub nodes: Vec<u32>,
    /// In-degree of each node, as [`HostBatch::degrees`](crate::HostBatch::degrees).
    pub degrees: Vec<f32>,
    /// The rows, one per node, before dropout; empty until transferring fills them in.
    pub rows: Vec<f32>,
    /// What each of the first layer's weights multiplies for these nodes, a matrix of a row per node for each: with them the rows have
    /// their part in the gradients of the first layer. None where the model has no such matrices.
    pub inputs: Vec<Vec<f32>>,
    /// Optimizer steps before the parameters that the rows were computed with.
    pub version: u64,
}

/// The rows of the nodes that several mini-batches are given, with one version: from it each is given those of its own nodes.
pub trait GivenTable: fmt::Debug + Send + Sync {
    /// The nodes in ascending order, by whose address an operator knows the table again: the list of [`GivenNodes::list`](crate::GivenNodes::list).
    fn nodes(&self) -> &Arc<[u32]>;

    /// Matrices with a row for each of the nodes: of [`GivenRows::rows`], then of [`GivenRows::inputs`].
    fn matrices(&self) -> Vec<&[f32]>;

    /// The version, see [`GivenRows::version`].
    fn version(&self) -> u64;

    /// Fills in the rows, the inputs and the version of a mini-batch's given nodes.
    ///
    /// # Errors
    ///
    /// A node without a row.
    fn fill(&self, given: &mut GivenRows) -> Result<()>;
}

/// How many rows of the first layer's output a mini-batch computes, and is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FirstLayerRows {
    /// Rows that are computed: destination nodes of the first block.
    pub computed: usize,
    /// Rows that are given.
    pub given: usize,
    /// Version of the given rows; `None` where the mini-batch brings none along.
    pub version: Option<u64>,
}
