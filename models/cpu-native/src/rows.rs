//! Input rows of a layer: consecutive rows of a matrix, or scattered rows of the feature store.

use std::ops::Range;

use morphgl_graph_store::{FeatureMatrix, FeatureView};

use crate::prefetch::prefetch;

/// Rows of features.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InputRows<'a> {
    pub(crate) view: FeatureView<'a>,
    /// Node ids of the rows in the store; `None` where row i of the layer is row i of the view.
    pub(crate) nodes: Option<NodeIds<'a>>,
}

/// Node ids whose features the first layer reads from the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeIds<'a> {
    /// The node of each row.
    pub(crate) of_rows: &'a [u32],
    /// The node of each edge's source; empty where no aggregation reads the rows.
    pub(crate) of_edges: &'a [u32],
    pub(crate) store: &'a FeatureMatrix,
}

/// Bytes of rows that are prefetched.
const BYTES_AHEAD: usize = 8192;

impl<'a> InputRows<'a> {
    /// Consecutive rows of f32.
    pub(crate) fn dense_f32(values: &'a [f32]) -> Self {
        Self { view: FeatureView::F32(values), nodes: None }
    }

    /// Floats of scratch that [`InputRows::dense`] needs for rows of `len` elements together.
    pub(crate) fn scratch(&self, len: usize) -> usize {
        if self.nodes.is_none() && matches!(self.view, FeatureView::F32(_)) { 0 } else { len }
    }

    /// Rows `rows` as floats: a slice of the matrix that goes on to its end, so that the next rows can be prefetched, or a
    /// copy in `scratch`.
    pub(crate) fn dense(self, rows: Range<usize>, width: usize, scratch: &'a mut [f32]) -> &'a [f32] {
        if let (None, FeatureView::F32(x)) = (self.nodes, self.view) {
            return &x[rows.start * width..];
        }
        let out = &mut scratch[..rows.len() * width];
        self.copy(rows, width, out);
        out
    }

    /// Writes rows `rows` as floats.
    pub(crate) fn copy(self, rows: Range<usize>, width: usize, out: &mut [f32]) {
        let Some(NodeIds { of_rows, store, .. }) = self.nodes else {
            return self.view.part(rows.start * width, rows.len() * width).to_f32(out);
        };
        let ahead = (BYTES_AHEAD / (4 * width.max(1))).clamp(4, 64);
        if let FeatureView::F32(_) = self.view {
            store.gather_rows(&of_rows[rows.clone()], bytemuck::cast_slice_mut(out));
            // The next block's rows arrive while this block is multiplied.
            return of_rows[rows.end..].iter().take(ahead / 2).for_each(|&v| prefetch_row(store, v));
        }
        for (i, out) in rows.zip(out.chunks_exact_mut(width.max(1))) {
            if let Some(&later) = of_rows.get(i + ahead) {
                prefetch_row(store, later);
            }
            self.view.part(of_rows[i] as usize * width, width).to_f32(out);
        }
    }

    /// Writes rows `rows` as floats to `out`, and returns them as rows with their range there.
    pub(crate) fn copied(self, rows: Range<usize>, width: usize, out: &'a mut [f32]) -> (Self, Range<usize>) {
        let count = rows.len();
        self.copy(rows, width, out);
        (Self::dense_f32(out), 0..count)
    }
}

fn prefetch_row(store: &FeatureMatrix, node: u32) {
    let row_bytes = store.row_bytes();
    prefetch(store.view().as_bytes().as_ptr().wrapping_add(node as usize * row_bytes), row_bytes);
}
