//! Features in the columns of tables, row after row, and those of edges in a temporary file until the edges are written.

use std::fs;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Meta, NpyWriter, Result};

use super::features::push_edge_features;
use crate::Ingest;
use crate::files::quoted;
use crate::npy::open_array;
use crate::tabular::{Batch, TableFile, Values};

/// Columns of features of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FeatureCells<'c> {
    pub(crate) columns: &'c [usize],
    /// Whether the columns have names.
    pub(crate) are_named: bool,
    /// What the rows are: "node" or "edge".
    pub(crate) of: &'static str,
}

impl FeatureCells<'_> {
    /// Appends the features of the rows of a batch; returns their number in a row.
    ///
    /// # Errors
    ///
    /// A field that is no number, or has none.
    pub(crate) fn read(&self, file: &TableFile<'_>, batch: &Batch, rows: &mut Vec<f32>) -> Result<usize> {
        let values: Vec<_> = self.columns.iter().map(|&column| batch.column(column)).collect();
        let start = rows.len();
        for row in 0..batch.rows {
            for (values, &column) in values.iter().zip(self.columns) {
                if let Values::Vectors(dim, all) = values {
                    rows.extend_from_slice(&all[row * dim..][..*dim]);
                    continue;
                }
                let name = || match self.are_named {
                    true => format!("the feature {}", quoted(file.names[column].trim())),
                    false => format!("the feature in column {}", column + 1),
                };
                let what = match values.real(row) {
                    Ok(value) if !value.is_nan() => {
                        rows.push(value);
                        continue;
                    }
                    Ok(_) => format!("{} is missing", name()),
                    Err(text) => format!("{} is {}, no number", name(), quoted(&text)),
                };
                let cure = format!("give every {} a number, or leave the column out of the features", self.of);
                return Err(Error::invalid(&file.path, batch.position(row), what, cure));
            }
        }
        Ok((rows.len() - start).checked_div(batch.rows).unwrap_or(0))
    }
}

/// Rows of features of edges, in a temporary file of the unfinished dataset.
#[derive(Debug)]
pub(crate) struct EdgeFeatureSpool {
    path: PathBuf,
    dim: usize,
    out: NpyWriter<f32>,
}

impl EdgeFeatureSpool {
    /// A file of rows of `dim` values.
    pub(crate) fn create(ingest: &Ingest<'_>, dim: usize) -> Result<Self> {
        let path = ingest.dir().join("edge_features.spool.npy");
        let out = NpyWriter::create(&path)?;
        Ok(Self { path, dim, out })
    }

    /// Appends whole rows.
    pub(crate) fn write(&mut self, rows: &[f32]) -> Result<()> {
        self.out.write(rows)
    }

    /// Ends the file, which the caller removes.
    pub(crate) fn finish(self) -> Result<PathBuf> {
        self.out.finish(Some(self.dim))?;
        Ok(self.path)
    }

    /// Stores the rows as the features of the edges that were pushed, in their order; errors of values name `source`.
    pub(crate) fn store(self, ingest: &mut Ingest<'_>, source: &Path) -> Result<()> {
        let path = self.finish()?;
        let mut array = open_array(&path)?;
        array.path = source.to_path_buf();
        push_edge_features(ingest, array)?;
        fs::remove_file(&path).map_err(|e| Error::io(&path, e))
    }
}

impl Ingest<'_> {
    /// Describes the features of edges as those of each edge type, which all have rows in one file.
    pub(super) fn share_edge_features(&mut self, num_types: usize) {
        let names = (0..num_types).map(|number| Meta::edge_features_of(Some(number)));
        self.writer.rename(&Meta::edge_features_of(None), names);
    }
}
