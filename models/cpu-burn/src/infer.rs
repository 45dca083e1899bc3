//! Layers over chunks of rows: full-neighbour inference.

use burn_tensor::{Device, Tensor, TensorData};
use morphgl_graph_store::FeatureMatrix;
use morphgl_layers::{Features, Pass, adjacency, values};
use morphgl_model_core::{Chunk, Input, Layers, Limits, ModelKind, ModelSpec};
use rayon::prelude::*;

/// Maximum size of a chunk, unless a single row exceeds it.
const LIMITS: Limits = Limits { bytes: 256 << 20, edges: 4 << 20, rows: 1 << 17 };
/// Rows per edge that a model of another crate may hold at a time: sources, destinations, and a message made of them.
const ROWS_PER_EDGE: usize = 4;

/// Bytes per edge of a chunk, in the widest layer: a model of another crate may have rows of messages, ours have none.
pub(crate) fn edge_bytes(spec: &ModelSpec) -> usize {
    let width = (0..spec.layers).map(|layer| spec.layer(layer).out_dim).max().unwrap_or(0);
    if matches!(spec.kind, ModelKind::Submitted(_)) { ROWS_PER_EDGE * 4 * width } else { 0 }
}

/// The limits of a model's chunks.
pub(crate) fn limits(spec: &ModelSpec) -> Limits {
    match edge_bytes(spec) {
        0 => LIMITS,
        bytes => Limits { edges: (LIMITS.bytes / bytes).clamp(1, LIMITS.edges), ..LIMITS },
    }
}

/// Layers of a model in evaluation.
pub(crate) struct Model<'a>(pub(crate) &'a Pass<'a>);

impl Layers for Model<'_> {
    fn row_bytes(&self, layer: usize, features: &FeatureMatrix) -> usize {
        let shape = self.0.spec.layer(layer);
        let input_bytes = match layer {
            0 => Features::gathered_row_bytes(features.view(), shape.in_dim),
            _ => 4 * shape.in_dim,
        };
        input_bytes + 4 * shape.out_dim
    }

    fn evaluate(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>) {
        let spec = self.0.spec;
        let in_dim = spec.layer(layer).in_dim;
        let input = match input {
            Input::Features(features) => Features::gather(features.view(), in_dim, &chunk.nodes, None, &Device::flex()),
            Input::Rows(x) => Features::Dense(gather(x, in_dim, &chunk.nodes)),
        };
        let block = adjacency(spec, &chunk.block, &chunk.degrees);
        out.extend(values(self.0.layer(layer, &input, block.as_ref(), &mut Vec::new())));
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
