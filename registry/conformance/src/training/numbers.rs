//! Loss, gradients and logits.

use morphgl_graph_store::Dataset;
use morphgl_registry::{Handle, MiniBatch, Score, SingleProcess, Targets};
use serde_json::{Value, json};

use super::reference::rows_by_layer;
use super::{Run, Trainer, accumulate, close, gradients, model, parameters, score, step};

/// The rows after each layer and the loss are those of the f64 reference.
pub(super) fn forward_is_the_reference(run: &Run<'_>) {
    let all = run.all_nodes();
    for (what, model) in run.models() {
        let plain = ["residual", "normalization", "l2_normalize"].iter().all(|field| model.get(field).is_none());
        if !plain {
            continue;
        }
        let mut trainer = run.build(&model);
        // A few steps, after which biases are not 0.
        for _ in 0..3 {
            accumulate(&mut trainer, &run.batch(&model, &all, 0));
            step(&mut trainer);
        }
        let mut expected = Vec::new();
        for (layer, rows) in (1..).zip(rows_by_layer(&run.dataset, &model, &parameters(&trainer))) {
            expected = rows.concat();
            let actual = trainer.embed(&all, layer, &mut SingleProcess).expect("the rows after a layer");
            assert_eq!(actual.len(), expected.len(), "{what}: number of values after layer {layer}");
            for (i, (a, e)) in actual.iter().zip(&expected).enumerate() {
                let near = (f64::from(*a) - e).abs() < 2e-5 * e.abs().max(1.0);
                assert!(near, "{what}: value {i} after layer {layer} is {a}, the reference says {e}");
            }
        }
        let expected: Vec<f32> = expected.iter().map(|&x| x as f32).collect();
        let labels = run.dataset.labels.as_ref().expect("labels");
        let expected = Score::of(&expected, labels, run.dataset.num_classes);
        let actual = accumulate(&mut trainer, &run.batch(&model, &all, 0));
        same_score(what, &actual, &expected);
    }
}

/// Whether outputs are the same but for rounding.
pub(super) fn near(found: &[f32], expected: &[f32]) -> bool {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5 * b.abs().max(1.0);
    found.len() == expected.len() && found.iter().zip(expected).all(near)
}

#[track_caller]
pub(super) fn same_score(what: &str, actual: &Score, expected: &Score) {
    assert_eq!((actual.correct, actual.count), (expected.correct, expected.count), "{what}: correct and counted seeds");
    let (a, e) = (actual.loss_sum, expected.loss_sum);
    assert!((a - e).abs() < 1e-4 * e.abs().max(1.0), "{what}: the loss is {a}, expected {e}");
}

/// Step of the finite differences.
const STEP: f32 = 3e-3;
/// Bound of the rounding errors of f32 logits, some 1e-7 / STEP per seed.
const TOLERANCE: f64 = 2e-3;

/// Gradients of every parameter agree with finite differences of the loss, with dropout and without.
pub(super) fn gradients_are_differences(run: &Run<'_>) {
    let gat = json!({"kind": "gat", "output_heads": 2, "attention_dropout": 0.3, "dropout": 0.4, "input_dropout": 0.2});
    let sage = json!({"kind": "sage", "dropout": 0.4, "input_dropout": 0.2});
    let mut dropped = if run.subject.submitted.is_empty() { vec![gat, sage] } else { run.subject.submitted.to_vec() };
    dropped.iter_mut().for_each(|fields| (fields["dropout"], fields["input_dropout"]) = (json!(0.4), json!(0.2)));
    let dropped = dropped.into_iter().map(|fields| ("with dropout", model(fields)));
    let dropped = dropped.filter(|_| !run.subject.own_model && !run.typed);
    let typed = if run.typed { run.models() } else { Vec::new() };
    let dropped = dropped.chain(typed.into_iter().map(|(what, mut model)| {
        (model["dropout"], model["input_dropout"]) = (json!(0.4), json!(0.2));
        (what, model)
    }));
    for (what, model) in run.models().into_iter().chain(dropped) {
        let mut trainer = run.build(&model);
        let seeds = [0, 3, 7, 10, 11, 8];
        let batch = run.batch(&model, &seeds, 1);
        // A step, so that constant parameters (biases of 0, eps) change.
        accumulate(&mut trainer, &batch);
        step(&mut trainer);
        differences(run, &format!("{what} {}", model["kind"]), &mut trainer, &batch);
    }
}

/// Elements of a parameter of which differences are taken under a sanitizer, about.
const SANITIZED_ELEMENTS: usize = 2;

pub(super) fn differences(run: &Run<'_>, what: &str, trainer: &mut Trainer, batch: &MiniBatch) {
    differences_of(run, what, trainer, batch, batch.num_seeds() as u64);
}

/// As [`differences`], of a mini-batch with `count` training examples.
pub(super) fn differences_of(run: &Run<'_>, what: &str, trainer: &mut Trainer, batch: &MiniBatch, count: u64) {
    let at = accumulate(trainer, batch).loss_sum;
    let found = gradients(trainer);
    assert_eq!(found.count, count, "{what}: examples counted");
    let start = parameters(trainer);
    let mut loss = |name: &str, element: usize, by: f32| {
        let mut moved = start.clone();
        let tensor = moved.iter_mut().find(|t| t.name == name).expect("a gradient is of a parameter");
        let before = f64::from(tensor.values[element]);
        tensor.values[element] += by;
        let by = f64::from(tensor.values[element]) - before;
        trainer.set_parameters(&moved).expect("parameters");
        (accumulate(trainer, batch).loss_sum, by)
    };
    let (mut compared, mut kinks) = (0, 0);
    for tensor in &found.tensors {
        let apart = if run.subject.sanitized { tensor.values.len().div_ceil(SANITIZED_ELEMENTS) } else { 1 };
        for (element, &gradient) in tensor.values.iter().enumerate().step_by(apart) {
            let (up, above) = loss(&tensor.name, element, STEP);
            let (down, below) = loss(&tensor.name, element, -STEP);
            let (right, left) = ((up - at) / above, (down - at) / below);
            let difference = (up - down) / (above - below);
            let size = difference.abs().max(1.0);
            // One-sided differences disagree by the curvature, or at a kink of relu within the step;
            // the gradient lies between them in both cases.
            let (low, high) = (right.min(left), right.max(left));
            kinks += usize::from(high - low > 0.03 * size);
            compared += 1;
            let off = f64::from(gradient) - f64::from(gradient).clamp(low, high);
            let name = &tensor.name;
            assert!(
                off.abs() < TOLERANCE * size,
                "{what}: gradient of {name}, element {element}, is {gradient}, differences say {left} to {right}"
            );
        }
    }
    // A few elements may all be at one.
    assert!(run.subject.sanitized || 10 * kinks < compared, "{what}: {kinks} of {compared} elements are at a kink");
    trainer.set_parameters(&start).expect("parameters");
}

/// Gradients of shares add up to those of the whole, with dropout too: masks are those of nodes, wherever they stand. A seed that
/// repeats counts as often.
pub(super) fn shares_add_up(run: &Run<'_>) {
    let models = run.models().into_iter().filter(|(_, m)| m.get("normalization") != Some(&json!("batch")));
    let dropping = |(what, mut model): (_, Value)| {
        let attention = if model["kind"] == "gat" { 0.4 } else { 0.0 };
        for (site, probability) in [("dropout", 0.4), ("input_dropout", 0.4), ("attention_dropout", attention)] {
            model[site] = json!(probability);
        }
        (what, model)
    };
    let halves: &[&[u32]] = &[&[2, 5], &[9, 0, 10]];
    let occurrences: &[&[u32]] = &[&[2, 5, 9], &[5, 2], &[2]];
    for (what, model) in models.clone().chain(models.map(dropping)) {
        for (seeds, shares) in [(&[2, 5, 9, 0, 10][..], halves), (&[2, 5, 2, 5, 9, 2], occurrences)] {
            let (mut whole, mut parts) = (run.build(&model), run.build(&model));
            let all = accumulate(&mut whole, &run.batch(&model, seeds, 0));
            let mut sum = Score::default();
            shares.iter().for_each(|share| sum += accumulate(&mut parts, &run.batch(&model, share, 0)));
            same_score(what, &sum, &all);
            let (whole, parts) = (gradients(&mut whole), gradients(&mut parts));
            assert_eq!(parts.count, whole.count, "{what}: seeds of the shares");
            close(what, &parts.tensors, &whole.tensors, 1e-5);
        }
    }
}

/// A seed without a label changes nothing.
pub(super) fn unlabelled_seeds_do_not_count(run: &Run<'_>) {
    for (what, model) in run.models().into_iter().filter(|(_, m)| m.get("normalization") != Some(&json!("batch"))) {
        let mut masked = run.host_batch(&model, &[2, 5, 9], 0);
        masked.labels[1] = -1;
        let (mut a, mut b) = (run.build(&model), run.build(&model));
        let with = accumulate(&mut a, &(run.subject.transfer)(masked.clone()));
        let without = accumulate(&mut b, &run.batch(&model, &[2, 9], 0));
        same_score(what, &with, &without);
        let (with, without) = (gradients(&mut a), gradients(&mut b));
        assert_eq!((with.count, without.count), (2, 2), "{what}: labelled seeds");
        close(what, &with.tensors, &without.tensors, 1e-5);
        masked.labels = vec![-1; 3];
        let mut none = run.build(&model);
        assert_eq!(accumulate(&mut none, &(run.subject.transfer)(masked)), Score::default(), "{what}: no label at all");
        let found = gradients(&mut none);
        assert!(found.count == 0 && found.tensors.iter().all(|t| t.values.iter().all(|v| *v == 0.0)), "{what}");
    }
}

/// Mini-batches of one seed, of a node without neighbours, and of blocks without an edge.
pub(super) fn one_seed_and_isolated_nodes(run: &Run<'_>) {
    for (what, model) in run.models() {
        for seed in [10, 11, 4] {
            let mut trainer = run.build(&model);
            let score = accumulate(&mut trainer, &run.batch(&model, &[seed], 0));
            assert!(score.loss_sum.is_finite() && score.count == 1, "{what}, seed {seed}: {score:?}");
            let found = gradients(&mut trainer);
            let numbers = found.tensors.iter().all(|t| t.values.iter().all(|v| v.is_finite()));
            assert!(numbers, "{what}, seed {seed}: a gradient is not a number");
            step(&mut trainer);
        }
    }
}

/// Layer-wise inference gives what a mini-batch with all neighbours gives, for any nodes in any order.
pub(super) fn inference_is_the_forward_pass(run: &Run<'_>) {
    let labels = run.dataset.labels.as_ref().expect("labels");
    let classes = run.dataset.num_classes;
    for (what, model) in run.models() {
        let mut trainer = run.build(&model);
        for _ in 0..2 {
            accumulate(&mut trainer, &run.batch(&model, &run.all_nodes(), 0));
            step(&mut trainer);
        }
        let all = trainer.infer(&run.all_nodes()).expect("logits of all nodes");
        let nodes = [7u32, 0, 10, 7, 11];
        let some = trainer.infer(&nodes).expect("logits of some nodes");
        assert_eq!(some.len(), nodes.len() * classes, "{what}: logits of some nodes");
        for (row, &v) in some.chunks_exact(classes).zip(&nodes) {
            let expected = &all[v as usize * classes..(v as usize + 1) * classes];
            let near = row.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5 * b.abs().max(1.0));
            assert!(near, "{what}: logits of node {v} are {row:?}, with all nodes {expected:?}");
        }
        let seeds = [0u32, 7, 10, 11, 3];
        let logits: Vec<f32> =
            seeds.iter().flat_map(|&v| &all[v as usize * classes..(v as usize + 1) * classes]).copied().collect();
        let of_seeds: Vec<i32> = seeds.iter().map(|&v| labels[v as usize]).collect();
        let batch = run.batch(&model, &seeds, 0);
        let found = score(&mut trainer, &batch);
        // An operator whose model is its own may score mini-batches alone.
        if !run.subject.own_model {
            let outputs = trainer.outputs(&batch).and_then(Handle::wait).expect("outputs of seeds").0;
            assert!(near(&outputs, &logits), "{what}: outputs {outputs:?}, with all neighbours {logits:?}");
        }
        let expected = trainer.score_logits(&logits, Targets::Classes(&of_seeds), classes).expect("a score of logits");
        let of_classes = Score::of(&logits, &of_seeds, classes);
        assert_eq!((expected.correct, expected.count), (of_classes.correct, of_classes.count), "{what}: scored logits");
        // The loss of a model of the operator's own need not be cross-entropy.
        let loss_sum = if run.subject.own_model { found.loss_sum } else { expected.loss_sum };
        same_score(what, &found, &Score { loss_sum, ..expected });
        assert!(trainer.infer(&[]).expect("no node").is_empty(), "{what}: logits of no node");
        let error = trainer.infer(&[12]).expect_err("a node that does not exist").to_string();
        assert!(error.contains("12"), "{what}: {error}");
        let error = trainer.embed(&nodes, 9, &mut SingleProcess).expect_err("a layer that does not exist").to_string();
        assert!(error.contains("layer"), "{what}: {error}");
    }
}

/// The same mini-batch drops the same elements; another epoch drops others; scoring drops none.
pub(super) fn dropout_is_a_function_of_the_batch(run: &Run<'_>) {
    let (_, mut model) = run.models().into_iter().take(2).next_back().expect("a model");
    (model["dropout"], model["input_dropout"]) = (json!(0.5), json!(0.5));
    let mut trainer = run.build(&model);
    masks_follow_draw_keys(run, &model);
    let [first, again, other] = [1, 1, 2].map(|epoch| run.batch(&model, &[0, 5, 7, 9], epoch));
    let mut loss = |batch: &MiniBatch| accumulate(&mut trainer, batch).loss_sum;
    let (a, b, c) = (loss(&first), loss(&again), loss(&other));
    assert!((a - b).abs() < 1e-6, "the same mini-batch has losses {a} and {b}");
    assert!((a - c).abs() > 1e-6, "two epochs dropped the same elements: both losses are {a}");
    let [a, c] = [first, other].map(|batch| score(&mut trainer, &batch).loss_sum);
    assert!((a - c).abs() < 1e-6, "scoring drops: losses {a} and {c}");
}

/// Nodes of a reordered graph have the masks of the numbers that they had before.
fn masks_follow_draw_keys(run: &Run<'_>, model: &Value) {
    let seeds = [0, 5, 7, 9];
    let loss = |keys: Option<Vec<u32>>| {
        let mut dataset = Dataset::clone(&run.dataset);
        if let Some(keys) = keys {
            dataset.topology = dataset.topology.clone().with_draw_keys(keys).expect("a permutation");
        }
        // The mini-batch is that of the graph without keys: it has all neighbours.
        let mut trainer = Run { dataset: dataset.into(), ..*run }.build(model);
        accumulate(&mut trainer, &run.batch(model, &seeds, 1)).loss_sum
    };
    let (own, identity, reversed) =
        (loss(None), loss(Some(run.all_nodes())), loss(Some(run.all_nodes().into_iter().rev().collect())));
    assert!((own - identity).abs() < 1e-6, "nodes with their own numbers as keys: losses {own} and {identity}");
    assert!((own - reversed).abs() > 1e-6, "draw keys are not read: both losses are {own}");
}

/// Every model learns the tiny graph.
pub(super) fn loss_falls(run: &Run<'_>) {
    for (what, model) in run.models() {
        // Logits of length 1 bound the loss from below, and nothing is known of a model of the operator's own or another crate.
        let known = !run.subject.own_model && run.subject.submitted.is_empty();
        let bounded = model.get("l2_normalize").is_some() || !known;
        let bound = if bounded { 0.8 } else { 0.25 };
        let mut trainer = run.build(&model);
        let seeds: Vec<u32> = (0..10).collect();
        let first = accumulate(&mut trainer, &run.batch(&model, &seeds, 0)).loss();
        for epoch in 0..150 {
            accumulate(&mut trainer, &run.batch(&model, &seeds, epoch));
            step(&mut trainer);
        }
        let last = accumulate(&mut trainer, &run.batch(&model, &seeds, 0)).loss();
        assert!(last < bound * first, "{what}: the loss went from {first} to {last}");
    }
}
