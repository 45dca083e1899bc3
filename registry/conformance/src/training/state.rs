//! Parameters, optimizer, threads and failures.

use std::collections::VecDeque;

use morphgl_registry::{Gradients, Handle, NamedTensor};
use serde_json::json;

use super::{Run, Trainer, accumulate, close, gradients, parameters, refusal, step};

/// Parameters are set by name, in any order; wrong ones are refused and change nothing.
pub(super) fn parameters_travel_by_name(run: &Run<'_>) {
    for (what, model) in run.models() {
        let mut trainer = run.build(&model);
        let own = parameters(&trainer);
        assert!(own.iter().any(|t| t.values.iter().any(|v| *v != 0.0)), "{what}: all parameters start at 0");
        assert_eq!(parameters(&run.build(&model)), own, "{what}: the same seed, other parameters");
        let mut changed = own.clone();
        changed.iter_mut().flat_map(|t| &mut t.values).enumerate().for_each(|(i, v)| *v += 0.01 * (i % 7) as f32);
        let mut reversed = changed.clone();
        reversed.reverse();
        trainer.set_parameters(&reversed).expect("parameters in another order");
        assert_eq!(parameters(&trainer), changed, "{what}: parameters as set, in the model's order");
        let mut misnamed = changed.clone();
        misnamed[0].name = "unknown".to_string();
        let mut misshaped = changed.clone();
        misshaped[0].shape.push(2);
        let mut short = changed.clone();
        short[0].values.pop();
        for (fault, tensors) in
            [("misnamed", misnamed), ("misshaped", misshaped), ("short", short), ("missing", changed[1..].to_vec())]
        {
            let error = trainer.set_parameters(&tensors).expect_err(fault).to_string();
            assert!(error.contains(&changed[0].name), "{what}, {fault}: {error}");
            assert_eq!(parameters(&trainer), changed, "{what}: refused parameters changed the model");
        }
    }
}

/// The first step moves every parameter by lr * g / (|g| + eps), where g is the mean gradient.
pub(super) fn the_first_step_is_adams(run: &Run<'_>) {
    for (what, model) in run.models() {
        let mut trainer = run.build(&model);
        accumulate(&mut trainer, &run.batch(&model, &[0, 5, 7], 0));
        let found = gradients(&mut trainer);
        let mut expected = parameters(&trainer);
        step(&mut trainer);
        for gradient in &found.tensors {
            let tensor = expected.iter_mut().find(|t| t.name == gradient.name).expect("a gradient is of a parameter");
            for (p, g) in tensor.values.iter_mut().zip(&gradient.values) {
                let g = f64::from(*g) / found.count as f64;
                *p -= (0.05 * g / (g.abs() + 1e-8)) as f32;
            }
        }
        close(&format!("{what}, first step"), &parameters(&trainer), &expected, 1e-4);
        assert_eq!(gradients(&mut trainer).count, 0, "{what}: a step clears the gradients");
    }
}

/// Without gradients there is no step, and gradients of 0 move nothing.
pub(super) fn no_gradient_no_step(run: &Run<'_>) {
    let (_, model) = run.models().swap_remove(0);
    let mut trainer = run.build(&model);
    let start = parameters(&trainer);
    let error = trainer.step().and_then(Handle::wait).expect_err("a step without gradients").to_string();
    assert!(error.contains("accumulate"), "{error}");
    let mut zero = gradients(&mut trainer);
    zero.count = 1;
    trainer.set_gradients(&zero).expect("gradients of 0");
    step(&mut trainer);
    assert_eq!(parameters(&trainer), start, "gradients of 0 moved a parameter");
    let unknown = NamedTensor { name: "unknown".to_string(), shape: vec![1], values: vec![0.0] };
    let wrong = Gradients { tensors: vec![unknown], count: 1 };
    assert!(trainer.set_gradients(&wrong).is_err(), "gradients of another model are accepted");
}

/// A copy of parameters and optimizer state trains as the original does, and so does a copy of the gradients.
pub(super) fn a_copy_goes_on_alike(run: &Run<'_>) {
    for (what, model) in run.models() {
        let train = |trainer: &mut Trainer, epochs: std::ops::Range<u32>| {
            for epoch in epochs {
                accumulate(trainer, &run.batch(&model, &[1, 6, 8, 3], epoch));
                step(trainer);
            }
        };
        let mut original = run.build(&model);
        train(&mut original, 0..3);
        let mut copy = run.build(&model);
        copy.set_parameters(&parameters(&original)).expect("parameters");
        let state = original.optimizer_state().expect("the optimizer's state");
        copy.set_optimizer_state(&state).expect("the optimizer's state");
        assert_eq!(copy.optimizer_state().expect("the state again"), state, "{what}: the state as set");
        if let [_, incomplete @ ..] = &state[..] {
            assert!(copy.set_optimizer_state(incomplete).is_err(), "{what}: an incomplete state is accepted");
        }
        train(&mut original, 3..6);
        train(&mut copy, 3..6);
        alike(run, &format!("{what}, continued"), &parameters(&copy), &parameters(&original));

        accumulate(&mut original, &run.batch(&model, &[2, 9], 6));
        copy.set_parameters(&parameters(&original)).expect("parameters");
        copy.set_gradients(&gradients(&mut original)).expect("gradients");
        step(&mut original);
        step(&mut copy);
        alike(run, &format!("{what}, copied gradients"), &parameters(&copy), &parameters(&original));
    }
}

/// Parameters and optimizer state are all that training depends on: an operator that is built anew and given both goes on as
/// the first one does, dropout and the correction of Adam's moments included. Checkpoints are made of that.
pub(super) fn a_rebuilt_operator_goes_on_alike(run: &Run<'_>) {
    for (what, mut model) in run.models() {
        // Only attention has a dropout of its own.
        let fields = ["dropout", "input_dropout", "attention_dropout"];
        let fields = if model["kind"] == "gat" { &fields[..] } else { &fields[..2] };
        fields.iter().for_each(|field| model[field] = json!(0.3));
        let train = |trainer: &mut Trainer, epochs: std::ops::Range<u32>| -> Vec<f64> {
            let batches: Vec<_> = epochs.map(|epoch| run.batch(&model, &[1, 6, 8, 3, 0], epoch)).collect();
            let trained = |batch| trainer.train(batch).and_then(Handle::wait).expect("a mini-batch is trained on").0;
            batches.iter().map(trained).map(|score| score.loss_sum).collect()
        };
        let mut undisturbed = run.build(&model);
        let losses = train(&mut undisturbed, 0..9);
        let mut first = run.build(&model);
        train(&mut first, 0..4);
        let kept = (parameters(&first), first.optimizer_state().expect("the optimizer's state"));
        // What is trained after the export, or evaluated, is not in it.
        train(&mut first, 4..6);
        drop(first);
        let mut second = run.build(&model);
        second.set_parameters(&kept.0).expect("parameters");
        second.set_optimizer_state(&kept.1).expect("the optimizer's state");
        second.infer(&run.all_nodes()).expect("logits");
        let resumed = train(&mut second, 4..9);
        if run.subject.deterministic {
            assert_eq!(resumed, losses[4..], "{what}, rebuilt: losses");
            let states = [&undisturbed, &second].map(|trainer| trainer.optimizer_state().expect("a state"));
            assert_eq!(states[1], states[0], "{what}, rebuilt: optimizer state");
        }
        alike(run, &format!("{what}, rebuilt"), &parameters(&second), &parameters(&undisturbed));
    }
}

/// `train` equals `accumulate` followed by `step`; a mini-batch that fails changes no state.
pub(super) fn training_is_accumulating_and_stepping(run: &Run<'_>) {
    for (what, model) in run.models() {
        let [mut apart, mut whole] = [(); 2].map(|()| run.build(&model));
        for epoch in 0..2 {
            let batch = run.batch(&model, &[0, 5, 7], epoch);
            let expected = accumulate(&mut apart, &batch);
            step(&mut apart);
            let (score, _) = whole.train(&batch).and_then(Handle::wait).expect("a mini-batch is trained on");
            assert_eq!((score.correct, score.count), (expected.correct, expected.count), "{what}: its score");
            alike(run, &format!("{what}, in one call"), &parameters(&whole), &parameters(&apart));
        }
        let mut broken = parameters(&whole);
        broken[0].values[0] = f32::NAN;
        whole.set_parameters(&broken).expect("parameters of the right shape");
        let before = whole.optimizer_state().expect("a state");
        let trained = whole.train(&run.batch(&model, &[0, 5], 2)).and_then(Handle::wait);
        let error = trained.expect_err("a loss of NaN").to_string();
        assert!(error.contains("learning rate"), "{what}: {error}");
        let after = whole.optimizer_state().expect("a state");
        assert_eq!(after, before, "{what}: a mini-batch that failed changed the state");
    }
}

/// `accumulate_last` is `accumulate`, and hands over the gradients: all, once, from the last element to the first.
pub(super) fn gradients_are_handed_over(run: &Run<'_>) {
    for (what, model) in run.models() {
        let [mut apart, mut handing] = [(); 2].map(|()| run.build(&model));
        for trainer in [&mut apart, &mut handing] {
            // On top of a mini-batch before it.
            accumulate(trainer, &run.batch(&model, &[1, 4], 0));
        }
        let mut labelled = run.host_batch(&model, &[0, 5, 7], 1);
        let mut unlabelled = run.host_batch(&model, &[2, 3], 2);
        unlabelled.labels.fill(-1);
        labelled.labels[0] = -1;
        for batch in [labelled, unlabelled].map(run.subject.transfer) {
            let expected = accumulate(&mut apart, &batch);
            let mut pieces: Vec<(usize, Vec<f32>)> = Vec::new();
            let handle = handing.accumulate_last(&batch, &mut |first, values| pieces.push((first, values.to_vec())));
            let (score, _) = handle.and_then(Handle::wait).expect("a mini-batch is accumulated");
            assert_eq!((score.correct, score.count), (expected.correct, expected.count), "{what}: its score");
            let own = gradients(&mut handing);
            let all: Vec<f32> = own.tensors.iter().flat_map(|tensor| tensor.values.iter().copied()).collect();
            let mut end = all.len();
            for (first, values) in pieces {
                assert_eq!(first + values.len(), end, "{what}: gradients are handed over from the last to the first");
                assert_eq!(values, all[first..end], "{what}: elements {first}..{end} handed over, and gradients");
                end = first;
            }
            assert_eq!(end, 0, "{what}: elements that are not handed over");
            let apart = gradients(&mut apart);
            assert_eq!(own.count, apart.count, "{what}: seeds");
            alike(run, &format!("{what}, handed over"), &own.tensors, &apart.tensors);
        }
    }
}

/// Mini-batches queued up to `queue_depth` are trained on in order.
pub(super) fn queued_batches_are_trained_in_order(run: &Run<'_>) {
    for (what, model) in run.models() {
        let [mut apart, mut queue] = [(); 2].map(|()| run.build(&model));
        let batches: Vec<_> = (0..6).map(|epoch| run.batch(&model, &[0, 2 + epoch % 5, 9], epoch)).collect();
        let mut queued = VecDeque::new();
        for (i, batch) in batches.iter().enumerate() {
            while queued.len() < queue.queue_depth().max(1) && i + queued.len() < batches.len() {
                queued.push_back(queue.train(&batches[i + queued.len()]).expect("queued"));
            }
            let (score, _) = queued.pop_front().expect("at least one").wait().expect("a mini-batch is trained on");
            let expected = accumulate(&mut apart, batch);
            step(&mut apart);
            assert_eq!((score.correct, score.count), (expected.correct, expected.count), "{what}: score {i}");
            let off = (score.loss_sum - expected.loss_sum).abs();
            let allowed = if run.subject.deterministic { 0.0 } else { 1e-4 * expected.loss_sum.abs() };
            assert!(off <= allowed, "{what}: loss {i} is {}, expected {}", score.loss_sum, expected.loss_sum);
        }
        alike(run, &format!("{what}, queued"), &parameters(&queue), &parameters(&apart));
    }
}

#[track_caller]
fn alike(run: &Run<'_>, what: &str, actual: &[NamedTensor], expected: &[NamedTensor]) {
    close(what, actual, expected, if run.subject.deterministic { 0.0 } else { 1e-4 });
}

/// The result does not depend on the number of threads: bit for bit where the operator is deterministic.
pub(super) fn threads_change_little(run: &Run<'_>) {
    for (what, model) in run.models() {
        let train = |threads: &[usize]| {
            let mut trainer = run.try_build(&model, json!({"lr": 0.05}), threads[0]).expect("the operator is built");
            for (epoch, &threads) in (0..).zip(threads) {
                trainer.set_threads(threads).expect("a number of threads");
                accumulate(&mut trainer, &run.batch(&model, &run.all_nodes(), epoch));
                step(&mut trainer);
            }
            parameters(&trainer)
        };
        let one = train(&[1; 4]);
        for threads in [[2; 4], [3; 4], [1, 3, 2, 4]] {
            alike(run, &format!("{what} on {threads:?} threads"), &train(&threads), &one);
        }
    }
    let (_, model) = run.models().swap_remove(0);
    assert!(run.build(&model).set_threads(0).is_err(), "0 threads are accepted");
}

/// Errors name the mini-batch, parameter or setting.
pub(super) fn failures_are_named(run: &Run<'_>) {
    let (_, model) = run.models().into_iter().take(2).next_back().expect("a model");
    let mut trainer = run.build(&model);
    let start = parameters(&trainer);
    let good = run.host_batch(&model, &[0, 5], 4);
    let name = good.id.to_string();

    let mut broken = start.clone();
    broken[0].values[0] = f32::NAN;
    trainer.set_parameters(&broken).expect("parameters of the right shape");
    let batch = (run.subject.transfer)(good.clone());
    let error = refusal(&mut trainer, &batch, "a loss of NaN");
    assert!(error.contains(&name) && error.contains("learning rate"), "a loss of NaN: {error}");
    trainer.set_parameters(&start).expect("parameters");

    let mut huge = gradients(&mut trainer);
    huge.count = 1;
    huge.tensors[0].values[0] = f32::INFINITY;
    trainer.set_gradients(&huge).expect("gradients of the right shape");
    let error = trainer.step().and_then(Handle::wait).expect_err("a parameter of NaN").to_string();
    assert!(error.contains(&huge.tensors[0].name), "a parameter of NaN: {error}");

    let mut fewer = good.clone();
    fewer.blocks.pop();
    let mut misfit = good;
    misfit.labels[0] = 2;
    for (fault, batch) in [("a block too few", fewer), ("a class too many", misfit)] {
        let error = refusal(&mut trainer, &(run.subject.transfer)(batch), fault);
        assert!(error.contains(&name), "{fault}: {error}");
    }
    for (field, value) in [("in_dim", 9), ("num_classes", 1), ("layers", 0)] {
        let mut wrong = model.clone();
        wrong[field] = json!(value);
        let error = run.try_build(&wrong, json!({}), 1).err().unwrap_or_else(|| panic!("{field} {value} is accepted"));
        assert!(error.to_string().contains(field), "{field}: {error}");
    }
}

/// Every option that the operator declares is taken, and it then trains.
pub(super) fn options_are_taken(run: &Run<'_>) {
    let (_, model) = run.models().swap_remove(0);
    let build = |options| run.try_build_with(&model, json!({"lr": 0.05}), 2, options);
    crate::set_each_option(run.subject.options, build, |what, mut trainer| {
        let score = accumulate(&mut trainer, &run.batch(&model, &run.all_nodes(), 0));
        assert!(score.loss_sum.is_finite() && score.count > 0, "{what}: {score:?}");
        step(&mut trainer);
    });
}
