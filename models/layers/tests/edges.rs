//! Layers that read features of edges: against sums in f64 as PyG defines them, and their gradients against finite differences.

mod common;

use burn_tensor::{Device, Tensor, TensorData};
use common::random;
use morphgl_graph_store::FeatureMatrix;
use morphgl_layers::{Features, Given, Mode, Parameters, Pass, adjacency, values};
use morphgl_model_core::{Attention, ModelKind, ModelSpec, initial_parameters};
use morphgl_registry::{Block, NamedTensor};

const WIDTH: usize = 2;

/// The common block, whose edges have features in place of weights.
fn block() -> Block {
    Block { weights: None, edge_ids: Some(vec![5, 2, 9, 0, 1, 3, 4, 8, 6]), ..common::block() }
}

fn edge_features() -> FeatureMatrix {
    FeatureMatrix::F32 { data: random(3, 10 * WIDTH).into(), dim: WIDTH }
}

fn specs() -> Vec<ModelSpec> {
    let of = |kind, attention| ModelSpec {
        attention,
        layers: 2,
        hidden: 6,
        heads: 3,
        output_heads: 2,
        dropout: 0.0,
        train_eps: true,
        edge_widths: vec![WIDTH],
        ..ModelSpec::new(kind, 5, 4)
    };
    vec![of(ModelKind::Gat, Attention::Gat), of(ModelKind::Gat, Attention::Gatv2), of(ModelKind::Gin, Attention::Gat)]
}

/// Parameters without zeros, biases and epsilon included.
fn parameters(spec: &ModelSpec) -> Vec<NamedTensor> {
    spec.validate().expect("a valid model");
    let initial = initial_parameters(spec, 1).into_iter().zip(7..);
    initial.map(|(tensor, seed)| NamedTensor { values: random(seed, tensor.values.len()), ..tensor }).collect()
}

/// In-degrees of the nodes.
const DEGREES: [f32; 7] = [3.0, 0.0, 3.0, 3.0, 1.0, 1.0, 2.0];

/// A matrix `[rows, cols]` times a vector.
fn times(matrix: &[f32], x: &[f64]) -> Vec<f64> {
    matrix.chunks(x.len()).map(|row| row.iter().zip(x).map(|(&m, x)| f64::from(m) * x).sum()).collect()
}

fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// The layer as PyG defines it: edges to oneself are replaced by one whose features are the mean of the others' (GATConv, GATv2Conv).
fn reference(spec: &ModelSpec, parameters: &[NamedTensor], layer: usize, block: &Block, x: &[f64]) -> Vec<f64> {
    let get = |name: &str| -> &[f32] {
        let name = format!("convs.{layer}.{name}");
        &parameters.iter().find(|tensor| tensor.name == name).unwrap_or_else(|| panic!("no {name}")).values
    };
    let (shape, features) = (spec.layer(layer), edge_features());
    let all = random(3, 10 * WIDTH);
    let row = |v: usize| x[v * shape.in_dim..(v + 1) * shape.in_dim].to_vec();
    assert_eq!(features.dim(), WIDTH);
    let leaky = |x: f64| if x > 0.0 { x } else { 0.2 * x };
    let mut out = Vec::new();
    for dst in 0..block.num_dst {
        let edges = block.indptr[dst] as usize..block.indptr[dst + 1] as usize;
        let id = |edge: usize| block.edge_ids.as_ref().expect("ids")[edge] as usize;
        let edges =
            edges.map(|edge| (block.indices[edge] as usize, wide(&all[id(edge) * WIDTH..(id(edge) + 1) * WIDTH])));
        let mut edges: Vec<(usize, Vec<f64>)> = edges.collect();
        if spec.kind == ModelKind::Gin {
            let own = row(dst).into_iter().map(|x| x * (1.0 + f64::from(get("eps")[0]))).collect::<Vec<_>>();
            let sum = edges.iter().fold(own, |sum, (src, e)| {
                let message = add(&add(&row(*src), &times(get("lin.weight"), e)), &wide(get("lin.bias")));
                add(&sum, &message.into_iter().map(|x| x.max(0.0)).collect::<Vec<_>>())
            });
            let hidden = add(&times(get("nn.lins.0.weight"), &sum), &wide(get("nn.lins.0.bias")));
            let hidden: Vec<f64> = hidden.into_iter().map(|x| x.max(0.0)).collect();
            out.extend(add(&times(get("nn.lins.1.weight"), &hidden), &wide(get("nn.lins.1.bias"))));
            continue;
        }
        edges.retain(|(src, _)| *src != dst);
        let count = edges.len().max(1) as f64;
        let mean = edges.iter().fold(vec![0.0; WIDTH], |sum, (_, e)| add(&sum, e)).into_iter().map(|x| x / count);
        edges.push((dst, mean.collect()));
        let is_v2 = spec.attention == Attention::Gatv2;
        let message = |src: usize| match is_v2 {
            true => add(&times(get("lin_l.weight"), &row(src)), &wide(get("lin_l.bias"))),
            false => times(get("lin.weight"), &row(src)),
        };
        let mut sum = vec![0.0; shape.heads * shape.head_dim];
        for head in 0..shape.heads {
            let of_head = head * shape.head_dim..(head + 1) * shape.head_dim;
            let dot = |a: &[f32], b: &[f64]| -> f64 { of_head.clone().map(|at| f64::from(a[at]) * b[at]).sum() };
            let scores: Vec<f64> = edges
                .iter()
                .map(|(src, e)| {
                    let of_edge = times(get("lin_edge.weight"), e);
                    if is_v2 {
                        let right = add(&times(get("lin_r.weight"), &row(dst)), &wide(get("lin_r.bias")));
                        let all = add(&add(&message(*src), &right), &of_edge);
                        return dot(get("att"), &all.into_iter().map(leaky).collect::<Vec<_>>());
                    }
                    let ends = dot(get("att_src"), &message(*src)) + dot(get("att_dst"), &message(dst));
                    leaky(ends + dot(get("att_edge"), &of_edge))
                })
                .collect();
            let total: f64 = scores.iter().map(|score| score.exp()).sum();
            for ((src, _), score) in edges.iter().zip(&scores) {
                for at in of_head.clone() {
                    sum[at] += score.exp() / total * message(*src)[at];
                }
            }
        }
        if shape.last {
            let heads = shape.heads as f64;
            sum = (0..shape.head_dim)
                .map(|at| sum.iter().skip(at).step_by(shape.head_dim).sum::<f64>() / heads)
                .collect();
        }
        out.extend(add(&sum, &wide(get("bias"))));
    }
    match shape.last {
        true => out,
        false => out.into_iter().map(|x| x.max(0.0)).collect(),
    }
}

#[test]
fn layers_are_pyg_s() {
    for spec in specs() {
        let parameters = parameters(&spec);
        for layer in 0..spec.layers {
            let in_dim = spec.layer(layer).in_dim;
            let x = random(40, 7 * in_dim);
            let device = Device::flex();
            let tensors = Parameters::new(&parameters, &device);
            let pass = Pass { spec: &spec, parameters: &tensors, mode: Mode::Evaluation };
            let edges = adjacency(&spec, &block(), &DEGREES, None, &[Some(edge_features())]);
            let features = Features::Dense(Tensor::from_data(TensorData::new(x.clone(), [7, in_dim]), &device));
            let out = values(pass.layer(layer, &features, edges.as_ref(), &mut Vec::new()));
            let expected = reference(&spec, &parameters, layer, &block(), &wide(&x));
            assert_eq!(out.len(), expected.len());
            for (out, expected) in out.iter().zip(&expected) {
                let error = (f64::from(*out) - expected).abs() / expected.abs().max(1.0);
                assert!(error < 1e-5, "{:?} {:?}: {out}, expected {expected}", spec.kind, spec.attention);
            }
        }
    }
}

/// The block that the first one feeds.
fn last_block() -> Block {
    Block {
        num_dst: 2,
        num_src: 4,
        indptr: vec![0, 3, 5],
        indices: vec![1, 3, 2, 3, 0],
        edge_ids: Some(vec![7, 1, 3, 0, 9]),
        ..Block::default()
    }
}

/// Of both layers, in which rows of the first are inputs of the second.
#[test]
fn gradients_are_those_of_differences() {
    const STEP: f32 = 2e-4;
    for spec in specs() {
        let parameters = parameters(&spec);
        let x = random(41, 7 * spec.in_dim);
        let device = Device::flex().autodiff();
        let tensors = Parameters::new(&parameters, &device);
        let pass = Pass { spec: &spec, parameters: &tensors, mode: Mode::Evaluation };
        let edges = |block: &Block, degrees: &[f32]| adjacency(&spec, block, degrees, None, &[Some(edge_features())]);
        let features = Features::Dense(Tensor::from_data(TensorData::new(x.clone(), [7, spec.in_dim]), &device));
        let blocks = [edges(&block(), &DEGREES), edges(&last_block(), &[3.0, 2.0, 0.0, 0.0])];
        let given = Given { rows: &[], inputs: &[], nodes: &[] };
        let out = pass.forward(features, &blocks, given, 2, &mut Vec::new());
        let dims = out.dims();
        let weights = random(99, dims[0] * dims[1]);
        let weighted = Tensor::from_data(TensorData::new(weights.clone(), dims), &device);
        let mut grads = (out * weighted).sum().backward();
        let sum = |parameters: &[NamedTensor]| -> f64 {
            let hidden = reference(&spec, parameters, 0, &block(), &wide(&x));
            let out = reference(&spec, parameters, 1, &last_block(), &hidden);
            out.iter().zip(&weights).map(|(o, &w)| o * f64::from(w)).sum()
        };
        let mut changed = parameters.clone();
        for (number, tensor) in parameters.iter().enumerate() {
            let grad = values(tensors.get(&tensor.name).grad_remove(&mut grads).expect("a gradient"));
            for (element, (&start, found)) in tensor.values.iter().zip(grad).enumerate() {
                let mut value = |step: f32| {
                    changed[number].values[element] = start + step;
                    (sum(&changed), f64::from(changed[number].values[element]))
                };
                let [(up, above), (down, below)] = [value(STEP), value(-STEP)];
                changed[number].values[element] = start;
                let difference = (up - down) / (above - below);
                let error = (difference - f64::from(found)).abs() / difference.abs().max(1.0);
                let name = &tensor.name;
                assert!(error < 1e-3, "{name}, element {element}: {found}, differences say {difference}");
            }
        }
    }
}
