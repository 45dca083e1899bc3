//! The options of the model and its optimizer.

use clap::Args;
use morphgl_model_core::{
    Activation, Attention, LossKind, ModelKind, ModelSpec, Normalization, OptimizerSpec, WeightDecayOn,
};
use serde_json::Value;

use super::batch::BatchArgs;
use super::usage::Usage;
use super::values;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Kind of model: gcn, sage, gat, gin, or mlp (the features alone, for comparison); heads and attention are read by
    /// GAT alone. custom: one that a training operator of another crate brings. Other names: models of linked crates, which
    /// `morphgl ops` lists
    #[arg(long, default_value = "sage")]
    model: ModelKind,
    /// Setting of a model of a linked crate, which `morphgl ops --options` lists; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::named)]
    model_option: Vec<(String, Value)>,
    /// Loss: cross-entropy, or one of a linked crate, which `morphgl ops` lists
    #[arg(long, default_value = "cross-entropy")]
    loss: LossKind,
    /// Setting of a loss of a linked crate, which `morphgl ops --options` lists; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::named)]
    loss_option: Vec<(String, Value)>,
    /// Number of layers [default: as many as fanouts are given to --sampler neighbor, else 3]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    layers: Option<u16>,
    /// Width of hidden layers, all heads together [default: 256]
    #[arg(long)]
    hidden: Option<usize>,
    /// GAT: attention heads of hidden layers [default: 4]
    #[arg(long)]
    heads: Option<usize>,
    /// GAT: attention heads of the last layer, averaged
    #[arg(long, default_value_t = 1)]
    output_heads: usize,
    /// GAT: how an edge is scored
    #[arg(long, value_parser = values::one_of::<Attention, _>(["gat", "gatv2"]), default_value = "gat")]
    attention: Attention,
    /// Fraction of the hidden layers' outputs that is dropped
    #[arg(long, value_parser = values::finite::<f32>, default_value_t = 0.5)]
    dropout: f32,
    /// Fraction of the input features that is dropped
    #[arg(long, value_parser = values::finite::<f32>, default_value_t = 0.0)]
    input_dropout: f32,
    /// GAT: share of the attention coefficients that is dropped
    #[arg(long, value_parser = values::finite::<f32>, default_value_t = 0.0)]
    attention_dropout: f32,
    /// Activation after every layer but the last
    #[arg(long, value_parser = values::one_of::<Activation, _>(["relu", "elu"]), default_value = "relu")]
    activation: Activation,
    /// Normalization between a hidden layer and its activation
    #[arg(long, value_parser = values::one_of::<Normalization, _>(["none", "layer", "batch"]), default_value = "none")]
    normalization: Normalization,
    /// Hidden layers after the first add their input to their output
    #[arg(long)]
    residual: bool,
    /// GraphSAGE: scale every layer's output rows to length 1
    #[arg(long)]
    l2_normalize: bool,
    /// GIN: trains epsilon, which stays 0 otherwise
    #[arg(long)]
    train_eps: bool,
    /// GCN: add a self-loop to every node, besides those of the graph; or use the graph's alone (PyG's add_self_loops=False)
    #[arg(long, value_parser = ["add", "graph"], default_value = "add")]
    self_loops: String,
    /// Learning rate of Adam
    #[arg(long, value_parser = values::finite::<f64>, default_value_t = 0.003)]
    lr: f64,
    /// Weight decay of Adam, coupled (L2) as torch's
    #[arg(long, value_parser = values::finite::<f64>, default_value_t = 0.0)]
    weight_decay: f64,
    /// Weight decay on the first layer alone, as in Kipf and Welling's GCN
    #[arg(long)]
    decay_first_layer: bool,
}

impl ModelArgs {
    /// The options with the defaults of other systems' benchmarks: their hidden widths, and one head.
    pub(crate) fn with_peers_defaults(&self) -> Self {
        let hidden = match self.model {
            ModelKind::Gcn => 16,
            ModelKind::Gat => 64,
            _ => 256,
        };
        Self { hidden: self.hidden.or(Some(hidden)), heads: self.heads.or(Some(1)), ..self.clone() }
    }

    /// The model for a number of features and classes.
    pub(super) fn spec(&self, in_dim: usize, num_classes: usize, batch: &BatchArgs) -> ModelSpec {
        ModelSpec {
            hidden: self.hidden.unwrap_or(256),
            layers: self.layers.map_or(batch.num_layers(), usize::from),
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
            self_loops: self.self_loops == "add",
            loss: self.loss,
            settings: self.model_option.iter().cloned().collect(),
            loss_settings: self.loss_option.iter().cloned().collect(),
            ..ModelSpec::new(self.model, in_dim, num_classes)
        }
    }

    pub(super) fn optimizer(&self) -> OptimizerSpec {
        OptimizerSpec {
            lr: self.lr,
            weight_decay: self.weight_decay,
            weight_decay_on: if self.decay_first_layer { WeightDecayOn::FirstLayer } else { WeightDecayOn::All },
            ..OptimizerSpec::default()
        }
    }

    /// Refuses options that are wrong for every dataset, before one is read.
    pub(crate) fn check(&self, batch: &BatchArgs) -> anyhow::Result<()> {
        let spec = self.spec(1, 1, batch);
        for checked in [spec.validate(), self.optimizer().validate()] {
            // The context of the error is a field: `model.input_dropout` is set by --input-dropout.
            checked.map_err(|e| {
                let field = match e.context.rsplit('.').next().unwrap_or_default() {
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
