//! What is learned.

use clap::{Args, ValueEnum};
use morphgl_graph_store::{Dataset, negatives_per_pair};
use morphgl_model_core::{Decoder, LossKind, ModelKind, ModelSpec, Task};
use morphgl_registry::{NegativeDistribution, PairSettings};
use serde_json::Value;

use crate::task::Examples;
use crate::usage::Usage;
use crate::values;

/// Length of the embeddings of links and edges where none is given.
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
    /// Whose class, labels or values are learned: those of nodes, or of edges, from pairs that the dataset has labels or targets of
    #[arg(long, value_enum, default_value = "nodes")]
    pub on: On,
    /// Loss: cross-entropy of classes; bce of labels; mse, mae or huber of values; bce, bpr or margin of pairs; or one of a linked
    /// crate, which `morphgl ops` lists [default: the first of the task]
    #[arg(long)]
    pub loss: Option<LossKind>,
    /// Setting of the loss, repeatable: label_smoothing and class_weights of cross-entropy (a weight per class, or balanced),
    /// positive_weight of bce, delta of huber, margin of margin; those of linked crates `morphgl ops --options` lists
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::named)]
    pub loss_option: Vec<(String, Value)>,
    /// Links and edges: how the embeddings of two nodes score their pair: dot, distmult (weighted by a vector), or mlp (two layers), which
    /// alone gives an edge several outputs [default: dot of links, mlp of edges]
    #[arg(long)]
    pub decoder: Option<Decoder>,
    /// Links and edges: length of the embeddings [default: 64]
    #[arg(long, value_name = "WIDTH")]
    pub embedding: Option<usize>,
    /// How pairs are made.
    #[command(flatten)]
    pub pairs: PairOptions,
}

/// Whose class, labels or values are learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum On {
    /// Those of nodes.
    #[default]
    Nodes,
    /// Those of edges.
    Edges,
}

/// How the pairs of a mini-batch are made.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Task")]
pub struct PairOptions {
    /// Links: negatives of each pair [default: 1; of given ones all]
    #[arg(long, value_name = "COUNT")]
    pub negatives: Option<u32>,
    /// Links: what the destinations of negatives are drawn from: all nodes uniformly, or by in-degree^0.75, or the other
    /// destinations of the mini-batch, or the negatives that the dataset has of the pair [default: uniform]
    #[arg(
        long,
        value_name = "WHICH",
        value_parser = values::one_of::<NegativeDistribution, _>(["uniform", "degree", "in-batch", "given"])
    )]
    pub negative_distribution: Option<NegativeDistribution>,
    /// Links: draw negatives again that are edges of the graph
    #[arg(long)]
    pub avoid_edges: bool,
    /// Links and edges: sample the edges, too, that a mini-batch predicts; a model may then read the answer
    #[arg(long)]
    pub keep_target_edges: bool,
}

impl TaskOptions {
    /// The loss: the one that is given, or the task's first.
    pub(crate) fn loss(&self) -> LossKind {
        self.loss.unwrap_or(self.task.losses()[0])
    }

    /// The examples that are learned from.
    pub(crate) fn examples(&self) -> Examples {
        match (self.task, self.on) {
            (Task::Link, _) => Examples::Links,
            (_, On::Edges) => Examples::Edges,
            (_, On::Nodes) => Examples::Nodes,
        }
    }

    /// How pairs of a dataset are made; `None` where nodes are learned.
    pub(crate) fn pairs(&self, dataset: &Dataset) -> Option<PairSettings> {
        self.pairs.of(self.examples(), dataset)
    }

    /// The model with this task, for a dataset with this many classes, or labels or values.
    pub(crate) fn set(&self, model: ModelSpec, of_dataset: usize) -> ModelSpec {
        let examples = self.examples();
        // A custom model has a decoder of its own.
        let has_mlp = examples == Examples::Edges && model.kind != ModelKind::Custom;
        let default = if has_mlp { Decoder::Mlp } else { Decoder::default() };
        // Without layers, features are the embeddings as they are.
        let features = model.in_dim;
        let embedding = if model.kind == ModelKind::Embedding && features > 0 { features } else { EMBEDDING };
        ModelSpec {
            num_classes: if examples == Examples::Nodes { of_dataset } else { self.embedding.unwrap_or(embedding) },
            edge_outputs: if examples == Examples::Edges { of_dataset } else { 0 },
            task: self.task,
            decoder: self.decoder.unwrap_or(default),
            loss: self.loss(),
            loss_settings: self.loss_option.iter().cloned().collect(),
            ..model
        }
    }

    /// Refuses options of links and edges for nodes, those of links for edges, and links without negatives.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.task == Task::Link && self.on == On::Edges {
            return Err(Usage::error(
                "--on edges: of links it is learned whether they exist; leave it out, or name another --task",
            ));
        }
        let of_pairs = [("decoder", self.decoder.is_some()), ("embedding", self.embedding.is_some())];
        check_of_pairs(&of_pairs, self.examples())?;
        self.pairs.check(self.examples())?;
        if self.embedding == Some(0) {
            return Err(Usage::error("--embedding 0: give a positive width"));
        }
        Ok(())
    }
}

impl PairOptions {
    /// The settings of a dataset's pairs; `None` where nodes are learned.
    pub(crate) fn of(&self, examples: Examples, dataset: &Dataset) -> Option<PairSettings> {
        let default = PairSettings::default();
        let distribution = self.negative_distribution.unwrap_or(default.distribution);
        let edges = &dataset.edges;
        let given = || negatives_per_pair(&edges.train_pairs(&dataset.topology), edges.train_negative_pairs());
        let all = (distribution == NegativeDistribution::Given).then(given).flatten();
        let negatives = || self.negatives.unwrap_or(all.map_or(default.negatives, |count| count as u32));
        (examples != Examples::Nodes).then(|| PairSettings {
            negatives: if examples == Examples::Links { negatives() } else { 0 },
            distribution,
            avoid_edges: self.avoid_edges,
            exclude: !self.keep_target_edges,
        })
    }

    /// Refuses them for nodes, negatives for edges, and links without negatives.
    pub(crate) fn check(&self, examples: Examples) -> anyhow::Result<()> {
        let of_links = [
            ("negatives", self.negatives.is_some()),
            ("negative-distribution", self.negative_distribution.is_some()),
            ("avoid-edges", self.avoid_edges),
        ];
        check_of_pairs(&of_links, examples)?;
        check_of_pairs(&[("keep-target-edges", self.keep_target_edges)], examples)?;
        if let Some((option, _)) = of_links.iter().find(|(_, given)| *given && examples == Examples::Edges) {
            return Err(Usage::error(format!(
                "--{option}: labelled edges are learned without negatives; leave it out"
            )));
        }
        if self.negatives == Some(0) {
            return Err(Usage::error("--negatives 0: pairs that exist are told from others; give at least 1"));
        }
        if self.avoid_edges && self.negative_distribution == Some(NegativeDistribution::Given) {
            let why = "given negatives are not drawn again where they are edges";
            return Err(Usage::error(format!("--avoid-edges: {why}; leave it out")));
        }
        Ok(())
    }
}

/// Refuses options of pairs, each with whether it is given, for nodes.
fn check_of_pairs(options: &[(&str, bool)], examples: Examples) -> anyhow::Result<()> {
    match options.iter().find(|(_, given)| *given && examples == Examples::Nodes) {
        Some((option, _)) => Err(Usage::error(format!(
            "--{option}: nodes are learned, not pairs of them; give --task link or --on edges too"
        ))),
        None => Ok(()),
    }
}
