//! Gradients of every layer against finite differences, with respect to inputs and every parameter.

mod common;

use std::sync::Arc;

use burn_tensor::{Device, Tensor, TensorData};
use common::{block, random};
use morphgl_graph_store::FeatureView;
use morphgl_layers::{
    Adjacency, AttentionOptions, Coefficients, Degrees, Features, GcnNorm, Mask, aggregate_beside_self, batch_norm,
    edge_destinations, edge_sources, epilogue, gat, gatv2, gcn, gin, l2_normalize, layer_norm, mean_heads, sage,
    sum_edges, values,
};
use morphgl_model_core::{Activation, Dropout, DropoutSite};

/// Step of the differences: rounding errs by about 1e-7 / STEP, curvature by about STEP².
const STEP: f32 = 4e-3;
/// What both errors together stay below, of gradients around 1.
const TOLERANCE: f64 = 3e-3;

fn tensor(values: &[f32], shape: [usize; 2], device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

/// Compares the gradients of a weighted sum of `f`'s outputs with central differences in every element of every input.
#[track_caller]
fn check(what: &str, shapes: &[[usize; 2]], f: impl Fn(&[Tensor<2>]) -> Tensor<2>) {
    let mut inputs: Vec<Vec<f32>> =
        shapes.iter().enumerate().map(|(i, s)| random(18 + i as u64, s[0] * s[1])).collect();
    let run = |inputs: &[Vec<f32>], device: &Device| -> Vec<Tensor<2>> {
        let tensors = inputs.iter().zip(shapes).map(|(v, &shape)| tensor(v, shape, device));
        tensors.map(|t| if device.is_autodiff() { t.require_grad() } else { t }).collect()
    };
    let device = Device::flex().autodiff();
    let tensors = run(&inputs, &device);
    let out = f(&tensors);
    let dims = out.dims();
    let weights = random(99, dims[0] * dims[1]);
    let grads = (out * tensor(&weights, dims, &device)).sum().backward();
    let value = |inputs: &[Vec<f32>]| -> f64 {
        let out = values(f(&run(inputs, &Device::flex())));
        out.iter().zip(&weights).map(|(&o, &w)| f64::from(o) * f64::from(w)).sum()
    };
    for i in 0..inputs.len() {
        let grad = values(tensors[i].grad(&grads).expect("every input has a gradient"));
        for e in 0..inputs[i].len() {
            let x = inputs[i][e];
            inputs[i][e] = x + STEP;
            let (up, above) = (value(&inputs), inputs[i][e]);
            inputs[i][e] = x - STEP;
            let (down, below) = (value(&inputs), inputs[i][e]);
            inputs[i][e] = x;
            let difference = (up - down) / f64::from(above - below);
            let error = (difference - f64::from(grad[e])).abs() / difference.abs().max(1.0);
            assert!(error < TOLERANCE, "{what}, input {i}, element {e}: {}, differences say {difference}", grad[e]);
        }
    }
}

fn dense(x: &Tensor<2>) -> Features {
    Features::Dense(x.clone())
}

fn gcn_block(norm: GcnNorm, self_loops: bool) -> Arc<Adjacency> {
    let (incoming, outgoing) = ([4.0, 1.0, 2.5, 4.5, 1.0, 2.0, 3.0], [2.0, 1.0, 2.0, 3.0, 4.0, 1.0, 1.0]);
    Arc::new(Adjacency::gcn(&block(), Degrees { incoming: &incoming, outgoing: &outgoing }, norm, self_loops))
}

#[test]
fn graph_convolution() {
    for norm in [GcnNorm::None, GcnNorm::In, GcnNorm::Out, GcnNorm::InOut, GcnNorm::InIn] {
        for (self_loops, out) in [(true, 2), (false, 40)] {
            let adjacency = gcn_block(norm, self_loops);
            check(&format!("gcn {norm:?}"), &[[7, 5], [out, 5]], |t| gcn(&dense(&t[0]), &adjacency, t[1].clone()));
        }
    }
}

/// Both orders of linear layer and aggregation: the cost decides by the widths.
#[test]
fn graphsage() {
    let adjacency = Arc::new(Adjacency::mean(&block()));
    assert!(adjacency.transform_first(40, 2) && !adjacency.transform_first(2, 40));
    for [i, o] in [[40, 2], [2, 40]] {
        check("sage", &[[7, i], [o, i], [o, i]], |t| sage(&dense(&t[0]), &adjacency, t[1].clone(), t[2].clone()));
        check("sage, scaled to length 1", &[[7, i], [o, i], [o, i]], |t| {
            l2_normalize(sage(&dense(&t[0]), &adjacency, t[1].clone(), t[2].clone()))
        });
    }
    check("aggregate beside self", &[[7, 3]], |t| aggregate_beside_self(t[0].clone(), &adjacency));
}

#[test]
fn messages_per_edge() {
    let num_edges = block().num_edges();
    let sum = || Adjacency::sum(&block(), &[3.0, 0.0, 5.0, 4.5, 1.0, 1.0, 1.0]);
    for adjacency in [Adjacency::edges(&block()), Adjacency::mean(&block()), sum(), gcn_block_of_edges()].map(Arc::new)
    {
        let num_dst = adjacency.num_dst();
        check("sources of edges", &[[7, 3]], |t| edge_sources(t[0].clone(), &adjacency));
        check("destinations of edges", &[[num_dst, 3]], |t| edge_destinations(t[0].clone(), &adjacency));
        check("sum of edges", &[[num_edges, 3]], |t| sum_edges(t[0].clone(), &adjacency));
    }
}

fn gcn_block_of_edges() -> Adjacency {
    let coefficients = (0..block().num_edges()).map(|edge| 0.5 + edge as f32).collect();
    Adjacency::new(&block(), Coefficients::Edges(coefficients), None)
}

#[test]
fn isomorphism_network() {
    let adjacency = Arc::new(Adjacency::sum(&block(), &[3.0, 0.0, 5.0, 4.5, 1.0, 1.0, 1.0]));
    for [i, o] in [[20, 3], [3, 20]] {
        check("gin", &[[7, i], [1, 1], [o, i], [1, o], [2, o]], |t| {
            let first = (t[2].clone(), t[3].clone());
            gin(&dense(&t[0]), &adjacency, t[1].clone(), first, t[4].clone())
        });
    }
}

/// The mask over rows of eight nodes.
fn mask(dropout: Option<Dropout>) -> Option<Mask> {
    dropout.map(|dropout| Mask { dropout, nodes: Arc::from([3, 9, 4, 0, 77, 5, 1, 12]) })
}

fn options(self_loops: bool, dropped: bool) -> AttentionOptions {
    let dropout = mask(Dropout::new(5, 1, 2, 0, DropoutSite::Attention, if dropped { 0.4 } else { 0.0 }));
    AttentionOptions { heads: 2, slope: 0.2, self_loops, dropout }
}

#[test]
fn attention() {
    let adjacency = Arc::new(Adjacency::edges(&block()));
    for (self_loops, dropped) in [(true, false), (false, true), (true, true)] {
        check("gat", &[[7, 3], [6, 3], [1, 6], [1, 6]], |t| {
            let options = options(self_loops, dropped);
            gat(&dense(&t[0]), &adjacency, t[1].clone(), t[2].clone(), t[3].clone(), options)
        });
        check("gat, averaged", &[[7, 3], [6, 3], [1, 6], [1, 6]], |t| {
            let options = options(self_loops, dropped);
            mean_heads(gat(&dense(&t[0]), &adjacency, t[1].clone(), t[2].clone(), t[3].clone(), options), 2)
        });
        check("gatv2", &[[7, 3], [6, 3], [1, 6], [6, 3], [1, 6], [1, 6]], |t| {
            let (left, right) = ((t[1].clone(), Some(t[2].clone())), (t[3].clone(), Some(t[4].clone())));
            gatv2(&dense(&t[0]), &adjacency, left, right, t[5].clone(), options(self_loops, dropped))
        });
    }
}

#[test]
fn ends_of_layers() {
    let dropout = mask(Dropout::new(3, 0, 0, 1, DropoutSite::Hidden, 0.3));
    for activation in [None, Some(Activation::Relu), Some(Activation::Elu)] {
        for dropout in [None, dropout.clone()] {
            check(&format!("{activation:?} {dropout:?}"), &[[6, 5], [1, 5]], |t| {
                epilogue(t[0].clone(), Some(t[1].clone()), activation, dropout.clone())
            });
        }
    }
    check("layer norm", &[[6, 5], [1, 5], [1, 5]], |t| layer_norm(t[0].clone(), t[1].clone(), t[2].clone()));
    check("batch norm", &[[6, 5], [1, 5], [1, 5]], |t| batch_norm(t[0].clone(), t[1].clone(), t[2].clone(), 0).0);
}

/// Weights of a layer whose input is sparse.
#[test]
fn sparse_input() {
    let mut words = random(4, 7 * 64);
    words.iter_mut().enumerate().filter(|(i, _)| i % 11 != 3).for_each(|(_, w)| *w = 0.0);
    let dropout = mask(Dropout::new(3, 0, 0, 0, DropoutSite::Input, 0.3));
    for dropout in [None, dropout] {
        let x = Features::read(FeatureView::F32(&words), 64, dropout.as_ref(), &Device::flex());
        assert!(matches!(x, Features::Sparse(_)), "one in eleven is sparse");
        let adjacency = Arc::new(Adjacency::mean(&block()));
        check("sparse sage", &[[3, 64], [3, 64]], |t| sage(&x, &adjacency, t[0].clone(), t[1].clone()));
    }
}
