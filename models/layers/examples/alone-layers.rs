//! One GAT layer forward and backward on a triangle. Run: `cargo run -p morphgl-layers --example alone-layers`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use burn_tensor::{Device, Tensor};
use morphgl_layers::{Adjacency, AttentionOptions, Features, gat, values};
use morphgl_registry::Block;

fn main() {
    let block = Block { num_dst: 3, num_src: 3, indptr: vec![0, 1, 2, 3], indices: vec![1, 2, 0], ..Block::default() };
    let device = Device::flex().autodiff();
    let x = Tensor::<2>::from_data([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], &device);
    let weight = Tensor::<2>::eye(2, &device).require_grad();
    let att = Tensor::<2>::from_data([[0.5, -0.5]], &device);
    let options = AttentionOptions { heads: 1, slope: 0.2, self_loops: true, dropout: None };
    let edges = Arc::new(Adjacency::edges(&block));
    let out = gat(&Features::Dense(x), &edges, weight.clone(), att.clone(), att, options);
    println!("output {:?}", values(out.clone().inner()));
    let grads = out.sum().backward();
    println!("gradient of the weight {:?}", weight.grad(&grads).map(values));
}
