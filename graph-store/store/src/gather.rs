//! Gather: copies scattered feature rows into one dense buffer, in their stored type.

use morphgl_platform::SimdLevel;
use rayon::prelude::*;

use crate::FeatureMatrix;

mod rows;

use rows::Stores;

/// Output size from which long rows are written by streaming stores: the output would overrun the caches.
const STREAM_BYTES: usize = 32 << 20;
/// Approximate bytes per task of the parallel gather.
const TASK_BYTES: usize = 512 << 10;

impl FeatureMatrix {
    /// Copies the rows `nodes`, in that order, into `out`.
    ///
    /// # Panics
    ///
    /// When a row does not exist, or `out` is not as long as the rows together.
    pub fn gather_rows(&self, nodes: &[u32], out: &mut [u8]) {
        let stores = Stores::of(out.len(), self.row_bytes());
        if let Some((rows, row_bytes)) = self.source(nodes, out) {
            rows::copy(SimdLevel::current(), stores, rows, row_bytes, nodes, out);
        }
    }

    /// As [`FeatureMatrix::gather_rows`], on the threads of the current rayon pool.
    ///
    /// # Panics
    ///
    /// As [`FeatureMatrix::gather_rows`].
    pub fn par_gather_rows(&self, nodes: &[u32], out: &mut [u8]) {
        let (level, stores) = (SimdLevel::current(), Stores::of(out.len(), self.row_bytes()));
        if let Some((rows, row_bytes)) = self.source(nodes, out) {
            // 64 rows are whole cache lines, so no two tasks write to the same line.
            let task_rows = (TASK_BYTES / row_bytes).max(1).next_multiple_of(64);
            let tasks = nodes.par_chunks(task_rows).zip(out.par_chunks_mut(task_rows * row_bytes));
            tasks.for_each(|(nodes, out)| rows::copy(level, stores, rows, row_bytes, nodes, out));
        }
    }

    /// All rows as bytes, and the bytes of one; `None` when there is nothing to copy.
    fn source(&self, nodes: &[u32], out: &[u8]) -> Option<(&[u8], usize)> {
        let row_bytes = self.row_bytes();
        assert_eq!(out.len(), nodes.len() * row_bytes, "bytes of the output and of the gathered rows");
        (row_bytes > 0).then(|| (self.view().as_bytes(), row_bytes))
    }
}

impl Stores {
    /// The stores for an output of `bytes` in rows of `row_bytes`.
    fn of(bytes: usize, row_bytes: usize) -> Self {
        if bytes < STREAM_BYTES || row_bytes < rows::streams_from(SimdLevel::current()) {
            Self::Cached
        } else {
            Self::Streaming
        }
    }
}

#[cfg(test)]
mod tests;
