//! Labels and values of edges in the rows of tables.

use morphgl_graph_store::Result;

use super::nodes::Targets;
use super::nodes::labels::{Labelled, Labels};
use crate::tabular::{Batch, TableFile};

/// Labels and values of edges, row by row.
#[derive(Default)]
pub(super) struct LabelledRows {
    pub(super) labels: Option<Labels>,
    pub(super) targets: Option<Targets>,
}

impl LabelledRows {
    /// Appends the rows of a batch; `label` and `targets` are its columns.
    pub(super) fn read(
        &mut self,
        file: &TableFile<'_>,
        batch: &Batch,
        label: Option<usize>,
        targets: &[usize],
    ) -> Result<()> {
        if let Some(column) = label {
            let labels = self.labels.get_or_insert_with(|| Labels::new(Labelled::EDGES));
            labels.read(&file.path, batch, batch.column(column))?;
        }
        if !targets.is_empty() {
            let names =
                || file.header.named.then(|| targets.iter().map(|&i| file.names[i].trim().to_string()).collect());
            self.targets.get_or_insert_with(|| Targets::of_edges(names())).read(&file.path, batch, targets)?;
        }
        Ok(())
    }
}
