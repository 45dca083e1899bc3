//! Full-neighbour inference: one layer over a chunk of rows.

use morphgl_graph_store::FeatureMatrix;
use morphgl_model_spec::ModelSpec;
use morphgl_training_core::{Chunk, Input, Layers};

use crate::network::{EvaluationInput, Network};
use crate::parallel;

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
    fn row_bytes(&self, layer: usize, _features: &FeatureMatrix) -> usize {
        let shape = self.spec.layer(layer);
        let input = self.network.nonzeros_bytes().filter(|_| layer == 0).unwrap_or(4 * shape.in_dim);
        input + 8 * shape.out_dim.max(shape.heads * shape.head_dim)
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
        let graph = (block, &chunk.degrees[..], chunk.block.num_dst);
        out.extend_from_slice(self.network.evaluate_layer(layer, self.parameters, graph, input));
    }
}
