//! Full-neighbour inference: one layer over a chunk of rows.

use std::ops::Range;

use morphgl_graph_store::{Dataset, Types};
use morphgl_model_core::{Chunk, Input, Layers, Limits, ModelKind, ModelSpec};

use crate::network::{EvaluationInput, Network};
use crate::parallel;

/// Nodes whose inputs per node type are made at once.
const INPUT_ROWS: u32 = 1 << 16;
/// Rows that a task copies.
const ROWS: usize = 64;

/// A model in evaluation mode.
pub(crate) struct InferenceModel<'a> {
    pub(crate) network: &'a mut Network,
    pub(crate) spec: &'a ModelSpec,
    pub(crate) parameters: &'a [f32],
    /// Scratch for the chunk's input rows.
    pub(crate) input: Vec<f32>,
}

impl Layers for InferenceModel<'_> {
    fn row_bytes(&self, layer: usize, _input: Input<'_>) -> usize {
        let input = self.network.nonzeros_bytes().filter(|_| layer == 0);
        input.unwrap_or(4 * self.spec.layer(layer).in_dim) + kept_bytes(self.spec, layer)
    }

    fn inputs(&mut self, _: usize, nodes: Range<u32>, out: &mut Vec<f32>) {
        for start in nodes.clone().step_by(INPUT_ROWS as usize) {
            let rows: Vec<u32> = (start..(start + INPUT_ROWS).min(nodes.end)).collect();
            out.extend_from_slice(self.network.input_rows(self.parameters, &rows));
        }
    }

    fn evaluate(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>) {
        let (nodes, dim) = (&chunk.nodes, self.spec.layer(layer).in_dim);
        let input = if layer == 0 && self.network.nonzeros_bytes().is_some() {
            EvaluationInput::Nonzeros(nodes)
        } else {
            self.input.resize(nodes.len() * dim, 0.0);
            parallel::pieces(&mut self.input, ROWS * dim, &|task, rows| {
                for (row, &v) in rows.chunks_exact_mut(dim).zip(&nodes[ROWS * task..]) {
                    let start = v as usize * dim;
                    match input {
                        Input::Features(features) => features.view().part(start, dim).to_f32(row),
                        Input::Rows(x) => row.copy_from_slice(&x[start..start + dim]),
                    }
                }
            });
            EvaluationInput::Rows(&self.input)
        };
        let block = self.spec.reads_graph().then_some(&chunk.block);
        let (graph, of_nodes) = ((block, chunk.block.num_dst), (&chunk.degrees[..], &nodes[..]));
        out.extend_from_slice(self.network.evaluate_layer(layer, self.parameters, graph, of_nodes, input));
    }
}

/// Bytes of a row in the buffers that a layer keeps for the next chunk: output and intermediate rows, coefficients and scores.
fn kept_bytes(spec: &ModelSpec, layer: usize) -> usize {
    let shape = spec.layer(layer);
    let width = shape.heads * shape.head_dim;
    if let Some(types) = spec.types.as_ref().filter(|_| spec.kind.is_typed()) {
        return 4 * (shape.out_dim + rows_by_type(types) * (shape.in_dim + 2 * width + 3 * shape.heads));
    }
    // Of attention: transformed rows, and all heads before they are averaged; neither where it comes first.
    let intermediate = if spec.kind == ModelKind::Gat { 2 * width } else { width.max(shape.in_dim) };
    4 * (shape.out_dim + intermediate + 3 * shape.heads)
}

/// Maximum number of rows that a node has in the groups of a typed layer: one for each edge type that it has a part in, and its own.
fn rows_by_type(types: &Types) -> usize {
    let of_type =
        |node_type: usize| (0..types.edge_types().len()).filter(|&e| types.ends(e).contains(&node_type)).count();
    1 + (0..types.node_types().len()).map(of_type).max().unwrap_or(0)
}

/// Maximum bytes of inference over all nodes of `dataset`, including the logits.
///
/// Every layer has buffers of its own, which stay when the next layer is computed.
pub(crate) fn bytes(spec: &ModelSpec, dataset: &Dataset, limits: Limits) -> u64 {
    let (nodes, edges) = (dataset.num_nodes(), dataset.topology.num_edges().min(limits.edges as u64));
    let layers = || (0..spec.layers).map(|layer| (layer, spec.layer(layer)));
    let rows = |layer, in_dim| nodes.min(limits.bytes / (4 * in_dim + kept_bytes(spec, layer)));
    let kept: usize = layers().map(|(l, shape)| rows(l, shape.in_dim) * kept_bytes(spec, l)).sum();
    let input = layers().map(|(l, shape)| 4 * shape.in_dim * rows(l, shape.in_dim)).max().unwrap_or(0);
    // The output of the layer before, and the layer's own.
    let read = |l: usize| l == 0 && spec.input_widths.is_empty();
    let outputs = layers().map(|(l, shape)| 4 * nodes * (if read(l) { 0 } else { shape.in_dim } + shape.out_dim)).max();
    // Coefficients of the edges, of each head with attention.
    let by_edge = spec.kind.is_typed() || matches!(spec.kind, ModelKind::Gcn | ModelKind::Gat);
    let has_coefficients = by_edge || dataset.topology.weights().is_some();
    // Typed edges are copied, too.
    let copies = if spec.kind.is_typed() { 8 } else { 0 };
    let per_edge: usize = layers().map(|(_, shape)| if has_coefficients { copies + 4 * shape.heads } else { 0 }).sum();
    // Ids of edges, and terms of their scores.
    let of_features: usize = layers().map(|(_, shape)| if spec.reads_edges() { 8 + 4 * shape.heads } else { 0 }).sum();
    let per_edge = per_edge + of_features;
    // Per node: ids, positions, degrees, local ids and marks; per edge of a chunk: index and weight, in vectors that grow.
    (kept + input + outputs.unwrap_or(0) + 28 * nodes) as u64 + edges * (12 + per_edge as u64)
}
