//! Copies scattered feature rows into one dense buffer, in the type they are stored with.

use morphgl_platform::SimdLevel;
use rayon::prelude::*;

use crate::FeatureMatrix;

mod rows;

use rows::Stores;

/// Bytes of output from which on rows are stored past the caches, which so many would overrun, where they are long enough.
const STREAM_BYTES: usize = 32 << 20;
/// Bytes a task of the parallel gather copies, about.
const TASK_BYTES: usize = 512 << 10;

impl FeatureMatrix {
    /// Copies the rows `nodes`, in that order, into `out`.
    ///
    /// # Panics
    ///
    /// When a row does not exist, or `out` is not as long as the rows together.
    pub fn gather_rows(&self, nodes: &[u32], out: &mut [u8]) {
        let stores = Stores::of(out.len(), self.row_bytes());
        if let Some((rows, row_bytes)) = self.gathered(nodes, out) {
            rows::copy(SimdLevel::current(), stores, rows, row_bytes, nodes, out);
        }
    }

    /// Does what [`FeatureMatrix::gather_rows`] does, spread over the threads of the current rayon pool.
    ///
    /// # Panics
    ///
    /// As [`FeatureMatrix::gather_rows`].
    pub fn par_gather_rows(&self, nodes: &[u32], out: &mut [u8]) {
        let (level, stores) = (SimdLevel::current(), Stores::of(out.len(), self.row_bytes()));
        if let Some((rows, row_bytes)) = self.gathered(nodes, out) {
            // So many rows are whole lines, and no two tasks write to one.
            let task_rows = (TASK_BYTES / row_bytes).max(1).next_multiple_of(64);
            let tasks = nodes.par_chunks(task_rows).zip(out.par_chunks_mut(task_rows * row_bytes));
            tasks.for_each(|(nodes, out)| rows::copy(level, stores, rows, row_bytes, nodes, out));
        }
    }

    /// All rows and the bytes of one, when there is anything to copy.
    fn gathered(&self, nodes: &[u32], out: &[u8]) -> Option<(&[u8], usize)> {
        let row_bytes = self.row_bytes();
        assert_eq!(out.len(), nodes.len() * row_bytes, "room for the gathered rows, and their bytes");
        (row_bytes > 0).then(|| (self.as_bytes(), row_bytes))
    }

    /// All elements as bytes, row after row.
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::F32 { data, .. } => bytemuck::cast_slice(data),
            Self::F16 { data, .. } => bytemuck::cast_slice(data),
            Self::Bf16 { data, .. } => bytemuck::cast_slice(data),
            Self::U8 { data, .. } => data,
        }
    }
}

impl Stores {
    /// How an output of `bytes` in rows of `row_bytes` is stored.
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
