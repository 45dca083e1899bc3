//! Classes, labels and values of nodes, and the rows of a layer.

use std::path::Path;
use std::sync::Arc;

use morphgl_model_core::Task;
use morphgl_registry::SingleProcess;
use serde_json::Value;

use super::Trained;
use super::read::read_nodes;
use crate::link_types;
use crate::usage::Usage;

/// What each rank of MPI did, as JSON and in words.
type RankSummary = (Value, String);

/// What predictions are of, by ids or names as the graph's source has them.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicted {
    /// Nodes.
    Nodes(Vec<Value>),
    /// Node and time of each row.
    Rows(Vec<[Value; 2]>),
    /// Source and destination of each edge.
    Edges(Vec<[Value; 2]>),
}

impl Predicted {
    /// What an entry is of, in the singular, and the names of its columns in csv.
    pub fn names(&self) -> (&'static str, &'static str) {
        match self {
            Self::Nodes(_) => ("node", "node"),
            Self::Rows(_) => ("row", "node,time"),
            Self::Edges(_) => ("pair", "source,target"),
        }
    }

    /// The node, the node and the time, or source and destination, of a row.
    pub fn row(&self, row: usize) -> &[Value] {
        match self {
            Self::Nodes(ids) => &ids[row..=row],
            Self::Rows(ids) | Self::Edges(ids) => &ids[row],
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Nodes(ids) => ids.len(),
            Self::Rows(ids) | Self::Edges(ids) => ids.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All ids, row after row.
    pub fn ids(&self) -> &[Value] {
        match self {
            Self::Nodes(ids) => ids,
            Self::Rows(ids) | Self::Edges(ids) => ids.as_flattened(),
        }
    }
}

/// What is predicted for nodes or edges.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// What the model predicts.
    pub task: Task,
    /// The nodes, or the ends of the edges.
    pub of: Predicted,
    /// The predicted class of each; none of labels and values.
    pub classes: Vec<i32>,
    /// The predicted class's probability; none of labels and values.
    pub probabilities: Vec<f64>,
    /// Of each node or edge, row after row: the probability of every class or label, or the values.
    pub outputs: Vec<f32>,
    /// Number of classes, labels or values of each.
    pub width: usize,
    /// Names of the classes, where the model has them.
    pub class_names: Option<Vec<String>>,
    /// Names of the labels or values, where the model has them.
    pub target_names: Option<Vec<String>>,
    /// What each rank of MPI did. Of several ranks the first alone has predictions.
    pub ranks: Option<RankSummary>,
}

/// Rows of a layer for nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Embeddings {
    /// The layer, from 1.
    pub layer: usize,
    /// Of each node, row after row.
    pub rows: Vec<f32>,
    /// Length of a row.
    pub width: usize,
    /// As [`Predictions::ranks`].
    pub ranks: Option<RankSummary>,
}

impl Predictions {
    /// The name of each column of the outputs: of classes, labels or values; numbers where they have none.
    pub fn columns(&self) -> Vec<String> {
        let names = self.class_names.as_ref().or(self.target_names.as_ref());
        names.cloned().unwrap_or_else(|| (0..self.width).map(|column| column.to_string()).collect())
    }
}

impl Trained {
    /// The nodes that `wanted` names: `all`, those of a split (`train`, `valid`, `test`), or those of a file with one id or name per line, as
    /// the graph's source has them.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or a line of it that is no node; a dataset with a task, whose rows are predicted.
    pub fn nodes(&self, wanted: &Path) -> anyhow::Result<Vec<u32>> {
        let dataset = &self.dataset;
        if self.predicts_rows() {
            let cure =
                "leave --nodes and --embeddings out; --rows takes all, train, valid, test or a file of nodes and times";
            return Err(Usage::error(format!("{}: rows of its task are predicted, not nodes; {cure}", dataset.name)));
        }
        Ok(match wanted.to_str().unwrap_or_default() {
            "all" => (0..dataset.num_nodes() as u32).collect(),
            "train" => dataset.splits.train.to_vec(),
            "valid" => dataset.splits.valid.to_vec(),
            "test" => dataset.splits.test.to_vec(),
            _ => {
                let of_pairs = if self.task() == Task::Link { link_types::of_pairs(dataset) } else { None };
                read_nodes(wanted, dataset, self.names.as_ref(), of_pairs.map(|types| types[0]))?
            }
        })
    }

    /// What the model predicts.
    pub fn task(&self) -> Task {
        self.config.spec.model.task
    }

    /// Predicts the classes, labels or values of these nodes, with all of their neighbours or as [`Trained::predict_by`] says.
    ///
    /// # Errors
    ///
    /// A model of links or edges, or rows of a task; too little memory; a failing operator, or rank.
    pub fn predict(&mut self, nodes: &[u32]) -> anyhow::Result<Predictions> {
        let model = &self.config.spec.model;
        if model.learns_pairs() {
            let what = if model.learns_edges() { "edges" } else { "links" };
            return Err(Usage::error(format!(
                "the model predicts {what}, not nodes; give pairs of nodes by --edges FILE"
            )));
        }
        if self.predicts_rows() {
            return Err(Usage::error("the dataset has a task, whose rows are predicted in place of nodes"));
        }
        self.check_memory()?;
        let layers = model.layers;
        let (outputs, ranks) = match self.predicts_sampled {
            true => (self.outputs(nodes)?, self.summary()?),
            false => self.rows(nodes, layers)?,
        };
        let ids = nodes.iter().map(|&v| self.id(v)).collect();
        Ok(self.predictions(Predicted::Nodes(ids), outputs, ranks))
    }

    /// Predictions of the outputs of a model, of classes, labels or values.
    pub(super) fn predictions(&self, of: Predicted, mut outputs: Vec<f32>, ranks: Option<RankSummary>) -> Predictions {
        let (task, width) = (self.task(), self.config.spec.model.target_width());
        let (mut classes, mut probabilities) = (Vec::new(), Vec::new());
        match task {
            Task::Classify => {
                (classes, probabilities) = outputs.chunks_exact(width).map(classify).unzip();
                outputs.chunks_exact_mut(width).for_each(softmax);
            }
            Task::Multilabel => outputs.iter_mut().for_each(|x| *x = (1.0 / (1.0 + (-f64::from(*x)).exp())) as f32),
            Task::Regress | Task::Link => {}
        }
        let (class_names, target_names) = (self.class_names.clone(), self.target_names.clone());
        Predictions { task, of, classes, probabilities, outputs, width, class_names, target_names, ranks }
    }

    /// The rows of these nodes after a layer, with all of their neighbours: after `layer`, from 1; by default after the last one of a model of
    /// links or edges, else after the last one but one, which the last one makes predictions of.
    ///
    /// # Errors
    ///
    /// No such layer; as [`Trained::predict`].
    pub fn embeddings(&mut self, nodes: &[u32], layer: Option<usize>) -> anyhow::Result<Embeddings> {
        let model = &self.config.spec.model;
        let default = if model.learns_pairs() { model.layers } else { model.layers - 1 };
        let layer = layer.unwrap_or(default);
        if layer == 0 || layer > model.layers {
            let cure =
                format!("the model has {}; give --layer 1 to {0}, of which the last is its output", model.layers);
            return Err(Usage::error(format!("--layer {layer}: there is no such layer, {cure}")));
        }
        let width = model.layer(layer - 1).out_dim;
        if self.predicts_sampled {
            return Err(Usage::error(
                "--evaluation sampled: rows of a layer are computed with all neighbours; leave it out",
            ));
        }
        self.check_memory()?;
        let (rows, ranks) = self.rows(nodes, layer)?;
        Ok(Embeddings { layer, rows, width, ranks })
    }

    /// The rows of nodes after so many layers, and what each rank did.
    fn rows(&mut self, nodes: &[u32], layers: usize) -> anyhow::Result<(Vec<f32>, Option<RankSummary>)> {
        let Some(ranks) = self.context.ranks() else {
            let all = self.config.spec.model.layers;
            // Operators need not have rows of other layers.
            let rows = match layers == all {
                true => self.training.infer(nodes)?,
                false => self.training.embed(nodes, layers, &mut SingleProcess)?,
            };
            return Ok((rows, None));
        };
        ranks.check_nodes(nodes)?;
        ranks.check_same(&[("--layer".to_string(), layers.to_string())])?;
        let rows = match layers == self.config.spec.model.layers {
            true => ranks.group.infer(self.training.as_mut(), nodes)?,
            false => ranks.group.embed(self.training.as_mut(), nodes, layers)?,
        };
        Ok((rows, self.summary()?))
    }

    /// Outputs of nodes on sampled mini-batches that have them as seeds.
    pub(super) fn outputs(&mut self, nodes: &[u32]) -> anyhow::Result<Vec<f32>> {
        self.batch().check_sampling(&self.config.spec.model)?;
        self.batch().differences().iter().for_each(|how| self.context.remark(how));
        if let Some(ranks) = self.context.ranks() {
            ranks.check_nodes(nodes)?;
        }
        let dataset = Arc::clone(&self.dataset);
        match nodes {
            [] => Ok(Vec::new()),
            _ => self.sampled(&dataset, nodes, |sampled| sampled.outputs(nodes)),
        }
    }

    /// What each rank did.
    fn summary(&self) -> anyhow::Result<Option<RankSummary>> {
        let threads = self.config.num_threads(self.context.registry());
        self.context.ranks().map(|ranks| ranks.inference_summary(threads)).transpose()
    }

    pub(super) fn check_memory(&self) -> anyhow::Result<()> {
        self.check_memory_with(0)
    }

    /// As [`Trained::check_memory`], with as many bytes besides.
    pub(super) fn check_memory_with(&self, bytes: u64) -> anyhow::Result<()> {
        match self.inference.with(bytes).obstacle() {
            Some(why) if !self.predicts_sampled => {
                anyhow::bail!(
                    "{}: {why}; allow more memory, map its files with --mmap, or give --evaluation sampled",
                    self.dataset.name
                )
            }
            _ => Ok(()),
        }
    }

    /// A node as the graph's source has it: import may have renumbered the nodes. Of a graph with types as `type:id`.
    pub(super) fn id(&self, v: u32) -> Value {
        match (self.dataset.topology.types(), &self.names) {
            (Some(types), None) => {
                let name = &types.node_types()[types.node_type(v)].name;
                format!("{name}:{}", self.own_id(v, None)).into()
            }
            _ => self.own_id(v, None),
        }
    }

    /// The id of a node among those of its type, by default its number there; the name without the type, where that is `known`.
    pub(super) fn own_id(&self, v: u32, known: Option<usize>) -> Value {
        match (&self.names, &self.dataset.node_ids) {
            (Some(names), _) => {
                let (name, types) = (String::from_utf8_lossy(names.get(v)), self.dataset.topology.types());
                let of_type = types.zip(known).map(|(types, known)| &types.node_types()[known].name);
                let own = of_type.and_then(|of| name.strip_prefix(of.as_str())?.strip_prefix(':'));
                Value::from(own.unwrap_or(&name))
            }
            (None, Some(ids)) => ids[v as usize].into(),
            (None, None) => {
                let first = self.dataset.topology.types().map_or(0, |types| types.range(types.node_type(v)).start);
                (v - first).into()
            }
        }
    }
}

/// Replaces a row of logits by their softmax.
fn softmax(row: &mut [f32]) {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|&x| f64::from(x - max).exp()).sum();
    row.iter_mut().for_each(|x| *x = (f64::from(*x - max).exp() / sum) as f32);
}

/// The predicted class of a row of logits, the first of equal ones, and its probability.
fn classify(logits: &[f32]) -> (i32, f64) {
    let (mut class, mut max) = (0, f32::NEG_INFINITY);
    for (i, &x) in logits.iter().enumerate() {
        if x > max {
            (class, max) = (i, x);
        }
    }
    let sum: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
    (class as i32, 1.0 / sum)
}
