//! Layers over chunks of rows: full-neighbour inference.

use burn_tensor::{Device, Tensor, TensorData};
use morphgl_graph_store::FeatureMatrix;
use morphgl_layers::{Features, Pass, adjacency, values};
use morphgl_training_core::{Chunk, Input, Layers, Limits};
use rayon::prelude::*;

/// What a chunk holds at most, unless one row alone holds more.
pub(crate) const LIMITS: Limits = Limits { bytes: 256 << 20, edges: 4 << 20, rows: 1 << 17 };

/// A model to infer with.
pub(crate) struct Model<'a>(pub(crate) &'a Pass<'a>);

impl Layers for Model<'_> {
    fn row_bytes(&self, layer: usize, features: &FeatureMatrix) -> usize {
        let shape = self.0.spec.layer(layer);
        let read = match layer {
            0 => Features::gathered_row_bytes(features.view(), shape.in_dim),
            _ => 4 * shape.in_dim,
        };
        read + 4 * shape.out_dim
    }

    fn evaluate(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>) {
        let spec = self.0.spec;
        let in_dim = spec.layer(layer).in_dim;
        let input = match input {
            Input::Features(features) => Features::gather(features.view(), in_dim, &chunk.nodes, &Device::flex()),
            Input::Rows(x) => Features::Dense(gather(x, in_dim, &chunk.nodes)),
        };
        let block = adjacency(spec, &chunk.block, &chunk.degrees);
        out.extend(values(self.0.layer(layer, &input, block.as_ref(), &mut Vec::new())));
    }
}

/// Rows of some nodes, from a layer's output.
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
mod tests {
    use morphgl_conformance::training::tiny;
    use morphgl_layers::{Mode, Parameters};
    use morphgl_model_spec::{ModelKind, ModelSpec, initial_parameters};
    use morphgl_training_core::infer;

    use super::*;
    use crate::KEY;

    #[test]
    fn chunks_of_any_size_give_the_same_logits() {
        let dataset = tiny();
        let all: Vec<u32> = (0..12).rev().collect();
        for kind in ModelKind::ALL {
            let spec = ModelSpec { hidden: 8, heads: 2, ..ModelSpec::new(kind, dataset.feature_dim(), 2) };
            let parameters = Parameters::new(&initial_parameters(&spec, 1), &Device::flex());
            let pass = Pass { spec: &spec, parameters: &parameters, mode: Mode::Evaluation };
            let whole = infer((KEY, &spec), &mut Model(&pass), &dataset, &all, LIMITS).expect("logits");
            for limits in [
                Limits { bytes: 1, ..LIMITS },
                Limits { bytes: 300, ..LIMITS },
                Limits { edges: 4, ..LIMITS },
                Limits { rows: 5, ..LIMITS },
            ] {
                let parts = infer((KEY, &spec), &mut Model(&pass), &dataset, &all, limits).expect("logits");
                let near = parts.iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-5 * b.abs().max(1.0));
                assert!(near && parts.len() == whole.len(), "{kind}, {limits:?}: {parts:?}, in one chunk {whole:?}");
            }
        }
    }
}
