use morphgl_conformance::training::tiny;
use morphgl_layers::{Mode, Parameters};
use morphgl_model_core::{ModelKind, ModelSpec, infer, initial_parameters};
use morphgl_registry::SingleProcess;

use super::*;

#[test]
fn chunks_of_any_size_give_the_same_logits() {
    let dataset = tiny();
    let all: Vec<u32> = (0..12).rev().collect();
    for kind in ModelKind::UNTYPED {
        let spec = ModelSpec { hidden: 8, heads: 2, ..ModelSpec::new(kind, dataset.feature_dim(), 2) };
        let parameters = Parameters::new(&initial_parameters(&spec, 1), &Device::flex());
        let pass = Pass { spec: &spec, parameters: &parameters, mode: Mode::Evaluation };
        let whole = infer(
            (KEY, &spec),
            &mut Model { pass: &pass, dataset: &dataset },
            (&dataset, &all),
            spec.layers,
            LIMITS,
            &mut SingleProcess,
        )
        .expect("logits");
        for limits in [
            Limits { bytes: 1, ..LIMITS },
            Limits { bytes: 300, ..LIMITS },
            Limits { edges: 4, ..LIMITS },
            Limits { rows: 5, ..LIMITS },
        ] {
            let parts = infer(
                (KEY, &spec),
                &mut Model { pass: &pass, dataset: &dataset },
                (&dataset, &all),
                spec.layers,
                limits,
                &mut SingleProcess,
            )
            .expect("logits");
            let near = parts.iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-5 * b.abs().max(1.0));
            assert!(near && parts.len() == whole.len(), "{kind}, {limits:?}: {parts:?}, in one chunk {whole:?}");
        }
    }
}
