use morphgl_conformance::training::tiny;
use morphgl_model_spec::ModelKind;
use morphgl_registry::{Hardware, Phase};

use super::*;

/// Layers that return the rows of a chunk when the next one is queued; `finish` fails if `fails`.
struct DelayedLayers {
    rows: Vec<f32>,
    fails: bool,
}

impl QueuedLayers for DelayedLayers {
    fn row_bytes(&self, _layer: usize, _features: &FeatureMatrix) -> usize {
        1
    }

    fn queue(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>) -> Result<()> {
        out.append(&mut self.rows);
        let row = |&v: &u32| match input {
            Input::Features(_) => v as f32,
            Input::Rows(x) => 100.0 * layer as f32 + x[v as usize],
        };
        self.rows.extend(chunk.nodes[..chunk.block.num_dst].iter().map(row));
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<f32>) -> Result<()> {
        out.append(&mut self.rows);
        if self.fails { Err(Error::failed("a device", "it is lost")) } else { Ok(()) }
    }
}

#[test]
fn rows_may_be_appended_later() {
    const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Delayed");
    let dataset = tiny();
    let model = ModelSpec { hidden: 1, layers: 2, ..ModelSpec::new(ModelKind::Gcn, dataset.feature_dim(), 1) };
    let limits = Limits { rows: 2, ..Limits::default() };
    let delayed = |fails| {
        infer((KEY, &model), &mut DelayedLayers { rows: Vec::new(), fails }, &dataset, &[7, 0, 7, 3, 5], limits)
    };
    assert_eq!(delayed(false).expect("logits"), [107.0, 100.0, 107.0, 103.0, 105.0]);
    assert!(delayed(true).is_err_and(|e| e.to_string().contains("it is lost")));
}

#[test]
fn a_repeated_node_is_inferred_once() {
    assert_eq!(distinct(&[4, 1, 4, 0], 5), (vec![4, 1, 0], vec![0, 1, 0, 2]));
}
