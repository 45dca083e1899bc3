//! The model and its optimizer.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args};
use morphgl_model_core::{Activation, Attention, Decoder, ModelKind, ModelSpec, Normalization, OptimizerSpec};
use serde_json::Value;

use super::batch::MiniBatches;
use super::{OptimizerOptions, TaskOptions};
use crate::task::{Examples, Learned};
use crate::usage::Usage;
use crate::values;

/// The model and its optimizer.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelOptions {
    /// Kind of model: gcn, sage, gat, gin, or mlp (the features alone, for comparison); of typed graphs rgcn, rsage, rgat or hgt,
    /// with parameters per type; of links embedding, which has no layers; heads are read by gat, rgat and hgt alone, attention by gat and rgat. custom: one that a training operator of another crate brings. Other names: models of linked crates, which
    /// `morphgl ops` lists
    #[arg(long, default_value = "sage")]
    pub model: ModelKind,
    /// Setting of a model of a linked crate, which `morphgl ops --options` lists; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::named)]
    pub model_option: Vec<(String, Value)>,
    /// Number of layers [default: as many as fanouts, where the sampler has one per layer, else 3]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub layers: Option<u16>,
    /// Width of hidden layers, all heads together [default: 256]
    #[arg(long)]
    pub hidden: Option<usize>,
    /// GAT, R-GAT, HGT: attention heads of hidden layers [default: 4]
    #[arg(long)]
    pub heads: Option<usize>,
    /// GAT, R-GAT: attention heads of the last layer, averaged; HGT: concatenated
    #[arg(long, default_value_t = 1)]
    pub output_heads: usize,
    /// GAT, R-GAT: how an edge is scored
    #[arg(long, value_parser = values::one_of::<Attention, _>(["gat", "gatv2"]), default_value = "gat")]
    pub attention: Attention,
    /// Fraction of the hidden layers' outputs that is dropped
    #[arg(long, value_parser = values::finite::<f32>, default_value_t = 0.5)]
    pub dropout: f32,
    /// Fraction of the input features that is dropped
    #[arg(long, value_parser = values::finite::<f32>, default_value_t = 0.0)]
    pub input_dropout: f32,
    /// GAT: share of the attention coefficients that is dropped
    #[arg(long, value_parser = values::finite::<f32>, default_value_t = 0.0)]
    pub attention_dropout: f32,
    /// Activation after every layer but the last
    #[arg(long, value_parser = values::one_of::<Activation, _>(["relu", "elu"]), default_value = "relu")]
    pub activation: Activation,
    /// Normalization between a hidden layer and its activation
    #[arg(long, value_parser = values::one_of::<Normalization, _>(["none", "layer", "batch"]), default_value = "none")]
    pub normalization: Normalization,
    /// Hidden layers after the first add their input to their output
    #[arg(long)]
    pub residual: bool,
    /// GraphSAGE: scale every layer's output rows to length 1
    #[arg(long)]
    pub l2_normalize: bool,
    /// GIN: trains epsilon, which stays 0 otherwise
    #[arg(long)]
    pub train_eps: bool,
    /// GCN: add a self-loop to every node, besides those of the graph; or use the graph's alone (PyG's add_self_loops=False)
    #[arg(long, action = ArgAction::Set, value_parser = self_loops(), default_value = "add")]
    pub self_loops: bool,
    /// R-GCN: number of bases, of which the weight of each edge type is a linear combination [default: a weight for each]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub bases: usize,
    /// R-GCN: number of diagonal blocks that the weight of each edge type consists of [default: whole weights]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub diagonal_blocks: usize,
    /// GAT, GIN, R-GAT: leave the features of edges unread, where the graph has some
    #[arg(long)]
    pub no_edge_features: bool,
    /// What is learned.
    #[command(flatten)]
    pub task: TaskOptions,
    /// The optimizer.
    #[command(flatten)]
    pub optimizer: OptimizerOptions,
}

/// Reads whether a self-loop is added to every node.
fn self_loops() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["add", "graph"]).map(|which| which == "add")
}

impl ModelOptions {
    /// The options with the defaults of other systems' benchmarks: their hidden widths, and one head.
    pub(crate) fn with_peers_defaults(&self) -> Self {
        let hidden = match self.model {
            ModelKind::Gcn => 16,
            ModelKind::Gat | ModelKind::Rgat | ModelKind::Hgt => 64,
            _ => 256,
        };
        Self { hidden: self.hidden.or(Some(hidden)), heads: self.heads.or(Some(1)), ..self.clone() }
    }

    /// What of a dataset the model reads.
    pub(crate) fn learned(&self) -> Learned {
        let examples = self.task.examples();
        let relations = examples == Examples::Links && self.task.decoder == Some(Decoder::DistMult);
        Learned { examples, kind: self.model, edge_features: !self.no_edge_features, relations }
    }

    /// The model for a number of features, and of classes, or labels or values.
    pub(crate) fn spec(&self, in_dim: usize, num_classes: usize, batch: MiniBatches<'_>) -> ModelSpec {
        let layers = if self.model == ModelKind::Embedding { 1 } else { batch.num_layers() };
        let model = ModelSpec {
            hidden: self.hidden.unwrap_or(256),
            layers: self.layers.map_or(layers, usize::from),
            heads: self.heads.unwrap_or(4),
            output_heads: self.output_heads,
            attention: self.attention,
            dropout: self.dropout,
            input_dropout: self.input_dropout,
            attention_dropout: self.attention_dropout,
            activation: self.activation,
            residual: self.residual,
            normalization: self.normalization,
            l2_normalize: self.l2_normalize,
            train_eps: self.train_eps,
            self_loops: self.self_loops,
            bases: self.bases,
            diagonal_blocks: self.diagonal_blocks,
            settings: self.model_option.iter().cloned().collect(),
            ..ModelSpec::new(self.model, in_dim, num_classes)
        };
        self.task.set(model, num_classes)
    }

    pub(crate) fn optimizer(&self) -> OptimizerSpec {
        self.optimizer.spec()
    }

    /// Refuses options that are wrong for every dataset, before one is read.
    pub(crate) fn check(&self, batch: MiniBatches<'_>) -> anyhow::Result<()> {
        self.optimizer.check(self.model)?;
        self.task.check()?;
        // Without layers, features are as wide as embeddings.
        let spec = self.spec(self.task.embedding.unwrap_or(1), 1, batch);
        for checked in [spec.validate(), self.optimizer().validate()] {
            // The context of the error is a field: `model.input_dropout` is set by --input-dropout.
            checked.map_err(|e| {
                let is_schedule = e.context.starts_with("optimizer.schedule.");
                let field = match e.context.rsplit('.').next().unwrap_or_default() {
                    field @ ("min" | "gamma" | "step_size") if is_schedule => format!("lr-{}", field.replace('_', "-")),
                    "settings" => "model-option".to_string(),
                    "loss_settings" => "loss-option".to_string(),
                    field => field.replace('_', "-"),
                };
                Usage::error(e.to_string().replacen(&e.context, &format!("--{field}"), 1))
            })?;
        }
        batch.check_sampling(&spec)
    }
}
