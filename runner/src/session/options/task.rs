//! What is learned.

use clap::Args;
use morphgl_model_core::{Decoder, LossKind, ModelSpec, Task};
use morphgl_registry::{NegativeDistribution, PairSettings};
use serde_json::Value;

use crate::usage::Usage;
use crate::values;

/// Length of the embeddings of links where none is given.
const EMBEDDING: usize = 64;

/// What is learned: the task, its loss, and of links the pairs.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Task")]
pub struct TaskOptions {
    /// What is learned. classify: the class of a node; multilabel: which of several labels a node has, or whether it has a single
    /// one; regress: real values of a node; link: whether two nodes have an edge, from the graph's edges where the dataset names
    /// no pairs
    #[arg(long, default_value = "classify")]
    pub task: Task,
    /// Loss: cross-entropy of classes; bce of labels; mse, mae or huber of values; bce, bpr or margin of pairs; or one of a linked
    /// crate, which `morphgl ops` lists [default: the first of the task]
    #[arg(long)]
    pub loss: Option<LossKind>,
    /// Setting of the loss, repeatable: label_smoothing and class_weights of cross-entropy (a weight per class, or balanced),
    /// positive_weight of bce, delta of huber, margin of margin; those of linked crates `morphgl ops --options` lists
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::named)]
    pub loss_option: Vec<(String, Value)>,
    /// Links: how the embeddings of two nodes score their pair: dot, distmult (weighted by a vector), or mlp (two layers)
    /// [default: dot]
    #[arg(long)]
    pub decoder: Option<Decoder>,
    /// Links: length of the embeddings [default: 64]
    #[arg(long, value_name = "WIDTH")]
    pub embedding: Option<usize>,
    /// How pairs are made.
    #[command(flatten)]
    pub pairs: PairOptions,
}

/// How the pairs of a mini-batch of links are made.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Task")]
pub struct PairOptions {
    /// Links: negatives that are drawn for each pair [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub negatives: Option<u32>,
    /// Links: what the destinations of negatives are drawn from: all nodes uniformly, or by in-degree^0.75, or the other
    /// destinations of the mini-batch [default: uniform]
    #[arg(
        long,
        value_name = "WHICH",
        value_parser = values::one_of::<NegativeDistribution, _>(["uniform", "degree", "in-batch"])
    )]
    pub negative_distribution: Option<NegativeDistribution>,
    /// Links: draw negatives again that are edges of the graph
    #[arg(long)]
    pub avoid_edges: bool,
    /// Links: sample the edges, too, that a mini-batch predicts; a model may then read the answer
    #[arg(long)]
    pub keep_target_edges: bool,
}

impl TaskOptions {
    /// The loss: the one that is given, or the task's first.
    pub(crate) fn loss(&self) -> LossKind {
        self.loss.unwrap_or(self.task.losses()[0])
    }

    /// Width of the model's output, for a dataset with this many classes, or labels or values.
    pub(crate) fn width(&self, of_dataset: usize) -> usize {
        if self.task == Task::Link { self.embedding.unwrap_or(EMBEDDING) } else { of_dataset }
    }

    /// How pairs are made; `None` where nodes are learned.
    pub(crate) fn pairs(&self) -> Option<PairSettings> {
        self.pairs.of(self.task)
    }

    /// The model with this task.
    pub(crate) fn set(&self, model: ModelSpec) -> ModelSpec {
        ModelSpec {
            task: self.task,
            decoder: self.decoder.unwrap_or_default(),
            loss: self.loss(),
            loss_settings: self.loss_option.iter().cloned().collect(),
            ..model
        }
    }

    /// Refuses options of links for another task, and links without negatives.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let of_links = [("decoder", self.decoder.is_some()), ("embedding", self.embedding.is_some())];
        check_of_links(&of_links, self.task)?;
        self.pairs.check(self.task)?;
        if self.embedding == Some(0) {
            return Err(Usage::error("--embedding 0: give a positive width"));
        }
        Ok(())
    }
}

impl PairOptions {
    /// The settings of pairs; `None` where nodes are learned.
    pub(crate) fn of(&self, task: Task) -> Option<PairSettings> {
        let default = PairSettings::default();
        (task == Task::Link).then(|| PairSettings {
            negatives: self.negatives.unwrap_or(default.negatives),
            distribution: self.negative_distribution.unwrap_or(default.distribution),
            avoid_edges: self.avoid_edges,
            exclude: !self.keep_target_edges,
        })
    }

    /// Refuses them for another task, and links without negatives.
    pub(crate) fn check(&self, task: Task) -> anyhow::Result<()> {
        let of_links = [
            ("negatives", self.negatives.is_some()),
            ("negative-distribution", self.negative_distribution.is_some()),
            ("avoid-edges", self.avoid_edges),
            ("keep-target-edges", self.keep_target_edges),
        ];
        check_of_links(&of_links, task)?;
        if self.negatives == Some(0) {
            return Err(Usage::error("--negatives 0: pairs that exist are told from others; give at least 1"));
        }
        Ok(())
    }
}

/// Refuses options of links, each with whether it is given, for another task.
fn check_of_links(options: &[(&str, bool)], task: Task) -> anyhow::Result<()> {
    match options.iter().find(|(_, given)| *given && task != Task::Link) {
        Some((option, _)) => {
            Err(Usage::error(format!("--{option}: the task {task} has no pairs; give --task link too")))
        }
        None => Ok(()),
    }
}
