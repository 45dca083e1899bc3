//! The heterogeneous graph transformer (Hu et al., WWW 2020), as PyG's `HGTConv` has it: keys, queries and values by node type, a map of
//! both keys and values per edge type and head, and one softmax over all edges of a destination.

use std::sync::Arc;

use burn_tensor::{Tensor, TensorData, activation};
use morphgl_model_core::ModelSpec;

use super::Pass;
use crate::adjacency::{Adjacency, HgtBlock};
use crate::edges::{edge_destinations, edge_sources, sum_edges};
use crate::epilogue::epilogue;
use crate::features::{Features, prefix, select};
use crate::normalization::values;

impl Pass<'_> {
    /// A layer of the transformer.
    pub(crate) fn transform(&self, layer: usize, x: &Features, block: &HgtBlock) -> Tensor<2> {
        let (device, spec, shape) = (self.parameters.device(), self.spec, self.spec.layer(layer));
        let (heads, width) = (shape.heads, shape.out_dim);
        let x = match x {
            Features::Dense(x) => prefix(x.clone(), block.num_src),
            Features::Sparse(_) => x.linear(Tensor::eye(x.dim(), &device), block.num_src),
        };
        let types = spec.types.as_ref().expect("a typed model has types");
        let get = |name: &str| self.parameters.get(&format!("convs.{layer}.{name}"));
        let name = |of_type: usize| ModelSpec::node_type_key(&types.node_types()[of_type]);
        // Part 0, 1, 2 of the rows of a node type: keys, queries, values.
        let linear = |rows: Tensor<2>, of_type: usize, part: usize| {
            let [weight, bias] = ["weight", "bias"].map(|of| get(&format!("kqv_lin.lins.{}.{of}", name(of_type))));
            let weight = weight.narrow(0, part * width, width).transpose();
            epilogue(rows.matmul(weight), Some(bias.narrow(1, part * width, width)), None, None)
        };
        let per_type = |map: &str, rows: Tensor<2>, edge_type: usize| {
            let (count, size) = (types.edge_types().len(), shape.head_dim * shape.head_dim);
            let maps = get(map).reshape([heads * count, size]);
            let head = |h: usize| {
                let weight = maps.clone().narrow(0, h * count + edge_type, 1).reshape([shape.head_dim, shape.head_dim]);
                rows.clone().narrow(1, h * shape.head_dim, shape.head_dim).matmul(weight)
            };
            Tensor::cat((0..heads).map(head).collect(), 1)
        };
        // A row per head with ones in the head's columns.
        let of_head = |i: usize| if i % width / shape.head_dim == i / width { 1.0f32 } else { 0.0 };
        let ones: Vec<f32> = (0..heads * width).map(of_head).collect();
        let ones = Tensor::<2>::from_data(TensorData::new(ones, [heads, width]), &device);
        let (mut keys, mut of_values) = (Vec::new(), Vec::new());
        for (edge_type, rows) in &block.sources {
            let (rows, of_type) = (select(x.clone(), rows), types.ends(*edge_type)[0]);
            let key = ModelSpec::edge_type_key(&types.edge_types()[*edge_type]);
            let scale = get(&format!("p_rel.{key}")).div_scalar((shape.head_dim as f32).sqrt()).matmul(ones.clone());
            keys.push(per_type("k_rel.weight", linear(rows.clone(), of_type, 0), *edge_type) * scale);
            of_values.push(per_type("v_rel.weight", linear(rows, of_type, 2), *edge_type));
        }
        let num_dst = block.edges.num_dst();
        let attended = match keys.is_empty() {
            true => Tensor::zeros([num_dst, width], &device),
            false => {
                let queries =
                    block.destinations.iter().map(|(of_type, rows)| linear(select(x.clone(), rows), *of_type, 1));
                let queries = in_order(queries.collect(), &block.destinations, num_dst);
                let [keys, of_values] =
                    [keys, of_values].map(|rows| padded(Tensor::cat(rows, 0), block.edges.num_src()));
                attend(queries, keys, of_values, &ones, &block.edges)
            }
        };
        let attended = activation::gelu(attended);
        let parts = block.destinations.iter().map(|(of_type, rows)| {
            let skip = get(&format!("skip.{}", name(*of_type)));
            if !(0..types.edge_types().len()).any(|edge_type| types.ends(edge_type)[1] == *of_type) {
                // Of a type that no edge type leads to: 0, of which any mini-batch has a gradient.
                return Tensor::zeros([rows.len(), width], &device) + skip.mul_scalar(0.0);
            }
            let [weight, bias] = ["weight", "bias"].map(|of| get(&format!("out_lin.lins.{}.{of}", name(*of_type))));
            let out = epilogue(select(attended.clone(), rows).matmul(weight.transpose()), Some(bias), None, None);
            match shape.in_dim == width {
                true => {
                    let share = activation::sigmoid(skip);
                    out * share.clone() + select(x.clone(), rows) * (share.neg().add_scalar(1.0))
                }
                false => out,
            }
        });
        in_order(parts.collect(), &block.destinations, num_dst)
    }
}

/// The rows of all node types in the order of the destinations.
fn in_order(parts: Vec<Tensor<2>>, destinations: &[(usize, Vec<i32>)], num_dst: usize) -> Tensor<2> {
    let mut position = vec![0i32; num_dst];
    for (at, &row) in (0..).zip(destinations.iter().flat_map(|(_, rows)| rows)) {
        position[row as usize] = at;
    }
    select(Tensor::cat(parts, 0), &position)
}

/// Rows, followed by as many of zeros as are missing.
fn padded(rows: Tensor<2>, count: usize) -> Tensor<2> {
    let [given, width] = rows.dims();
    match given < count {
        true => Tensor::cat(vec![rows.clone(), Tensor::zeros([count - given, width], &rows.device())], 0),
        false => rows,
    }
}

/// Attention with a softmax over each destination's edges, per head; `ones` has a row per head.
fn attend(
    queries: Tensor<2>,
    keys: Tensor<2>,
    of_values: Tensor<2>,
    ones: &Tensor<2>,
    edges: &Arc<Adjacency>,
) -> Tensor<2> {
    let products = edge_destinations(queries, edges) * edge_sources(keys, edges);
    let scores = products.matmul(ones.clone().transpose());
    let [num_edges, heads] = scores.dims();
    // The largest score of each destination, a constant that its coefficients do not depend on.
    let found = values(scores.clone().without_autodiff());
    let mut largest = vec![f32::NEG_INFINITY; edges.num_dst() * heads];
    for (edge, &row) in edges.edge_rows().iter().enumerate() {
        for h in 0..heads {
            let at = &mut largest[row as usize * heads + h];
            *at = at.max(found[edge * heads + h]);
        }
    }
    let of_edges = edges.edge_rows().iter().flat_map(|&row| &largest[row as usize * heads..][..heads]).copied();
    let of_edges = TensorData::new(of_edges.collect::<Vec<f32>>(), [num_edges, heads]);
    let exponents = (scores.clone() - Tensor::from_data(of_edges, &scores.device())).exp();
    let sums = edge_destinations(sum_edges(exponents.clone(), edges), edges);
    let coefficients = (exponents / sums).matmul(ones.clone());
    sum_edges(edge_sources(of_values, edges) * coefficients, edges)
}
