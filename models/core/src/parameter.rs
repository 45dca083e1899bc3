//! A parameter: its name, shape and initial values; and the widths of the layer that it belongs to.

/// Widths of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerShape {
    /// Width of its input.
    pub in_dim: usize,
    /// Width of its output.
    pub out_dim: usize,
    /// Attention heads; 1 for all but GAT.
    pub heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Whether it is the model's last layer.
    pub last: bool,
}

/// Initial values of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// One value for all elements.
    Constant(f32),
    /// Uniform between minus and plus the bound.
    Uniform(f32),
}

/// One parameter of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterSpec {
    /// PyG's name, as in its `state_dict`.
    pub name: String,
    /// Lengths of its dimensions, slowest first.
    pub shape: Vec<usize>,
    /// The layer it belongs to; one after the last for a decoder of pairs.
    pub layer: usize,
    /// Its initial values.
    pub init: Init,
    /// Whether it has a gradient; running statistics of batch normalisation have none.
    pub trainable: bool,
}

impl ParameterSpec {
    /// Number of elements, `usize::MAX` where there are more.
    pub fn len(&self) -> usize {
        self.shape.iter().fold(1, |len: usize, &dim| len.saturating_mul(dim))
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements of a row of a table of learned embeddings, of which an optimizer moves the rows that have a gradient alone
    /// ([`OptimizerStep::update_rows`](crate::OptimizerStep::update_rows)); `None` of every other parameter.
    pub fn table_row(&self) -> Option<usize> {
        self.name.starts_with("emb_dict.").then(|| self.shape[1])
    }
}

impl Init {
    /// Glorot and Bengio's uniform initialisation of `[rows, columns]`.
    pub fn glorot(rows: usize, columns: usize) -> Self {
        Init::Uniform((6.0 / (rows as f32 + columns as f32)).sqrt())
    }

    /// torch's initialisation of a linear layer from `fan_in` columns, weight and bias alike.
    pub fn linear(fan_in: usize) -> Self {
        Init::Uniform(1.0 / (fan_in as f32).sqrt())
    }
}

/// Parameters of a model, appended layer by layer.
#[derive(Debug)]
pub struct ParameterList {
    /// Start of the names.
    pub(crate) prefix: String,
    pub(crate) layer: usize,
    pub(crate) specs: Vec<ParameterSpec>,
}

impl ParameterList {
    /// Appends parameter `convs.{layer}.{name}`.
    pub fn push(&mut self, name: &str, shape: &[usize], init: Init) {
        let name = format!("{}.{name}", self.prefix);
        self.specs.push(ParameterSpec { name, shape: shape.to_vec(), layer: self.layer, init, trainable: true });
    }

    pub(crate) fn statistic(&mut self, name: &str, shape: &[usize], init: Init) {
        self.push(name, shape, init);
        self.last_is_trained(false);
    }

    pub(crate) fn last_is_trained(&mut self, trainable: bool) {
        self.specs.last_mut().expect("just pushed").trainable = trainable;
    }

    /// Appends weight `[out_dim, in_dim]` and bias `[out_dim]` of a linear map, initialised as torch's: `convs.{layer}.{name}.weight`
    /// and `.bias`.
    pub fn linear(&mut self, name: &str, out_dim: usize, in_dim: usize) {
        let dot = if name.is_empty() { "" } else { "." };
        self.push(&format!("{name}{dot}weight"), &[out_dim, in_dim], Init::linear(in_dim));
        self.push(&format!("{name}{dot}bias"), &[out_dim], Init::linear(in_dim));
    }
}
