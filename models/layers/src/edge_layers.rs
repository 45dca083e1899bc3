//! Layers that read features of edges: GAT and GATv2 with PyG's `edge_dim`, and GINE.
//!
//! Rows per edge are whole tensors here: a message, its score and its coefficient.

use std::sync::Arc;

use burn_tensor::activation::{leaky_relu, relu};
use burn_tensor::{Device, Tensor, TensorData};

use crate::adjacency::{Adjacency, FeaturedEdges};
use crate::attention::AttentionOptions;
use crate::bridge::{HostOp, apply};
use crate::edges::{edge_destinations, edge_sources, sum_edges};
use crate::epilogue::epilogue;
use crate::features::prefix;
use crate::matrix::{Matrix, MatrixRef, for_rows};

/// A map of the features of edges: `[width, features]`, and a bias.
pub(crate) struct EdgeMap {
    pub(crate) weight: Tensor<2>,
    pub(crate) bias: Option<Tensor<2>>,
}

impl EdgeMap {
    /// A row per edge.
    fn of(self, edges: &FeaturedEdges, device: &Device) -> Tensor<2> {
        let Matrix { values, rows, cols } = &edges.features;
        let features = Tensor::from_data(TensorData::new(values.clone(), [*rows, *cols]), device);
        epilogue(features.matmul(self.weight.transpose()), self.bias, None, None)
    }
}

/// GAT without its bias: coefficients softmax(leaky_relu(a_src·z_u + a_dst·z_v + a_edge·We)), output their sum of z_u, heads side by
/// side. `attention` has the vectors of sources, destinations and edges.
pub(crate) fn gat_of_edges(
    z: Tensor<2>,
    edges: &FeaturedEdges,
    map: EdgeMap,
    attention: [Tensor<2>; 3],
    options: &AttentionOptions,
) -> Tensor<2> {
    let (adjacency, device, heads) = (&edges.edges, z.device(), options.heads);
    let [src, dst, edge] = attention;
    let of_sources = edge_sources(per_head(z.clone() * src, heads), adjacency);
    let of_destinations = edge_destinations(per_head(prefix(z.clone(), adjacency.num_dst()) * dst, heads), adjacency);
    let scores = of_sources + of_destinations + per_head(map.of(edges, &device) * edge, heads);
    attend(z, leaky_relu(scores, f64::from(options.slope)), edges, options)
}

/// GATv2 without its last bias: coefficients softmax(att·leaky_relu(l_u + r_v + We)), output their sum of l_u, heads side by side.
pub(crate) fn gatv2_of_edges(
    [left, right]: [Tensor<2>; 2],
    edges: &FeaturedEdges,
    map: EdgeMap,
    att: Tensor<2>,
    options: &AttentionOptions,
) -> Tensor<2> {
    let (adjacency, device) = (&edges.edges, left.device());
    let sum = edge_sources(left.clone(), adjacency) + edge_destinations(right, adjacency) + map.of(edges, &device);
    let scores = per_head(leaky_relu(sum, f64::from(options.slope)) * att, options.heads);
    attend(left, scores, edges, options)
}

/// The sum of relu(x_u + We + b) over a node's edges, and `1 + eps` times its own row (Hu et al., ICLR 2020; PyG's `GINEConv`).
pub(crate) fn gine_sum(x: Tensor<2>, eps: Tensor<2>, edges: &FeaturedEdges, map: EdgeMap) -> Tensor<2> {
    let (adjacency, device) = (&edges.edges, x.device());
    let own = prefix(x.clone(), adjacency.num_dst());
    let own = own.clone() + own * eps;
    if adjacency.num_edges() == 0 {
        return own;
    }
    let x = prefix(x, adjacency.num_src());
    own + sum_edges(relu(edge_sources(x, adjacency) + map.of(edges, &device)), adjacency)
}

/// The sum over each head's columns: `[rows, heads * width]` to `[rows, heads]`.
fn per_head(x: Tensor<2>, heads: usize) -> Tensor<2> {
    let [rows, cols] = x.dims();
    x.reshape([rows, heads, cols / heads]).sum_dim(2).reshape([rows, heads])
}

/// The sum of the sources' `values` by the softmax of the scores.
fn attend(values: Tensor<2>, scores: Tensor<2>, edges: &FeaturedEdges, options: &AttentionOptions) -> Tensor<2> {
    let (adjacency, heads) = (&edges.edges, options.heads);
    let [_, cols] = values.dims();
    let count = adjacency.num_edges();
    let mut shares = apply(Softmax { edges: Arc::clone(adjacency) }, [scores]);
    if let Some(mask) = &options.dropout {
        let rows = adjacency.edge_rows();
        let mut factors = Matrix::zeros(count, heads);
        for_rows(&mut factors, |edge, factors| {
            mask.fill(rows[edge] as usize, edges.entries[edge] as usize * heads, factors);
        });
        shares = shares * Tensor::from_data(TensorData::new(factors.values, [count, heads]), &values.device());
    }
    let messages = edge_sources(values, adjacency).reshape([count, heads, cols / heads]);
    let messages = messages * shares.reshape([count, heads, 1]);
    sum_edges(messages.reshape([count, cols]), adjacency)
}

/// The softmax of each column over the edges of each destination row.
#[derive(Debug)]
struct Softmax {
    edges: Arc<Adjacency>,
}

impl Softmax {
    fn shares(&self, scores: MatrixRef<'_>) -> Matrix {
        let heads = scores.cols;
        let mut out = scores.values.to_vec();
        for row in 0..self.edges.num_dst() {
            let of_row = self.edges.row(row);
            let of_row = &mut out[of_row.start * heads..of_row.end * heads];
            for head in 0..heads {
                let max = of_row.iter().skip(head).step_by(heads).fold(f32::NEG_INFINITY, |max, &score| max.max(score));
                let mut sum = 0.0;
                for score in of_row.iter_mut().skip(head).step_by(heads) {
                    *score = (*score - max).exp();
                    sum += *score;
                }
                of_row.iter_mut().skip(head).step_by(heads).for_each(|score| *score /= sum);
            }
        }
        Matrix::new(out, scores.rows, heads)
    }
}

impl HostOp for Softmax {
    fn forward(&self, inputs: &[MatrixRef<'_>]) -> Matrix {
        self.shares(inputs[0])
    }

    fn saves_inputs(&self) -> bool {
        true
    }

    fn backward(&self, grad: MatrixRef<'_>, inputs: &[MatrixRef<'_>], wanted: &[bool]) -> Vec<Option<Matrix>> {
        vec![wanted[0].then(|| {
            let (mut out, heads) = (self.shares(inputs[0]), grad.cols);
            for row in 0..self.edges.num_dst() {
                let of_row = self.edges.row(row);
                let of_row = of_row.start * heads..of_row.end * heads;
                let (shares, grads) = (&mut out.values[of_row.clone()], &grad.values[of_row]);
                for head in 0..heads {
                    let both = shares.iter().zip(grads).skip(head).step_by(heads);
                    let sum: f32 = both.map(|(share, grad)| share * grad).sum();
                    let both = shares.iter_mut().zip(grads).skip(head).step_by(heads);
                    both.for_each(|(share, grad)| *share *= grad - sum);
                }
            }
            out
        })]
    }
}
