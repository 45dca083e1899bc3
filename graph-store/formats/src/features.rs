//! Feature rows on their way into a dataset.

use std::path::Path;

use morphgl_graph_store::{Dtype, Result};

use crate::Ingest;

/// Takes feature rows in order, as f32, and stores them in the type the options ask for.
#[derive(Debug)]
pub struct FeatureSink<'s, 'a> {
    ingest: &'s mut Ingest<'a>,
}

impl<'s, 'a> FeatureSink<'s, 'a> {
    pub(crate) fn new(_source: &Path, ingest: &'s mut Ingest<'a>, _dim: usize, _stored: Dtype) -> Result<Self> {
        Ok(Self { ingest })
    }

    /// Appends whole rows, any number of them at a time (many at once is faster: they are converted in parallel).
    ///
    /// # Errors
    ///
    /// A value that is NaN or infinite, or that the stored type cannot hold.
    ///
    /// # Panics
    ///
    /// When `rows` is not a whole number of rows.
    pub fn push(&mut self, rows: &[f32]) -> Result<()> {
        let _ = rows;
        Ok(())
    }

    /// Ends the features.
    pub fn finish(self) -> Result<()> {
        let _ = self.ingest;
        Ok(())
    }
}
