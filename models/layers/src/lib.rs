#![doc = include_str!("../README.md")]

mod adjacency;
mod aggregate;
mod attention;
mod bridge;
mod convolution;
mod edge_layers;
mod edges;
mod epilogue;
mod features;
mod inputs;
mod mask;
mod matrix;
mod model;
mod normalization;
mod parameters;
mod submission;

pub use adjacency::{Adjacency, Coefficients, Degrees, GcnNorm};
pub use aggregate::{aggregate, aggregate_beside_self, aggregate_with_self};
pub use attention::{AttentionOptions, gat_attention, gatv2_attention};
/// The tensors that layers and losses are written in.
pub use burn_tensor;
pub use convolution::{gat, gatv2, gcn, gin, l2_normalize, mean_heads, sage};
pub use edges::{edge_destinations, edge_sources, sum_edges};
pub use epilogue::epilogue;
pub use features::{Features, SparseRows};
pub use mask::Mask;
pub use model::{Given, Mode, Pass, TypedNodes, adjacency};
pub use normalization::{BatchStatistics, batch_norm, batch_norm_running, layer_norm, values};
pub use parameters::Parameters;
pub use submission::{LayerInput, LossInput, SubmittedLoss, SubmittedModel, score, submitted_losses};

#[doc(hidden)]
pub use inventory as __inventory;
