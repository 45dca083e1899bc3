//! Layers over chunks of rows: full-neighbour inference.

use std::ops::Range;

use burn_tensor::{Device, Tensor, TensorData};
use morphgl_graph_store::Dataset;
use morphgl_layers::{Features, Pass, TypedNodes, adjacency, values};
use morphgl_model_core::{Chunk, Input, Layers, Limits, ModelKind, ModelSpec};
use rayon::prelude::*;

use crate::KEY;

/// Maximum size of a chunk, unless a single row exceeds it.
const LIMITS: Limits = Limits { bytes: 256 << 20, edges: 4 << 20, rows: 1 << 17 };
/// Nodes whose inputs per node type are made at once.
const INPUT_ROWS: u32 = 1 << 16;
/// Rows per edge that a model of another crate may hold at a time: sources, destinations, and a message made of them.
const ROWS_PER_EDGE: usize = 4;

/// Bytes per edge of a chunk, in the widest layer: a model of another crate may have rows of messages, as have ours that read features
/// of edges.
pub(crate) fn edge_bytes(spec: &ModelSpec) -> usize {
    let width = |layer| {
        let shape = spec.layer(layer);
        shape.out_dim.max(shape.heads * shape.head_dim).max(if spec.reads_edges() { shape.in_dim } else { 0 })
    };
    let width = (0..spec.layers).map(width).max().unwrap_or(0);
    let has_rows = matches!(spec.kind, ModelKind::Submitted(_)) || spec.reads_edges();
    if has_rows { ROWS_PER_EDGE * 4 * width } else { 0 }
}

/// The limits of a model's chunks.
pub(crate) fn limits(spec: &ModelSpec) -> Limits {
    match edge_bytes(spec) {
        0 => LIMITS,
        bytes => Limits { edges: (LIMITS.bytes / bytes).clamp(1, LIMITS.edges), ..LIMITS },
    }
}

/// Layers of a model in evaluation.
pub(crate) struct Model<'a> {
    pub(crate) pass: &'a Pass<'a>,
    pub(crate) dataset: &'a Dataset,
}

impl Layers for Model<'_> {
    fn row_bytes(&self, layer: usize, input: Input<'_>) -> usize {
        let shape = self.pass.spec.layer(layer);
        let input_bytes = match input {
            Input::Features(features) => Features::gathered_row_bytes(features.view(), shape.in_dim),
            Input::Rows(_) => 4 * shape.in_dim,
        };
        input_bytes + 4 * shape.out_dim
    }

    fn inputs(&mut self, _: usize, nodes: Range<u32>, out: &mut Vec<f32>) {
        for start in nodes.clone().step_by(INPUT_ROWS as usize) {
            let rows: Vec<u32> = (start..(start + INPUT_ROWS).min(nodes.end)).collect();
            let input = self.pass.read_inputs(KEY, self.dataset, &rows, &[]).expect("nodes of the graph");
            let Features::Dense(input) = input else { unreachable!("inputs per node type are dense") };
            out.extend(values(input));
        }
    }

    fn evaluate(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>) {
        let spec = self.pass.spec;
        let in_dim = spec.layer(layer).in_dim;
        let input = match input {
            Input::Features(features) => Features::gather(features.view(), in_dim, &chunk.nodes, None, &Device::flex()),
            Input::Rows(x) => Features::Dense(gather(x, in_dim, &chunk.nodes)),
        };
        let nodes = self.dataset.topology.types().map(|types| TypedNodes { types, nodes: &chunk.nodes });
        let block = adjacency(spec, &chunk.block, &chunk.degrees, nodes, &self.dataset.edge_features);
        out.extend(values(self.pass.layer(layer, &input, block.as_ref(), &mut Vec::new())));
    }
}

/// Gathers rows of nodes from a layer's output.
fn gather(x: &[f32], width: usize, nodes: &[u32]) -> Tensor<2> {
    let mut rows = vec![0.0; nodes.len() * width];
    if width > 0 {
        rows.par_chunks_mut(width).zip(nodes).with_min_len(64).for_each(|(row, &v)| {
            row.copy_from_slice(&x[v as usize * width..(v as usize + 1) * width]);
        });
    }
    Tensor::from_data(TensorData::new(rows, [nodes.len(), width]), &Device::flex())
}

#[cfg(test)]
mod tests;
