//! Classes, labels and values of nodes, and scores of pairs.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use morphgl_graph_store::{Dataset, NodeNames};
use morphgl_model_core::Task;
use morphgl_platform::{excerpt, open_regular, text};
use serde_json::Value;

use super::Trained;
use crate::links::{Embedded, decoder_elements};
use crate::usage::Usage;

/// Maximum bytes of a line of a file of nodes: an id or a name.
const MAX_LINE: u64 = 64 << 10;
/// Characters of a line in a message.
const QUOTED: usize = 100;

/// What is predicted for nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// What the model predicts.
    pub task: Task,
    /// The nodes' ids or names, as the graph's source has them.
    pub ids: Vec<Value>,
    /// The predicted class of each; none of labels and values.
    pub classes: Vec<i32>,
    /// The predicted class's probability; none of labels and values.
    pub probabilities: Vec<f64>,
    /// Of each node, row after row: the probability of every class or label, or the values.
    pub outputs: Vec<f32>,
    /// Number of classes, labels or values of a node.
    pub width: usize,
    /// Names of the classes, where the model has them.
    pub class_names: Option<Vec<String>>,
    /// Names of the labels or values, where the model has them.
    pub target_names: Option<Vec<String>>,
    /// What each rank of MPI did, as JSON and in words. Of several ranks the first alone has predictions.
    pub ranks: Option<(Value, String)>,
}

impl Predictions {
    /// The name of each column of the outputs: of classes, labels or values; numbers where they have none.
    pub fn columns(&self) -> Vec<String> {
        let names = self.class_names.as_ref().or(self.target_names.as_ref());
        names.cloned().unwrap_or_else(|| (0..self.width).map(|column| column.to_string()).collect())
    }
}

/// The scores of pairs of nodes: how likely a link is, higher where it is likelier.
#[derive(Debug, Clone, PartialEq)]
pub struct PairScores {
    /// Source and destination of each pair, as the graph's source has them.
    pub ids: Vec<[Value; 2]>,
    /// The score of each.
    pub scores: Vec<f32>,
}

impl Trained {
    /// The nodes that `wanted` names: `all`, those of a split (`train`, `valid`, `test`), or those of a file with one id or name per line, as
    /// the graph's source has them.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or a line of it that is no node.
    pub fn nodes(&self, wanted: &Path) -> anyhow::Result<Vec<u32>> {
        let dataset = &self.dataset;
        Ok(match wanted.to_str().unwrap_or_default() {
            "all" => (0..dataset.num_nodes() as u32).collect(),
            "train" => dataset.splits.train.to_vec(),
            "valid" => dataset.splits.valid.to_vec(),
            "test" => dataset.splits.test.to_vec(),
            _ => read_nodes(wanted, dataset, self.names.as_ref())?,
        })
    }

    /// What the model predicts.
    pub fn task(&self) -> Task {
        self.config.spec.model.task
    }

    /// Predicts the classes, labels or values of these nodes, with all of their neighbours.
    ///
    /// # Errors
    ///
    /// A model of links; too little memory; a failing operator, or rank.
    pub fn predict(&mut self, nodes: &[u32]) -> anyhow::Result<Predictions> {
        if self.task() == Task::Link {
            return Err(Usage::error("the model predicts links, not nodes; give pairs of nodes by --edges FILE"));
        }
        self.check_memory()?;
        let (mut outputs, ranks) = match self.context.ranks() {
            None => (self.training.infer(nodes)?, None),
            Some(ranks) => {
                ranks.check_nodes(nodes)?;
                let outputs = ranks.group.infer(self.training.as_mut(), nodes)?;
                (outputs, Some(ranks.inference_summary(self.config.num_threads(self.context.registry()))?))
            }
        };
        let (task, width) = (self.task(), self.config.spec.model.num_classes);
        let (mut classes, mut probabilities) = (Vec::new(), Vec::new());
        match task {
            Task::Classify => {
                (classes, probabilities) = outputs.chunks_exact(width).map(classify).unzip();
                outputs.chunks_exact_mut(width).for_each(softmax);
            }
            Task::Multilabel => outputs.iter_mut().for_each(|x| *x = (1.0 / (1.0 + (-f64::from(*x)).exp())) as f32),
            Task::Regress | Task::Link => {}
        }
        let ids = nodes.iter().map(|&v| self.id(v)).collect();
        let (class_names, target_names) = (self.class_names.clone(), self.target_names.clone());
        Ok(Predictions { task, ids, classes, probabilities, outputs, width, class_names, target_names, ranks })
    }

    /// Scores the pairs of a file by their embeddings, with all neighbours: two ids or names a line, source and destination, separated by
    /// a comma, a tab or spaces.
    ///
    /// # Errors
    ///
    /// A model of nodes, ranks of MPI, a file that cannot be read or a line of it that is no pair; as [`Trained::predict`].
    pub fn score_pairs(&mut self, file: &Path) -> anyhow::Result<PairScores> {
        if self.task() != Task::Link {
            let what =
                format!("--edges: the model of the task {} predicts nodes, not links; give --nodes", self.task());
            return Err(Usage::error(what));
        }
        if self.context.ranks().is_some() {
            return Err(Usage::error("--edges: pairs are scored by one process; leave mpirun out"));
        }
        self.check_memory()?;
        let pairs = read_pairs(file, &self.dataset, self.names.as_ref())?;
        let model = self.config.spec.model.clone();
        let num_nodes = self.dataset.num_nodes();
        let embedded = Embedded::of(self.training.as_mut(), num_nodes, pairs.iter().copied(), None)?;
        let decoder = decoder_elements(&model, self.training.parameters()?);
        let scores = model.decoder.scores(&embedded.rows, model.num_classes, &embedded.pairs, &decoder);
        Ok(PairScores { ids: pairs.iter().map(|pair| pair.map(|v| self.id(v))).collect(), scores })
    }

    fn check_memory(&self) -> anyhow::Result<()> {
        match self.inference.obstacle() {
            Some(why) => {
                anyhow::bail!("{}: {why}; allow more memory, or map its files with --mmap", self.dataset.name)
            }
            None => Ok(()),
        }
    }

    /// A node as the graph's source has it: import may have renumbered the nodes.
    fn id(&self, v: u32) -> Value {
        match (&self.names, &self.dataset.node_ids) {
            (Some(names), _) => Value::from(String::from_utf8_lossy(names.get(v))),
            (None, Some(ids)) => ids[v as usize].into(),
            (None, None) => v.into(),
        }
    }
}

/// The nodes of a file of ids of the graph's source.
fn read_nodes(path: &Path, dataset: &Dataset, names: Option<&NodeNames>) -> anyhow::Result<Vec<u32>> {
    let cure = "--nodes takes all, train, valid, test or a file of ids";
    let find = NodeFinder::new(dataset, names);
    let mut nodes = Vec::new();
    each_line(path, cure, "give one id per line", |line, at| {
        nodes.push(find.node(line, at)?);
        Ok(())
    })?;
    Ok(nodes)
}

/// The pairs of a file of two ids a line.
fn read_pairs(path: &Path, dataset: &Dataset, names: Option<&NodeNames>) -> anyhow::Result<Vec<[u32; 2]>> {
    let cure = "--edges takes a file of two ids a line";
    let find = NodeFinder::new(dataset, names);
    let mut pairs = Vec::new();
    each_line(path, cure, "give two ids per line", |line, at| {
        let ends = line.split_once(['\t', ',']).or_else(|| line.split_once(char::is_whitespace));
        let Some((from, to)) = ends.map(|(from, to)| (from.trim(), to.trim())) else {
            let line = excerpt(line, QUOTED);
            anyhow::bail!("{at}: {line:?} is no pair; give source and destination, separated by a comma or a space");
        };
        pairs.push([find.node(from, at)?, find.node(to, at)?]);
        Ok(())
    })?;
    Ok(pairs)
}

/// Calls `read` with each line that is not empty, and the place of it for errors.
fn each_line(
    path: &Path,
    cure: &str,
    shorter: &str,
    mut read: impl FnMut(&str, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let cannot = || format!("{}: cannot be read; {cure}", path.display());
    let mut file = BufReader::new(open_regular(path).with_context(cannot)?);
    for number in 1.. {
        let mut line = Vec::new();
        let length = file.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line).with_context(cannot)?;
        if length == 0 {
            break;
        }
        let at = format!("{}, line {number}", path.display());
        if length as u64 > MAX_LINE {
            anyhow::bail!("{at}: it is longer than {MAX_LINE} bytes; {shorter}");
        }
        let line = text(line).with_context(|| at.clone())?;
        if !line.trim().is_empty() {
            read(line.trim(), &at)?;
        }
    }
    Ok(())
}

/// Finds nodes by their ids or names in the graph's source.
struct NodeFinder<'a> {
    num_nodes: usize,
    by_id: Option<HashMap<u64, u32>>,
    names: Option<&'a NodeNames>,
}

impl<'a> NodeFinder<'a> {
    fn new(dataset: &Dataset, names: Option<&'a NodeNames>) -> Self {
        let by_id = dataset.node_ids.as_ref().map(|ids| ids.iter().copied().zip(0..).collect());
        Self { num_nodes: dataset.num_nodes(), by_id, names }
    }

    /// The node of this id or name; `at` is its place, for errors.
    fn node(&self, text: &str, at: &str) -> anyhow::Result<u32> {
        let id = text.parse::<u64>().ok();
        let node = match (self.names, &self.by_id) {
            (Some(names), _) => names.find(text.as_bytes()),
            (None, Some(by_id)) => id.and_then(|id| by_id.get(&id).copied()),
            (None, None) => id.and_then(|id| u32::try_from(id).ok()).filter(|&v| (v as usize) < self.num_nodes),
        };
        node.with_context(|| {
            let cure = match &self.by_id {
                _ if self.names.is_some() => "give names as the graph's source has them".to_string(),
                Some(_) => "give ids as the graph's source has them".to_string(),
                None => format!("give ids from 0 to below {}", self.num_nodes),
            };
            format!("{at}: {:?} is no node; {cure}", excerpt(text, QUOTED))
        })
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
