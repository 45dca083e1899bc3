//! Description of a model.

use std::fmt;
use std::str::FromStr;

use morphgl_graph_store::Types;
use morphgl_registry::{Error, OptionSpec, OptionType, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::loss::class_weights;
use crate::submission::unknown;
use crate::{Decoder, LayerShape, LossKind, ModelDescription, Settings, Task};

/// Kind of model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ModelKind {
    /// Graph convolution with symmetric normalisation (Kipf and Welling, ICLR 2017).
    Gcn,
    /// GraphSAGE with the mean aggregator (Hamilton et al., NeurIPS 2017).
    Sage,
    /// Graph attention (Veličković et al., ICLR 2018; Brody et al., ICLR 2022).
    Gat,
    /// Graph isomorphism network (Xu et al., ICLR 2019).
    Gin,
    /// Multi-layer perceptron of the features alone; the baseline without the graph.
    Mlp,
    /// Relational graph convolution: a mean and a weight per edge type (Schlichtkrull et al., ESWC 2018).
    Rgcn,
    /// GraphSAGE with parameters per edge type, summed at the destination (PyG's `to_hetero`).
    Rsage,
    /// Graph attention with parameters and a softmax per edge type, summed at the destination (R-GAT).
    Rgat,
    /// Heterogeneous graph transformer: keys, queries and values by node type, mapped per edge type (Hu et al., WWW 2020).
    Hgt,
    /// No layers: the inputs of nodes, features or learned embeddings, are the embeddings that a decoder scores pairs by. With
    /// [`Decoder::DistMult`] it is DistMult (Yang et al., ICLR 2015). `layers` is 1, whose output is its input.
    Embedding,
    /// A model that only its training operator knows, such as a module of torch: parameters and their names are the operator's own,
    /// and of the fields of its spec `in_dim`, `num_classes`, `layers`, the task and the loss alone mean something. Settings: `loss` and
    /// `decoder`, what those of the operator's own are called.
    Custom,
    /// A model of another crate, which a spec describes whole.
    Submitted(&'static ModelDescription),
}

impl ModelKind {
    /// All kinds of this crate that a spec describes whole.
    pub const ALL: [ModelKind; 10] = [
        ModelKind::Gcn,
        ModelKind::Sage,
        ModelKind::Gat,
        ModelKind::Gin,
        ModelKind::Mlp,
        ModelKind::Rgcn,
        ModelKind::Rsage,
        ModelKind::Rgat,
        ModelKind::Hgt,
        ModelKind::Embedding,
    ];

    /// The kinds of this crate whose layers do not tell edge types apart.
    pub const UNTYPED: [ModelKind; 5] =
        [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gin, ModelKind::Mlp];

    /// Whether its layers have parameters per edge type, and so need blocks with the types of their edges.
    pub fn is_typed(self) -> bool {
        matches!(self, ModelKind::Rgcn | ModelKind::Rsage | ModelKind::Rgat | ModelKind::Hgt)
    }

    /// Whether its layers have attention heads.
    pub fn has_attention(self) -> bool {
        matches!(self, ModelKind::Gat | ModelKind::Rgat | ModelKind::Hgt)
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ModelKind::Gcn => "gcn",
            ModelKind::Sage => "sage",
            ModelKind::Gat => "gat",
            ModelKind::Gin => "gin",
            ModelKind::Mlp => "mlp",
            ModelKind::Rgcn => "rgcn",
            ModelKind::Rsage => "rsage",
            ModelKind::Rgat => "rgat",
            ModelKind::Hgt => "hgt",
            ModelKind::Embedding => "embedding",
            ModelKind::Custom => "custom",
            ModelKind::Submitted(model) => model.name,
        })
    }
}

impl FromStr for ModelKind {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let submitted = ModelDescription::linked().into_iter().map(ModelKind::Submitted);
        let kinds: Vec<ModelKind> = ModelKind::ALL.into_iter().chain([ModelKind::Custom]).chain(submitted).collect();
        let found = kinds.iter().find(|kind| kind.to_string() == s).copied();
        found.ok_or_else(|| unknown(s, "kind of model", kinds.iter().map(ModelKind::to_string)))
    }
}

impl From<ModelKind> for String {
    fn from(kind: ModelKind) -> Self {
        kind.to_string()
    }
}

impl TryFrom<String> for ModelKind {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

/// Activation after every layer but the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// max(x, 0).
    #[default]
    Relu,
    /// x where positive, else exp(x) − 1.
    Elu,
}

/// Normalisation between the output of a hidden layer and its activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Normalization {
    /// Nothing.
    #[default]
    None,
    /// Each row to mean 0 and variance 1, with a trainable scale and shift.
    Layer,
    /// Each column to mean 0 and variance 1 over the mini-batch; running statistics in evaluation.
    Batch,
}

/// Score of an edge in GAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attention {
    /// leaky_relu(a_src·Wx_u + a_dst·Wx_v).
    #[default]
    Gat,
    /// a·leaky_relu(W_l x_u + W_r x_v).
    Gatv2,
}

/// A model: determines the names and shapes of its parameters, and its forward pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// Kind of model.
    pub kind: ModelKind,
    /// Width of the input features.
    pub in_dim: usize,
    /// Width of the output: number of classes, or of labels or values (see [`Task`]), or length of an embedding.
    pub num_classes: usize,
    /// Width of every hidden layer, all heads together. Default 256.
    #[serde(default = "default_hidden")]
    pub hidden: usize,
    /// Number of layers, at least 1. Default 3.
    #[serde(default = "default_layers")]
    pub layers: usize,
    /// Attention heads of hidden layers, concatenated (GAT, R-GAT and HGT only). Default 4.
    #[serde(default = "default_heads")]
    pub heads: usize,
    /// Attention heads of the last layer, averaged, of HGT concatenated (GAT, R-GAT and HGT only). Default 1.
    #[serde(default = "default_output_heads")]
    pub output_heads: usize,
    /// Score of an edge (GAT and R-GAT only). Default gat.
    #[serde(default)]
    pub attention: Attention,
    /// Dropout probability of hidden layers' outputs. Default 0.5.
    #[serde(default = "default_dropout")]
    pub dropout: f32,
    /// Dropout probability of input features. Default 0.
    #[serde(default)]
    pub input_dropout: f32,
    /// Dropout probability of attention coefficients (GAT only). Default 0.
    #[serde(default)]
    pub attention_dropout: f32,
    /// Activation after every layer but the last. Default relu.
    #[serde(default)]
    pub activation: Activation,
    /// Whether hidden layers after the first add their input to their output. Default false.
    #[serde(default)]
    pub residual: bool,
    /// Normalisation between a hidden layer's output and its activation. Default none.
    #[serde(default)]
    pub normalization: Normalization,
    /// Whether every layer's output rows are scaled to length 1 (GraphSAGE only). Default false.
    #[serde(default)]
    pub l2_normalize: bool,
    /// Whether epsilon is trained (GIN only), else it stays 0, as in PyG. Default false; true in files of versions that did not
    /// know it, which trained epsilon.
    #[serde(default = "trained")]
    pub train_eps: bool,
    /// Whether every node gets a self-loop of weight 1 besides those of the graph (GCN only). Default true; with false the
    /// graph's own are all, as with PyG's `add_self_loops=False`.
    #[serde(default = "default_self_loops")]
    pub self_loops: bool,
    /// Number of bases, of which the weights of all edge types are linear combinations (R-GCN only); 0 for weights of each type's own.
    /// Default 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bases: usize,
    /// Number of diagonal blocks that the weight of each edge type consists of (R-GCN only); 0 for whole weights. Default 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub diagonal_blocks: usize,
    /// Types of the graph's nodes and edges, by which parameters are named: of a typed model, and where `input_widths` are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<Types>,
    /// Width of the features of each node type, 0 for a type whose nodes have learned embeddings instead. They are projected to
    /// `in_dim`, by a linear map per node type. Empty where all nodes have rows of `in_dim` features. Default empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_widths: Vec<usize>,
    /// Width of the features of edges that its layers read, of each edge type of a typed model, else one width; 0 for none (GAT, GIN and
    /// R-GAT only). Empty where no features of edges are read. Default empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edge_widths: Vec<usize>,
    /// What it learns to predict. Default the class of a node.
    #[serde(default, skip_serializing_if = "is_default")]
    pub task: Task,
    /// Width of the decoder's output where edges are learned: the number of their classes, labels or values. 0 where nodes are, and of
    /// links. Default 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub edge_outputs: usize,
    /// How the embeddings of two nodes make the score or the outputs of their pair (links and edges only). Default their dot product.
    #[serde(default, skip_serializing_if = "is_default")]
    pub decoder: Decoder,
    /// Number of the vectors of [`Decoder::DistMult`], one for each edge type, by which links are learned where pairs have edge types; 0
    /// for one vector of all pairs. Default 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub relations: usize,
    /// The loss that it is trained and scored by, one of [`Task::losses`] or of another crate. Default cross-entropy.
    #[serde(default, skip_serializing_if = "is_default")]
    pub loss: LossKind,
    /// Settings of a model of another crate, or of a custom one, by name; the defaults where they are not given.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
    /// Settings of the loss, by name; the defaults where they are not given.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub loss_settings: Map<String, Value>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn default_hidden() -> usize {
    256
}
fn default_layers() -> usize {
    3
}
fn default_heads() -> usize {
    4
}
fn default_output_heads() -> usize {
    1
}
fn default_self_loops() -> bool {
    true
}
fn trained() -> bool {
    true
}
fn default_dropout() -> f32 {
    0.5
}

/// Maximum number of features and classes, and width of a layer: that of labels of 32 bits.
const MAX_WIDTH: usize = i32::MAX as usize;
/// Maximum number of layers, and of heads.
const MAX_LAYERS: usize = 1024;
const MAX_HEADS: usize = 1 << 16;

impl ModelSpec {
    /// A model with the defaults.
    pub fn new(kind: ModelKind, in_dim: usize, num_classes: usize) -> Self {
        Self {
            kind,
            in_dim,
            num_classes,
            hidden: default_hidden(),
            layers: default_layers(),
            heads: default_heads(),
            output_heads: default_output_heads(),
            attention: Attention::default(),
            dropout: default_dropout(),
            input_dropout: 0.0,
            attention_dropout: 0.0,
            activation: Activation::default(),
            residual: false,
            normalization: Normalization::default(),
            l2_normalize: false,
            train_eps: false,
            self_loops: default_self_loops(),
            bases: 0,
            diagonal_blocks: 0,
            types: None,
            input_widths: Vec::new(),
            edge_widths: Vec::new(),
            task: Task::default(),
            edge_outputs: 0,
            decoder: Decoder::default(),
            relations: 0,
            loss: LossKind::default(),
            settings: Map::new(),
            loss_settings: Map::new(),
        }
    }

    /// Whether it reads edges, not only the nodes' own features.
    pub fn reads_graph(&self) -> bool {
        !matches!(self.kind, ModelKind::Mlp | ModelKind::Embedding)
    }

    /// Whether it learns classes, labels or values of edges.
    pub fn learns_edges(&self) -> bool {
        self.edge_outputs > 0
    }

    /// Whether it is of the edge types of one graph: by its layers, or by the decoder of its links.
    pub fn has_edge_types(&self) -> bool {
        self.kind.is_typed() || self.relations > 0
    }

    /// Whether its examples are pairs of nodes, links or edges, which a decoder makes predictions of.
    pub fn learns_pairs(&self) -> bool {
        self.task == Task::Link || self.learns_edges()
    }

    /// Width of the outputs that are compared with targets: those of the decoder where edges are learned. Of links it is that of the
    /// embeddings.
    pub fn target_width(&self) -> usize {
        if self.learns_edges() { self.edge_outputs } else { self.num_classes }
    }

    /// Whether training drops anything, and so reads the ids of a mini-batch's input nodes.
    pub fn has_dropout(&self) -> bool {
        let attention = if self.kind == ModelKind::Gat { self.attention_dropout } else { 0.0 };
        let hidden = if self.layers > 1 { self.dropout } else { 0.0 };
        [self.input_dropout, hidden, attention].iter().any(|&p| p > 0.0)
    }

    /// Checks every field.
    ///
    /// # Errors
    ///
    /// An invalid field: the message names it and the cure.
    pub fn validate(&self) -> Result<()> {
        let wrong = |field: &str, what: String| Err(Error::setting(format!("model.{field}"), what));
        for (field, value, most, cure) in [
            ("in_dim", self.in_dim, MAX_WIDTH, "use a dataset with features, or import it with --random-features"),
            ("num_classes", self.num_classes, MAX_WIDTH, "use a dataset with labels"),
            ("hidden", self.hidden, MAX_WIDTH, "give a positive width"),
            ("layers", self.layers, MAX_LAYERS, "give at least one layer"),
            ("heads", self.heads, MAX_HEADS, "give at least one head"),
            ("output_heads", self.output_heads, MAX_HEADS, "give at least one head"),
        ] {
            if value == 0 {
                return wrong(field, format!("it is 0; {cure}"));
            }
            if value > most {
                return wrong(field, format!("it is {value}; give at most {most}"));
            }
        }
        for (field, value) in [
            ("dropout", self.dropout),
            ("input_dropout", self.input_dropout),
            ("attention_dropout", self.attention_dropout),
        ] {
            if !(0.0..1.0).contains(&value) {
                return wrong(field, format!("{value} is not a share; give a number from 0 to below 1"));
            }
        }
        if self.kind.has_attention() && self.layers > 1 && !self.hidden.is_multiple_of(self.heads) {
            let (hidden, heads) = (self.hidden, self.heads);
            let next = hidden.next_multiple_of(heads);
            return wrong("hidden", format!("{heads} heads cannot share a width of {hidden}; use a width of {next}"));
        }
        if self.kind != ModelKind::Gat && self.attention_dropout != 0.0 {
            return wrong("attention_dropout", format!("a {} drops no attention; leave it 0", self.kind));
        }
        if self.kind != ModelKind::Sage && self.l2_normalize {
            return wrong("l2_normalize", format!("a {} has no such option; leave it false", self.kind));
        }
        if self.kind != ModelKind::Gcn && !self.self_loops {
            return wrong("self_loops", format!("a {} adds none; leave it out", self.kind));
        }
        if self.kind == ModelKind::Embedding {
            self.check_embedding().or_else(|(field, what)| wrong(field, what))?;
        }
        self.check_types().or_else(|(field, what)| wrong(field, what))?;
        self.check_edge_widths().or_else(|(field, what)| wrong(field, what))?;
        if self.kind == ModelKind::Custom && matches!(self.loss, LossKind::Submitted(_)) {
            let what = "a custom model has a loss of its own, or one of MorphGL's; leave it out";
            return wrong("loss", what.to_string());
        }
        if self.kind == ModelKind::Custom && self.decoder != Decoder::Dot {
            let what = "a custom model has a decoder of its own, or the dot product; leave it out";
            return wrong("decoder", what.to_string());
        }
        if !self.loss.fits(self.task) {
            let (loss, task, fitting) = (self.loss, self.task, self.task.losses().iter().map(LossKind::to_string));
            let fitting = fitting.collect::<Vec<_>>().join(", ");
            return wrong("loss", format!("{loss} is no loss of the task {task}; use one of {fitting}"));
        }
        if self.decoder != Decoder::Dot && !self.learns_pairs() {
            let cure = "leave it out, or learn links or edges";
            return wrong("decoder", format!("the task {} scores no pairs; {cure}", self.task));
        }
        if self.relations > 0 && (self.decoder, self.task) != (Decoder::DistMult, Task::Link) {
            let what = format!("{} has no vector per edge type; leave it 0, or learn links by distmult", self.decoder);
            return wrong("relations", what);
        }
        if self.relations > 0 && self.relations != self.edge_types().len() {
            let (relations, types) = (self.relations, self.edge_types().len());
            return wrong("relations", format!("{relations} vectors for {types} edge types; give one for each"));
        }
        if self.learns_edges() {
            self.check_edges().or_else(|(field, what)| wrong(field, what))?;
        }
        self.settings().check("model.settings")?;
        self.loss_settings().check("model.loss_settings")?;
        if let ModelKind::Submitted(model) = self.kind {
            (model.check)(self.settings()).or_else(|what| wrong("settings", what))?;
        }
        let classes = if self.task == Task::Classify { self.target_width() } else { 0 };
        self.loss.check(self.loss_settings(), classes).or_else(|what| wrong("loss_settings", what))
    }

    /// Refuses what does not hold for a model without layers: the field, and why.
    fn check_embedding(&self) -> std::result::Result<(), (&'static str, String)> {
        let (layers, inputs, width) = (self.layers, self.in_dim, self.num_classes);
        if layers != 1 {
            return Err(("layers", format!("it is {layers}, and the model embedding has no layers; leave it out")));
        }
        if !self.learns_pairs() {
            let what = "the model embedding scores pairs of nodes; learn links or edges, or train mlp";
            return Err(("task", what.to_string()));
        }
        if inputs != width {
            let what =
                format!("the {inputs} features of a node are its embedding as they are, not {width}; leave it out");
            return Err(("num_classes", what));
        }
        Ok(())
    }

    /// Refuses what does not hold for edges: the field, and why.
    fn check_edges(&self) -> std::result::Result<(), (&'static str, String)> {
        let (task, outputs) = (self.task, self.edge_outputs);
        if task == Task::Link {
            return Err(("edge_outputs", format!("it is {outputs}, and links have none; leave it out")));
        }
        if outputs > MAX_WIDTH {
            return Err(("edge_outputs", format!("it is {outputs}; give at most {MAX_WIDTH}")));
        }
        // A custom model's decoder is its own, and not named here.
        if self.kind != ModelKind::Custom && self.decoder != Decoder::Mlp && outputs > 1 {
            let what = format!("{} gives one output, and the task has {outputs}; use mlp", self.decoder);
            return Err(("decoder", what));
        }
        if let LossKind::Submitted(loss) = self.loss {
            return Err(("loss", format!("{} of another crate is of nodes; use one of MorphGL's", loss.name)));
        }
        Ok(())
    }

    /// The settings of a model of another crate, or of a custom one; there are none of others.
    pub fn settings(&self) -> Settings<'_> {
        const CUSTOM: [OptionSpec; 2] = [
            OptionSpec::new("loss", OptionType::Text, "", "what a loss of the operator's own is called"),
            OptionSpec::new("decoder", OptionType::Text, "", "what a decoder of the operator's own is called"),
        ];
        let specs = match self.kind {
            ModelKind::Submitted(model) => model.settings,
            ModelKind::Custom => &CUSTOM,
            _ => &[],
        };
        Settings { specs, given: &self.settings }
    }

    /// The settings of its loss.
    pub fn loss_settings(&self) -> Settings<'_> {
        Settings { specs: self.loss.settings(), given: &self.loss_settings }
    }

    /// The weight of each class in the loss of a valid spec; empty where all are 1.
    pub fn class_weights(&self) -> Vec<f32> {
        match self.loss {
            LossKind::CrossEntropy => class_weights(self.loss_settings(), self.target_width()).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// What a mean of its loss is called, `cross-entropy` or `focal loss`; of a custom model with a loss of its operator's own, what its
    /// setting `loss` says.
    pub fn loss_title(&self) -> String {
        match (self.kind, self.loss) {
            (ModelKind::Custom, _) => self.settings().word("loss"),
            (_, LossKind::CrossEntropy) => self.loss.to_string(),
            (_, LossKind::BinaryCrossEntropy) => "binary cross-entropy".to_string(),
            (_, LossKind::Squared) => "squared error".to_string(),
            (_, LossKind::Absolute) => "absolute error".to_string(),
            (_, loss) => format!("{loss} loss"),
        }
    }

    /// The model or loss of another crate, which operators with layers and losses of their own alone do not train.
    pub fn submitted(&self) -> Option<String> {
        match (self.kind, self.loss) {
            (ModelKind::Submitted(model), _) => Some(format!("the model {}", model.name)),
            (_, LossKind::Submitted(loss)) => Some(format!("the loss {}", loss.name)),
            _ => None,
        }
    }

    /// Widths of layer `layer`.
    ///
    /// # Panics
    ///
    /// When there is no such layer.
    pub fn layer(&self, layer: usize) -> LayerShape {
        assert!(layer < self.layers, "layer {layer} of {}", self.layers);
        let last = layer + 1 == self.layers;
        let in_dim = if layer == 0 { self.in_dim } else { self.hidden };
        let out_dim = if last { self.num_classes } else { self.hidden };
        let (heads, head_dim) = match (self.kind, last) {
            (ModelKind::Gat | ModelKind::Rgat | ModelKind::Hgt, false) => (self.heads, self.hidden / self.heads),
            (ModelKind::Gat | ModelKind::Rgat, true) => (self.output_heads, self.num_classes),
            (ModelKind::Hgt, true) => (self.output_heads, self.num_classes / self.output_heads),
            _ => (1, out_dim),
        };
        LayerShape { in_dim, out_dim, heads, head_dim, last }
    }

    /// Whether layer `layer` adds its input to its output.
    pub fn has_residual(&self, layer: usize) -> bool {
        self.residual && layer > 0 && layer + 1 < self.layers
    }
}
