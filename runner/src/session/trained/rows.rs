//! Predictions of rows of a task: nodes at times.

use std::path::Path;
use std::sync::Arc;

use morphgl_graph_store::{Dataset, TaskRows};

use super::Trained;
use super::predict::{Predicted, Predictions};
use super::read::read_rows;
use crate::examples;
use crate::usage::Usage;

impl Trained {
    /// Whether rows of the dataset's task are predicted, in place of nodes.
    pub fn predicts_rows(&self) -> bool {
        examples::are_rows(&self.dataset)
    }

    /// Predicts the class, labels or values of rows of the dataset's task, on mini-batches sampled within their times: of `all` of them, of
    /// those of a split (`train`, `valid`, `test`), or of a file with a node, as the graph's source has it, and a time per line.
    ///
    /// # Errors
    ///
    /// A dataset without a task, or a model of links or edges; a file that cannot be read, or a line of it that is no row; too little memory;
    /// a failing operator, or rank.
    pub fn predict_rows(&mut self, wanted: &Path) -> anyhow::Result<Predictions> {
        let dataset = Arc::clone(&self.dataset);
        let Some(task) = &dataset.task_rows else {
            let what = "the dataset has no task with rows, or the model predicts pairs";
            return Err(Usage::error(format!("--rows {}: {what}; leave it out", wanted.display())));
        };
        let of_task = |rows: Vec<u32>| (Arc::clone(&dataset), rows);
        let (dataset, rows) = match wanted.to_str().unwrap_or_default() {
            "all" => of_task((0..task.len() as u32).collect()),
            "train" => of_task(dataset.splits.train.to_vec()),
            "valid" => of_task(dataset.splits.valid.to_vec()),
            "test" => of_task(dataset.splits.test.to_vec()),
            _ => {
                let types = dataset.topology.types();
                let of = types.zip(task.nodes().first()).map(|(types, &node)| types.node_type(node));
                let (nodes, times) = read_rows(wanted, &dataset, self.names.as_ref(), of)?;
                let rows = TaskRows::new(nodes, times, dataset.num_nodes()).map_err(anyhow::Error::msg)?;
                let all = (0..rows.len() as u32).collect();
                let none = Dataset::new("", dataset.topology.clone());
                // Nothing is known of these rows.
                let Dataset { labels, targets, splits, .. } = none;
                (Arc::new(Dataset { task_rows: Some(rows), labels, targets, splits, ..(*dataset).clone() }), all)
            }
        };
        if let Some(ranks) = self.context.ranks() {
            ranks.check_nodes(&rows)?;
        }
        let outputs = match rows[..] {
            [] => Vec::new(),
            _ => self.sampled(&dataset, &rows, |sampled| sampled.outputs(&rows))?,
        };
        let threads = self.config.num_threads(self.context.registry());
        let ranks = self.context.ranks().map(|ranks| ranks.inference_summary(threads)).transpose()?;
        let task = dataset.task_rows.as_ref().expect("rows of a task");
        let id = |&row: &u32| [self.id(task.nodes()[row as usize]), task.times()[row as usize].into()];
        Ok(self.predictions(Predicted::Rows(rows.iter().map(id).collect()), outputs, ranks))
    }
}
