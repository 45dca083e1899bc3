//! Runs inference with layers that count walks. Run: `cargo run -p morphgl-training-core --example alone-training-core`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_conformance::training::tiny;
use morphgl_graph_store::FeatureMatrix;
use morphgl_model_spec::{ModelKind, ModelSpec};
use morphgl_registry::{Alone, Hardware, Key, Phase, Result};
use morphgl_training_core::{Chunk, Input, Layers, Limits, infer};

const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Count");

/// Counts the walks that end in each node: every layer sums the previous layer's counts over the in-neighbours.
struct WalkCount;

impl Layers for WalkCount {
    fn row_bytes(&self, _layer: usize, _features: &FeatureMatrix) -> usize {
        4
    }

    fn evaluate(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>) {
        let of = |local: &u32| match input {
            Input::Features(_) => 1.0,
            Input::Rows(x) => x[chunk.nodes[*local as usize] as usize],
        };
        println!(
            "layer {layer}: {} nodes read {} of {} edges",
            chunk.block.num_dst,
            chunk.nodes.len(),
            chunk.block.num_edges()
        );
        out.extend((0..chunk.block.num_dst).map(|row| chunk.block.row(row).iter().map(of).sum::<f32>()));
    }
}

fn main() -> Result<()> {
    let dataset = tiny();
    let model = ModelSpec { hidden: 1, layers: 2, ..ModelSpec::new(ModelKind::Sage, dataset.feature_dim(), 1) };
    let walks =
        infer((KEY, &model), &mut WalkCount, (&dataset, &[0, 5]), Limits { rows: 5, ..Limits::default() }, &mut Alone)?;
    println!("walks of two steps that end in nodes 0 and 5: {walks:?}");
    Ok(())
}
