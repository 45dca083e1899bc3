//! Scores of pairs, and the best partners of nodes, by a model of links.

use std::path::Path;

use morphgl_model_core::Task;
use serde_json::Value;

use super::read::read_pairs;
use super::{Predicted, Predictions, Trained};
use crate::edges;
use crate::links::{Ends, decoder_elements, known_pairs, pair_scores};
use crate::usage::Usage;

/// The scores of pairs of nodes: how likely a link is, higher where it is likelier.
#[derive(Debug, Clone, PartialEq)]
pub struct PairScores {
    /// Source and destination of each pair, as the graph's source has them.
    pub ids: Vec<[Value; 2]>,
    /// The score of each.
    pub scores: Vec<f32>,
}

/// The likeliest partners of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Partners {
    /// The nodes, as the graph's source has them.
    pub ids: Vec<Value>,
    /// Of each, the destinations of the highest scores, highest first.
    pub partners: Vec<Vec<Value>>,
    /// Their scores.
    pub scores: Vec<Vec<f32>>,
}

impl Trained {
    /// Scores the pairs of a file by their embeddings, with all neighbours: two ids or names a line, source and destination, separated by
    /// a comma, a tab or spaces.
    ///
    /// # Errors
    ///
    /// A model of nodes, ranks of MPI, a file that cannot be read or a line of it that is no pair; as [`Trained::predict`].
    pub fn score_pairs(&mut self, file: &Path) -> anyhow::Result<PairScores> {
        self.check_links("--edges")?;
        let pairs = read_pairs(file, &self.dataset, self.names.as_ref())?;
        let model = self.config.spec.model.clone();
        let num_nodes = self.dataset.num_nodes();
        let embedded = Ends::of(num_nodes, pairs.iter().copied()).embedded(self.training.as_mut(), None)?;
        let scores = pair_scores(self.training.as_mut(), &model, &embedded.rows, &embedded.pairs)?;
        Ok(PairScores { ids: pairs.iter().map(|pair| pair.map(|v| self.id(v))).collect(), scores })
    }

    /// Predicts the class, labels or values of the edges in a file, as [`Trained::score_pairs`] reads it.
    ///
    /// # Errors
    ///
    /// As [`Trained::score_pairs`], of a model that does not predict edges.
    pub fn predict_edges(&mut self, file: &Path) -> anyhow::Result<Predictions> {
        let model = self.config.spec.model.clone();
        if !model.learns_edges() {
            return Err(Usage::error("the model predicts no edges"));
        }
        self.check_one_process("--edges")?;
        let pairs = read_pairs(file, &self.dataset, self.names.as_ref())?;
        let num_nodes = self.dataset.num_nodes();
        let embedded = Ends::of(num_nodes, pairs.iter().copied()).embedded(self.training.as_mut(), None)?;
        let outputs = edges::outputs(self.training.as_ref(), &model, &embedded.rows, &embedded.pairs)?;
        let ids = pairs.iter().map(|pair| pair.map(|v| self.id(v))).collect();
        Ok(self.predictions(Predicted::Edges(ids), outputs, None))
    }

    /// Whether the model predicts the class, labels or values of edges.
    pub fn predicts_edges(&self) -> bool {
        self.config.spec.model.learns_edges()
    }

    /// The `k` destinations of the highest scores for each of these sources, of all nodes but the source itself and, unless
    /// `include_edges`, those it has an edge to: in the graph or in a split. There are fewer where no more nodes are left.
    ///
    /// # Errors
    ///
    /// A model of nodes, or ranks of MPI; as [`Trained::predict`].
    ///
    /// # Complexity
    ///
    /// Besides that of [`Trained::predict`] for all nodes, O(sources · nodes · width) time.
    pub fn best_partners(&mut self, sources: &[u32], k: usize, include_edges: bool) -> anyhow::Result<Partners> {
        self.check_links("--top")?;
        let model = self.config.spec.model.clone();
        let num_nodes = self.dataset.num_nodes();
        let embedded = Ends::among_all(num_nodes, std::iter::empty()).embedded(self.training.as_mut(), None)?;
        let decoder = decoder_elements(&model, self.training.parameters()?);
        let known = (!include_edges).then(|| known_pairs(&self.dataset));
        let rows = (&embedded.rows[..], model.num_classes);
        let best = model.decoder.best_partners(rows, &decoder, sources, k, known.as_ref());
        Ok(Partners {
            ids: sources.iter().map(|&v| self.id(v)).collect(),
            partners: best.iter().map(|best| best.iter().map(|partner| self.id(partner.node)).collect()).collect(),
            scores: best.iter().map(|best| best.iter().map(|partner| partner.score).collect()).collect(),
        })
    }

    /// Checks that pairs can be scored, as `option` asks for.
    fn check_links(&self, option: &str) -> anyhow::Result<()> {
        if self.task() != Task::Link {
            let task = self.task();
            if self.predicts_edges() {
                let what =
                    format!("{option}: the model predicts edges that exist, not whether they do; give --edges FILE");
                return Err(Usage::error(what));
            }
            return Err(Usage::error(format!(
                "{option}: the model of the task {task} predicts nodes, not links; give --nodes"
            )));
        }
        self.check_one_process(option)
    }

    fn check_one_process(&self, option: &str) -> anyhow::Result<()> {
        if self.context.ranks().is_some() {
            return Err(Usage::error(format!("{option}: pairs are scored by one process; leave mpirun out")));
        }
        self.check_memory()
    }
}
