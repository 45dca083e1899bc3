//! Agreement of an operator with burn's.

use morphgl_registry::{MiniBatch, NamedTensor, Training};

/// Asserts that tensors agree to `tolerance` of their largest element, and to a millionth of the largest of all: the terms of a sum may
/// cancel out.
#[track_caller]
pub(crate) fn assert_close(what: &str, actual: &[NamedTensor], expected: &[NamedTensor], tolerance: f32) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let of_all = expected.iter().flat_map(|e| &e.values).fold(0.0f32, |m, x| m.max(x.abs()));
    for (a, e) in actual.iter().zip(expected) {
        assert_eq!((&a.name, &a.shape), (&e.name, &e.shape), "{what}");
        let largest = e.values.iter().fold(1e-3f32, |m, x| m.max(x.abs()));
        for (i, (x, y)) in a.values.iter().zip(&e.values).enumerate() {
            assert!(
                (x - y).abs() <= tolerance * largest + 1e-6 * of_all,
                "{what}: {}, element {i} is {x}, burn's {y}",
                e.name
            );
        }
    }
}

/// Asserts that scores and gradients over a mini-batch agree, and takes a step, from which burn continues.
#[track_caller]
pub(crate) fn assert_step<'a>(what: &str, native: &'a mut dyn Training, burn: &'a mut dyn Training, batch: &MiniBatch) {
    let evaluated = [&mut *native, &mut *burn].map(|t| t.score(batch).and_then(|h| h.wait()).expect("a score").0);
    let trained = [&mut *native, &mut *burn].map(|t| t.accumulate(batch).and_then(|h| h.wait()).expect("a score").0);
    for [a, e] in [evaluated, trained] {
        assert_eq!(a.count, e.count, "{what}");
        assert!((a.loss_sum - e.loss_sum).abs() <= 1e-5 * e.loss_sum.abs(), "{what}: loss {a:?}, burn's {e:?}");
    }
    let [found, expected] = [&mut *native, &mut *burn].map(|t| t.gradients().expect("gradients"));
    assert_eq!(found.count, expected.count, "{what}");
    assert_close(what, &found.tensors, &expected.tensors, 1e-4);
    if found.count == 0 {
        return;
    }
    native.step().expect("a step");
    // Adam divides by the root of the gradient's square, so tiny gradients with tiny differences make large steps. So burn
    // continues from the native operator's parameters and state.
    burn.step().expect("a step");
    burn.set_parameters(&native.parameters().expect("parameters")).expect("parameters are set");
    burn.set_optimizer_state(&native.optimizer_state().expect("a state")).expect("the state is set");
    let state = burn.optimizer_state().expect("a state");
    assert_eq!(state, native.optimizer_state().expect("a state"), "{what}");
    native.set_optimizer_state(&state).expect("the state is set");
}
