use morphgl_conformance::training::tiny;
use morphgl_cuda::{Device, Precision};
use morphgl_model_core::{ModelSpec, OptimizerSpec, initial_parameters};
use morphgl_registry::SingleProcess;

use super::*;
use crate::layout::Layout;
use crate::state::State;

#[test]
fn chunks_of_any_size_give_the_same_logits() {
    let dataset = tiny();
    let all: Vec<u32> = (0..12).rev().collect();
    let device = Device::open(&"cuda:0".parse().expect("a place"), &KEY).expect("it is emulated");
    let mut gpu = Gpu::new(&device, Some(Precision::F32)).expect("a stream");
    for kind in ModelKind::UNTYPED {
        let spec = ModelSpec { hidden: 8, heads: 2, ..ModelSpec::new(kind, dataset.feature_dim(), 2) };
        let layout = Layout::new(&spec);
        let flat = layout.flat(&initial_parameters(&spec, 1));
        let state = State::new(&gpu.stream, &layout, &OptimizerSpec::default(), &flat).expect("memory");
        let [values, gradients] = state.views();
        let model = Model { spec: &spec, layout: &layout, values, gradients };
        let large = LIMITS;
        let whole = infer((&mut gpu, None, None), model, (&dataset, &all, spec.layers), (large, 1), &mut SingleProcess)
            .expect("logits");
        for limits in [
            Limits { bytes: 1, ..large },
            Limits { bytes: 500, ..large },
            Limits { edges: 4, ..large },
            Limits { rows: 5, ..large },
        ] {
            let regions =
                infer((&mut gpu, None, None), model, (&dataset, &all, spec.layers), (limits, 3), &mut SingleProcess)
                    .expect("logits");
            let near = regions.iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-5 * b.abs().max(1.0));
            assert!(near && regions.len() == whole.len(), "{kind}, {limits:?}: {regions:?}, in one chunk {whole:?}");
        }
    }
}
