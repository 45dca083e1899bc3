//! Examples of a dataset as seeds: its nodes, or the rows of its task, by their numbers.

use std::borrow::Cow;

use morphgl_graph_store::Dataset;
use morphgl_registry::{Result, SeedSet};

/// Seeds that are these examples; `what` names them in errors.
pub(crate) fn seeds(what: &str, examples: &[u32], dataset: &Dataset) -> Result<SeedSet> {
    match &dataset.task_rows {
        Some(rows) => SeedSet::of_rows(what, examples, rows, dataset.num_nodes()),
        None => SeedSet::new(what, examples, dataset.num_nodes()),
    }
}

/// The nodes of these examples.
pub(crate) fn nodes<'a>(examples: &'a [u32], dataset: &Dataset) -> Cow<'a, [u32]> {
    match &dataset.task_rows {
        Some(rows) => examples.iter().map(|&row| rows.nodes()[row as usize]).collect(),
        None => examples.into(),
    }
}

/// Whether examples are rows of a task: nodes at times, which are scored and predicted on mini-batches alone.
pub(crate) fn are_rows(dataset: &Dataset) -> bool {
    dataset.task_rows.is_some()
}

/// What an example is: `node` or `row`.
pub(crate) fn noun(dataset: &Dataset) -> &'static str {
    if are_rows(dataset) { "row" } else { "node" }
}
