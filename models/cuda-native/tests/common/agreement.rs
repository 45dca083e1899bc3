//! Agreement with Training_CPU_Burn.

use morphgl_registry::{HostBatch, MiniBatch, ModelState, NamedTensor, Training};
use morphgl_training_cpu_burn::CpuBurn;
use morphgl_training_cuda_native::CudaNative;
use serde_json::Value;

use super::transfer;

/// Tensors are equal to `tolerance` of their largest element, or of a fiftieth of the largest of all: a bias before a
/// batch normalisation has a gradient of 0, of which rounding is left.
#[track_caller]
pub(crate) fn close(what: &str, actual: &[NamedTensor], expected: &[NamedTensor], tolerance: f32) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let of = |tensor: &NamedTensor| tensor.values.iter().fold(1e-3f32, |m, x| m.max(x.abs()));
    let least = expected.iter().map(of).fold(0.0, f32::max) / 50.0;
    for (a, e) in actual.iter().zip(expected) {
        assert_eq!((&a.name, &a.shape), (&e.name, &e.shape), "{what}");
        let largest = of(e).max(least);
        for (i, (x, y)) in a.values.iter().zip(&e.values).enumerate() {
            assert!((x - y).abs() <= tolerance * largest, "{what}: {}, element {i} is {x}, burn's {y}", e.name);
        }
    }
}

/// Scores, gradients, a step and the state after it agree for a mini-batch; the state moves from burn.
#[track_caller]
pub(crate) fn step(what: &str, (model, host): (&Value, HostBatch), (native, burn): (&mut CudaNative, &mut CpuBurn)) {
    let batches = [transfer(host.clone()), MiniBatch::Host(host)];
    let [own, theirs]: [&mut dyn Training; 2] = [native, burn];
    let mut sides = [own, theirs];
    let mut scores = Vec::new();
    for (trainer, batch) in sides.iter_mut().zip(&batches) {
        let evaluated = trainer.score(batch).and_then(|h| h.wait()).expect("a score").0;
        let trained = trainer.accumulate(batch).and_then(|h| h.wait()).expect("a score").0;
        scores.push([evaluated, trained]);
    }
    for (a, e) in scores[0].iter().zip(&scores[1]) {
        assert_eq!(a.count, e.count, "{what}");
        assert!((a.loss_sum - e.loss_sum).abs() <= 1e-5 * e.loss_sum.abs(), "{what}: loss {a:?}, burn's {e:?}");
    }
    let [own, theirs] = sides;
    let (mut found, mut expected) = (own.gradients().expect("gradients"), theirs.gradients().expect("gradients"));
    if matches!(model["loss"].as_str(), Some("bpr" | "margin")) {
        // Adds the same to positives and negatives: of its gradient, 0, rounding is left.
        for tensor in [&mut found, &mut expected].into_iter().flat_map(|of| &mut of.tensors) {
            if tensor.name == "decoder.lins.1.bias" {
                let rounding = std::mem::take(&mut tensor.values[0]);
                assert!(rounding.abs() < 1e-4, "{what}: {}, {rounding}", tensor.name);
            }
        }
    }
    assert_eq!(found.count, expected.count, "{what}");
    close(what, &found.tensors, &expected.tensors, 1e-4);
    // From the same gradients, so that the step alone is compared: Adam makes large steps of tiny gradients.
    own.set_gradients(&expected).expect("gradients move");
    theirs.set_gradients(&expected).expect("gradients move");
    for trainer in [&mut *own, &mut *theirs] {
        trainer.step().and_then(|h| h.wait()).expect("a step");
    }
    let stepped = theirs.parameters().expect("parameters");
    close(&format!("{what}, step"), &own.parameters().expect("parameters"), &stepped, 1e-5);
    own.set_parameters(&stepped).expect("parameters move");
    let state = theirs.optimizer_state().expect("a state");
    close(&format!("{what}, state"), &own.optimizer_state().expect("a state"), &state, 1e-5);
    own.set_optimizer_state(&state).expect("the state moves");
    assert_eq!(own.optimizer_state().expect("a state"), state, "{what}");
}
