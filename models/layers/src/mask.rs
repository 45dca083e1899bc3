//! Dropout of rows whose nodes are known.

use std::sync::Arc;

use morphgl_model_core::{Dropout, RowPart};

/// A dropout mask, and the nodes of the rows that it drops elements of.
#[derive(Debug, Clone)]
pub struct Mask {
    /// The mask of every node.
    pub dropout: Dropout,
    /// The node of each row; there may be more than rows.
    pub nodes: Arc<[u32]>,
}

impl Mask {
    /// Multiplies rows of `width` elements, of which `first` is the first, by their factors.
    ///
    /// # Panics
    ///
    /// When there are more rows than nodes.
    pub(crate) fn apply(&self, first: usize, width: usize, values: &mut [f32]) {
        let rows = values.len().checked_div(width).unwrap_or(0);
        self.dropout.apply(&self.nodes[first..first + rows], values);
    }

    /// Fills `factors` with those of consecutive elements of a row, from `element` on.
    pub(crate) fn fill(&self, row: usize, element: usize, factors: &mut [f32]) {
        let part = RowPart { node: self.nodes[row], first: element as u64, len: factors.len() };
        self.dropout.fill([part].into_iter(), factors);
    }
}
