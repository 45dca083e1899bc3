//! Models and losses over burn that crates submit.

use std::fmt;
use std::sync::Arc;

use burn_tensor::{Device, Tensor, TensorData};
use morphgl_model_core::{LayerShape, LossDescription, LossKind, ModelDescription, ModelSpec};
use morphgl_registry::{Block, Score};

use crate::adjacency::Adjacency;
use crate::epilogue::epilogue;
use crate::features::{Features, prefix};
use crate::normalization::values;
use crate::parameters::Parameters;

/// A model of another crate: what it is, and its layers over burn. [`submit_model!`](crate::submit_model) registers it.
#[derive(Clone, Copy)]
pub struct SubmittedModel {
    /// Its name, settings and parameters.
    pub description: ModelDescription,
    /// The edges that layers read, from a block and the in-degrees of the block's source nodes in the whole graph, such as
    /// `|_, block, _| Adjacency::mean(block)`.
    pub adjacency: fn(&ModelSpec, &Block, &[f32]) -> Adjacency,
    /// One layer without normalisation, activation and dropout, which follow in all layers but the last: `[num_dst, out_dim]` of the
    /// input's `[num_src, in_dim]`. Its output is a function of its input alone, the same bits on any number of threads.
    pub layer: fn(&LayerInput<'_>) -> Tensor<2>,
}

/// A loss of another crate over burn. [`submit_loss!`](crate::submit_loss) registers it.
#[derive(Clone, Copy)]
pub struct SubmittedLoss {
    /// Its name and settings.
    pub description: LossDescription,
    /// The loss of each row, `[rows, 1]`: a function of that row's logits and label alone, so that shares of a mini-batch add up.
    pub losses: fn(&LossInput<'_>) -> Tensor<2>,
}

inventory::collect!(SubmittedModel);
inventory::collect!(SubmittedLoss);

/// Registers a model, a constant of type [`SubmittedModel`], in each program that links the crate.
#[macro_export]
macro_rules! submit_model {
    ($model:expr) => {
        $crate::__inventory::submit! { $model.description }
        $crate::__inventory::submit! { $model }
    };
}

/// Registers a loss, a constant of type [`SubmittedLoss`], in each program that links the crate.
#[macro_export]
macro_rules! submit_loss {
    ($loss:expr) => {
        $crate::__inventory::submit! { $loss.description }
        $crate::__inventory::submit! { $loss }
    };
}

impl fmt::Debug for SubmittedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubmittedModel({})", self.description.name)
    }
}

impl fmt::Debug for SubmittedLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubmittedLoss({})", self.description.name)
    }
}

/// The layers of a model that a crate submitted.
pub(crate) fn layers_of(model: &ModelDescription) -> &'static SubmittedModel {
    let found = inventory::iter::<SubmittedModel>.into_iter().find(|submitted| submitted.description == *model);
    found.unwrap_or_else(|| panic!("{model:?} has no layers over burn; submit it by submit_model!"))
}

/// What a submitted layer computes with.
#[derive(Debug, Clone, Copy)]
pub struct LayerInput<'a> {
    /// The model; [`ModelSpec::settings`] has its settings.
    pub spec: &'a ModelSpec,
    /// Number of the layer, from 0 at the input features.
    pub layer: usize,
    /// Its widths.
    pub shape: LayerShape,
    /// Its input: a row per source node of the block, the destination nodes first. Rows behind these may follow.
    pub x: &'a Features,
    /// Its edges.
    pub adjacency: &'a Arc<Adjacency>,
    pub(crate) parameters: &'a Parameters,
}

impl LayerInput<'_> {
    /// Parameter `convs.{layer}.{name}`, as a matrix: `[n]` is `[1, n]`.
    ///
    /// # Panics
    ///
    /// When the model has none.
    pub fn parameter(&self, name: &str) -> Tensor<2> {
        self.parameters.get(&format!("convs.{}.{name}", self.layer))
    }

    /// The linear map `name` of [`ParameterList::linear`](morphgl_model_core::ParameterList::linear) of the source nodes:
    /// `[num_src, out]`.
    pub fn linear_sources(&self, name: &str) -> Tensor<2> {
        self.linear(name, self.adjacency.num_src)
    }

    /// The linear map `name` of the destination nodes: `[num_dst, out]`.
    pub fn linear_destinations(&self, name: &str) -> Tensor<2> {
        self.linear(name, self.adjacency.num_dst)
    }

    fn linear(&self, name: &str, rows: usize) -> Tensor<2> {
        let [weight, bias] = ["weight", "bias"].map(|of| self.parameter(&format!("{name}.{of}")));
        epilogue(self.x.linear(weight, rows), Some(bias), None, None)
    }

    /// The input as a dense tensor, `[num_src, in_dim]`, which copies sparse features; [`LayerInput::linear_sources`] and
    /// [`Features::linear`] do without.
    pub fn dense(&self) -> Tensor<2> {
        match self.x {
            Features::Dense(x) => prefix(x.clone(), self.adjacency.num_src),
            Features::Sparse(_) => {
                let device = self.parameters.device();
                self.x.linear(Tensor::eye(self.shape.in_dim, &device), self.adjacency.num_src)
            }
        }
    }
}

/// What a submitted loss computes with.
#[derive(Debug, Clone, Copy)]
pub struct LossInput<'a> {
    /// The model; [`ModelSpec::loss_settings`] has the loss's settings.
    pub spec: &'a ModelSpec,
    /// Logits of the labelled seeds, `[rows, classes]`, at least one row.
    pub logits: &'a Tensor<2>,
    /// Their classes, from 0.
    pub labels: &'a [i32],
}

impl LossInput<'_> {
    /// 1 in the column of each row's label, else 0: `[rows, classes]`.
    pub fn one_hot(&self) -> Tensor<2> {
        let [rows, classes] = self.logits.dims();
        let mut ones = vec![0.0f32; rows * classes];
        self.labels.iter().enumerate().for_each(|(row, &label)| ones[row * classes + label as usize] = 1.0);
        Tensor::from_data(TensorData::new(ones, [rows, classes]), &self.logits.device())
    }
}

/// The losses of labelled rows by the model's submitted loss, `[labelled rows, 1]`; `None` where there is no label, or the loss is
/// cross-entropy, which operators compute themselves.
pub fn submitted_losses(spec: &ModelSpec, logits: &Tensor<2>, labels: &[i32]) -> Option<Tensor<2>> {
    let LossKind::Submitted(description) = spec.loss else { return None };
    let found = inventory::iter::<SubmittedLoss>.into_iter().find(|submitted| submitted.description == *description);
    let loss = found.unwrap_or_else(|| panic!("{description:?} has no function over burn; submit it by submit_loss!"));
    let rows: Vec<i32> = (0..).zip(labels).filter(|(_, label)| **label >= 0).map(|(row, _)| row).collect();
    if rows.is_empty() {
        return None;
    }
    let of_rows: Vec<i32> = labels.iter().copied().filter(|label| *label >= 0).collect();
    let logits = match rows.len() == labels.len() {
        true => logits.clone(),
        false => logits.clone().select(0, index(&rows, &logits.device())),
    };
    let losses = (loss.losses)(&LossInput { spec, logits: &logits, labels: &of_rows });
    assert_eq!(losses.dims(), [rows.len(), 1], "{description:?} has a loss per row");
    Some(losses)
}

fn index(rows: &[i32], device: &Device) -> Tensor<1, burn_tensor::Int> {
    Tensor::from_data(TensorData::new(rows.to_vec(), [rows.len()]), device)
}

/// The score of logits by the model's loss: that of cross-entropy, or with the sum of `losses`.
pub fn score(spec: &ModelSpec, logits: &[f32], labels: &[i32], losses: Option<&Tensor<2>>) -> Score {
    let score = Score::of(logits, labels, spec.num_classes);
    match losses {
        Some(losses) => Score { loss_sum: values(losses.clone()).into_iter().map(f64::from).sum(), ..score },
        None => score,
    }
}
