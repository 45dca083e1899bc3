//! Classes of nodes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use morphgl_graph_store::{Dataset, NodeNames};
use morphgl_platform::{excerpt, open_regular, text};
use serde_json::Value;

use super::Trained;

/// Maximum bytes of a line of a file of nodes: an id or a name.
const MAX_LINE: u64 = 64 << 10;
/// Characters of a line in a message.
const QUOTED: usize = 100;

/// The predicted classes of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// The nodes' ids or names, as the graph's source has them.
    pub ids: Vec<Value>,
    /// The predicted class of each.
    pub classes: Vec<i32>,
    /// The predicted class's probability.
    pub probabilities: Vec<f64>,
    /// Names of the classes, where the model has them.
    pub class_names: Option<Vec<String>>,
    /// What each rank of MPI did, as JSON and in words. Of several ranks the first alone has predictions.
    pub ranks: Option<(Value, String)>,
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

    /// Predicts the classes of these nodes, with all of their neighbours.
    ///
    /// # Errors
    ///
    /// Too little memory for that; a failing operator, or rank.
    pub fn predict(&mut self, nodes: &[u32]) -> anyhow::Result<Predictions> {
        if let Some(why) = self.inference.obstacle() {
            anyhow::bail!("{}: {why}; allow more memory, or map its files with --mmap", self.dataset.name);
        }
        let (logits, ranks) = match self.context.ranks() {
            None => (self.training.infer(nodes)?, None),
            Some(ranks) => {
                ranks.check_nodes(nodes)?;
                let logits = ranks.group.infer(self.training.as_mut(), nodes)?;
                (logits, Some(ranks.inference_summary(self.config.num_threads(self.context.registry()))?))
            }
        };
        let predicted = logits.chunks_exact(self.config.spec.model.num_classes).map(classify);
        let (classes, probabilities) = predicted.unzip();
        let ids = nodes.iter().map(|&v| self.id(v)).collect();
        Ok(Predictions { ids, classes, probabilities, class_names: self.class_names.clone(), ranks })
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
    let cannot =
        || format!("{}: cannot be read; --nodes takes all, train, valid, test or a file of ids", path.display());
    let mut file = BufReader::new(open_regular(path).with_context(cannot)?);
    let num_nodes = dataset.num_nodes();
    let by_id: Option<HashMap<u64, u32>> = dataset.node_ids.as_ref().map(|ids| ids.iter().copied().zip(0..).collect());
    let mut nodes = Vec::new();
    for number in 1.. {
        let mut line = Vec::new();
        let read = file.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line).with_context(cannot)?;
        if read == 0 {
            break;
        }
        let at = || format!("{}, line {number}", path.display());
        if read as u64 > MAX_LINE {
            anyhow::bail!("{}: it is longer than {MAX_LINE} bytes; give one id per line", at());
        }
        let line = text(line).with_context(at)?;
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let id = line.parse::<u64>().ok();
        let node = match (names, &by_id) {
            (Some(names), _) => names.find(line.as_bytes()),
            (None, Some(by_id)) => id.and_then(|id| by_id.get(&id).copied()),
            (None, None) => id.and_then(|id| u32::try_from(id).ok()).filter(|&v| (v as usize) < num_nodes),
        };
        nodes.push(node.with_context(|| {
            let cure = match &by_id {
                _ if names.is_some() => "give names as the graph's source has them".to_string(),
                Some(_) => "give ids as the graph's source has them".to_string(),
                None => format!("give ids from 0 to below {num_nodes}"),
            };
            format!("{}: {:?} is no node; {cure}", at(), excerpt(line, QUOTED))
        })?);
    }
    Ok(nodes)
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
