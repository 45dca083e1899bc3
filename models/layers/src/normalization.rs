//! Layer and batch normalisation.

use burn_tensor::Tensor;

const EPS: f64 = 1e-5;

/// Each row to mean 0 and variance 1, then scaled and shifted.
pub fn layer_norm(x: Tensor<2>, weight: Tensor<2>, bias: Tensor<2>) -> Tensor<2> {
    let centred = x.clone() - x.mean_dim(1);
    let variance = (centred.clone() * centred.clone()).mean_dim(1);
    centred / variance.add_scalar(EPS).sqrt() * weight + bias
}

/// Statistics of a mini-batch's columns, for the update of the running ones.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchStatistics {
    /// The hidden layer they belong to.
    pub layer: usize,
    /// Mean of each column.
    pub mean: Vec<f32>,
    /// Unbiased variance of each column.
    pub variance: Vec<f32>,
}

/// Each column to mean 0 and variance 1 over the rows, then scaled and shifted; returns the statistics too.
pub fn batch_norm(x: Tensor<2>, weight: Tensor<2>, bias: Tensor<2>, layer: usize) -> (Tensor<2>, BatchStatistics) {
    let rows = x.dims()[0];
    let mean = x.clone().mean_dim(0);
    let centred = x - mean.clone();
    let variance = (centred.clone() * centred.clone()).mean_dim(0);
    let unbiased = rows as f32 / rows.saturating_sub(1).max(1) as f32;
    let statistics = BatchStatistics {
        layer,
        mean: values(mean),
        variance: values(variance.clone()).into_iter().map(|v| v * unbiased).collect(),
    };
    (centred / variance.add_scalar(EPS).sqrt() * weight + bias, statistics)
}

/// Batch normalisation by running statistics.
pub fn batch_norm_running(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Tensor<2>,
    mean: Tensor<2>,
    var: Tensor<2>,
) -> Tensor<2> {
    (x - mean) / var.add_scalar(EPS).sqrt() * weight + bias
}

/// Copies the elements of a tensor, row after row.
pub fn values(x: Tensor<2>) -> Vec<f32> {
    x.into_data().try_into_vec().expect("a tensor of f32")
}
