use super::*;
use crate::{LrSchedule, ModelKind, ModelSpec, OptimizerKind};

#[test]
fn states_survive_tensors() {
    let trainable = ModelSpec { layers: 1, ..ModelSpec::new(ModelKind::Gcn, 2, 3) }.parameters();
    let moments = [[&[1.0f32, 2.0, 3.0][..], &[4.0; 3]], [&[5.0; 6], &[6.0; 6]]];
    let adam = OptimizerSpec::default();
    for done in [0, 7, (1 << 20) - 1, 1 << 20, (1 << 43) + 5] {
        let steps = Steps { done, reductions: 0 };
        let state = optimizer_state(&adam, &trainable, steps, moments);
        assert_eq!(state[1].name, format!("{}.exp_avg", trainable[0].name));
        assert_eq!(state[4].shape, trainable[1].shape);
        assert_eq!(read_optimizer_state(&adam, &trainable, &state).expect("a state"), (steps, moments.to_vec()));
    }
    let state = optimizer_state(&adam, &trainable, Steps::default(), moments);
    let read = read_optimizer_state(&adam, &trainable, &state[1..]);
    assert!(read.is_err_and(|e| e.to_string().contains("step is missing")));
}

/// Each optimizer has its own moments, and a plateau a count of reductions; a state of another optimizer is refused.
#[test]
fn states_are_of_one_optimizer() {
    let trainable = ModelSpec { layers: 1, ..ModelSpec::new(ModelKind::Gcn, 2, 3) }.parameters();
    let sgd = OptimizerSpec { kind: OptimizerKind::Sgd, ..OptimizerSpec::default() };
    let momentum = OptimizerSpec { momentum: 0.9, ..sgd };
    let plateau = LrSchedule { kind: LrScheduleKind::Plateau, ..LrSchedule::default() };
    let reduced = OptimizerSpec { schedule: plateau, ..sgd };
    let (none, steps): (&[f32], _) = (&[], Steps { done: 5, reductions: 3 });
    let mut states = Vec::new();
    for (spec, moments, names) in [
        (sgd, [[none; 2]; 2], vec!["step"]),
        (
            momentum,
            [[&[1.0; 3], none], [&[2.0; 6], none]],
            vec!["step", "convs.0.bias.momentum_buffer", "convs.0.lin.weight.momentum_buffer"],
        ),
        (reduced, [[none; 2]; 2], vec!["step", "lr_reductions"]),
    ] {
        let state = optimizer_state(&spec, &trainable, steps, moments);
        assert_eq!(state.iter().map(|t| &t.name[..]).collect::<Vec<_>>(), names);
        let (read, back) = read_optimizer_state(&spec, &trainable, &state).expect("its own state");
        assert_eq!(back, moments);
        assert_eq!(read, Steps { reductions: if spec == reduced { 3 } else { 0 }, ..steps });
        states.push((spec, state));
    }
    for (i, (spec, _)) in states.iter().enumerate() {
        for (j, (_, state)) in states.iter().enumerate() {
            assert_eq!(read_optimizer_state(spec, &trainable, state).is_ok(), i == j, "{spec:?}: {state:?}");
        }
    }
    let [.., (_, state)] = &mut states[..] else { unreachable!("three states") };
    assert!(count_reduction(state));
    assert_eq!(read_optimizer_state(&reduced, &trainable, state).expect("a state").0.reductions, 4);
    assert!(!count_reduction(&mut states[0].1));
}
