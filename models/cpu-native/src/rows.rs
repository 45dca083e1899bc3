//! The rows a layer reads: those of its input, one after the other, or rows of the store, which lie far apart.

use std::ops::Range;

use morphgl_graph_store::{FeatureMatrix, FeatureView};

use crate::gather::widen;
use crate::prefetch::prefetch;

/// Rows of features.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) view: FeatureView<'a>,
    /// Which rows of the view they are; `None` where row i is row i.
    pub(crate) nodes: Option<Nodes<'a>>,
}

/// The nodes whose features the first layer reads out of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nodes<'a> {
    /// The node of each row.
    pub(crate) of_rows: &'a [u32],
    /// The node of each edge's source; empty where no sum reads the rows.
    pub(crate) of_edges: &'a [u32],
    pub(crate) store: &'a FeatureMatrix,
}

/// Bytes of rows that are asked for ahead of their use.
const BYTES_AHEAD: usize = 8192;

impl<'a> Rows<'a> {
    /// Rows that lie one after the other.
    pub(crate) fn local(view: FeatureView<'a>) -> Self {
        Self { view, nodes: None }
    }

    /// Floats of scratch that [`Rows::dense`] needs for rows of `len` elements together.
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
        let Some(Nodes { of_rows, store, .. }) = self.nodes else {
            return widen(self.view, rows.start * width..rows.end * width, out);
        };
        let ahead = (BYTES_AHEAD / (4 * width.max(1))).clamp(4, 64);
        if let FeatureView::F32(_) = self.view {
            store.gather_rows(&of_rows[rows.clone()], bytemuck::cast_slice_mut(out));
            // The next rows are on their way while these are worked on.
            of_rows[rows.end..].iter().take(ahead / 2).for_each(|&v| self.prefetch(v as usize * width, width));
            return;
        }
        for (i, out) in rows.zip(out.chunks_exact_mut(width.max(1))) {
            if let Some(&later) = of_rows.get(i + ahead) {
                self.prefetch(later as usize * width, width);
            }
            let node = of_rows[i] as usize;
            widen(self.view, node * width..(node + 1) * width, out);
        }
    }

    /// Writes rows `rows` as floats to `out`; returns them as rows of their own, and their numbers there.
    pub(crate) fn copied(self, rows: Range<usize>, width: usize, out: &'a mut [f32]) -> (Self, Range<usize>) {
        let count = rows.len();
        self.copy(rows, width, out);
        (Self::local(FeatureView::F32(out)), 0..count)
    }

    fn prefetch(&self, start: usize, len: usize) {
        match self.view {
            FeatureView::F32(x) => prefetch(x.as_ptr().wrapping_add(start), len),
            FeatureView::F16(x) => prefetch(x.as_ptr().wrapping_add(start), len),
            FeatureView::Bf16(x) => prefetch(x.as_ptr().wrapping_add(start), len),
            FeatureView::U8(x) => prefetch(x.as_ptr().wrapping_add(start), len),
        }
    }
}
