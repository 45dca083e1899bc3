//! Layers as functions of input, block and parameters.
//!
//! Weights are `[out, in]` as in torch, biases and attention vectors `[1, width]`. The last bias of a layer is left to
//! [`crate::epilogue()`], which adds it in the same pass as activation and dropout.

use std::sync::Arc;

use burn_tensor::Tensor;
use morphgl_model_core::Activation;

use crate::adjacency::Adjacency;
use crate::aggregate::{aggregate, aggregate_beside_self, aggregate_with_self};
use crate::attention::{AttentionOptions, gat_attention, gatv2_attention};
use crate::epilogue::epilogue;
use crate::features::{Features, prefix};

/// Whether GEMM comes before aggregation: always for sparse rows, else by cost.
fn transform_first(x: &Features, adjacency: &Adjacency, out_dim: usize) -> bool {
    matches!(x, Features::Sparse(_)) || adjacency.transform_first(x.dim(), out_dim)
}

/// The aggregated input times the weight, in the cheaper order; both are linear.
fn aggregate_linear(x: &Features, adjacency: &Arc<Adjacency>, weight: Tensor<2>) -> Tensor<2> {
    match x {
        Features::Dense(dense) if !transform_first(x, adjacency, weight.dims()[0]) => {
            let num_src = adjacency.num_src;
            aggregate(prefix(dense.clone(), num_src), adjacency).matmul(weight.transpose())
        }
        _ => aggregate(x.linear(weight, adjacency.num_src), adjacency),
    }
}

/// Graph convolution without its bias; `adjacency` from [`Adjacency::gcn`].
pub fn gcn(x: &Features, adjacency: &Arc<Adjacency>, weight: Tensor<2>) -> Tensor<2> {
    aggregate_linear(x, adjacency, weight)
}

/// GraphSAGE without its bias: weight `neighbours` times the aggregated input, plus `own` times the node's own;
/// `adjacency` from [`Adjacency::mean`].
pub fn sage(x: &Features, adjacency: &Arc<Adjacency>, neighbours: Tensor<2>, own: Tensor<2>) -> Tensor<2> {
    match x {
        Features::Dense(dense) if !transform_first(x, adjacency, own.dims()[0]) => {
            // One GEMM of twice the depth instead of two and a sum.
            let both = aggregate_beside_self(prefix(dense.clone(), adjacency.num_src), adjacency);
            both.matmul(Tensor::cat(vec![neighbours, own], 1).transpose())
        }
        _ => aggregate_linear(x, adjacency, neighbours) + x.linear(own, adjacency.num_dst),
    }
}

/// GIN without its last bias: a two-layer perceptron of the neighbours' sum and `1 + eps` times the node's own;
/// `adjacency` from [`Adjacency::sum`], `eps` is `[1, 1]`.
pub fn gin(
    x: &Features,
    adjacency: &Arc<Adjacency>,
    eps: Tensor<2>,
    first: (Tensor<2>, Tensor<2>),
    second: Tensor<2>,
) -> Tensor<2> {
    let num_src = adjacency.num_src;
    let combine = |x: Tensor<2>| aggregate_with_self(x, eps, adjacency);
    let (weight, bias) = first;
    let hidden = match x {
        Features::Dense(dense) if !transform_first(x, adjacency, weight.dims()[0]) => {
            combine(prefix(dense.clone(), num_src)).matmul(weight.transpose())
        }
        _ => combine(x.linear(weight, num_src)),
    };
    epilogue(hidden, Some(bias), Some(Activation::Relu), None).matmul(second.transpose())
}

/// GAT without its bias: heads side by side.
pub fn gat(
    x: &Features,
    adjacency: &Arc<Adjacency>,
    weight: Tensor<2>,
    att_src: Tensor<2>,
    att_dst: Tensor<2>,
    options: AttentionOptions,
) -> Tensor<2> {
    gat_attention(x.linear(weight, adjacency.num_src), att_src, att_dst, adjacency, options)
}

/// GATv2 without its last bias: heads side by side. Each side is a weight and a bias, the sources' first.
pub fn gatv2(
    x: &Features,
    adjacency: &Arc<Adjacency>,
    left: (Tensor<2>, Option<Tensor<2>>),
    right: (Tensor<2>, Option<Tensor<2>>),
    att: Tensor<2>,
    options: AttentionOptions,
) -> Tensor<2> {
    let left = epilogue(x.linear(left.0, adjacency.num_src), left.1, None, None);
    let right = epilogue(x.linear(right.0, adjacency.num_dst), right.1, None, None);
    gatv2_attention(left, right, att, adjacency, options)
}

/// The mean of `heads` heads, stored side by side.
pub fn mean_heads(x: Tensor<2>, heads: usize) -> Tensor<2> {
    if heads == 1 {
        return x;
    }
    let [rows, cols] = x.dims();
    let width = cols / heads;
    let sum = (0..heads).map(|h| x.clone().narrow(1, h * width, width)).reduce(|a, b| a + b);
    sum.unwrap_or_else(|| Tensor::zeros([rows, 0], &x.device())) / heads as f64
}

/// Scales every row to length 1; a row of length 0 stays 0.
pub fn l2_normalize(x: Tensor<2>) -> Tensor<2> {
    // Added below the root, so that the gradient of a row of zeros is finite.
    let length = (x.clone() * x.clone()).sum_dim(1).add_scalar(1e-24).sqrt();
    x / length
}
