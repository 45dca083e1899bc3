//! Rows of the first layer's output that mini-batches bring along.

use std::sync::Arc;

use morphgl_graph_store::Dataset;
use morphgl_registry::{GivenRows, HostBatch, MiniBatch, Score};
use serde_json::{Value, json};

use super::graph::batch_with_given;
use super::numbers::differences;
use super::{Run, Trainer, accumulate, close, gradients, layers, model, parameters, reference, refusal, score, step};

/// Runs every check.
pub(super) fn check(run: &Run<'_>) {
    for (what, model) in layered(run) {
        given_rows_stand_for_computed_ones(run, what, &model);
    }
    dropout_follows_draw_keys(run);
    no_given_rows_change_nothing(run);
    gradients_with_given_rows_are_differences(run);
}

/// Seeds whose last hop but one finds nodes that no hop before has found.
fn seeds(model: &Value) -> &'static [u32] {
    if layers(model) == 2 { &[0, 3, 7, 11] } else { &[3] }
}

/// Models with a second layer, without dropout, with dropout of the first layer's output, and with dropout of the features.
fn layered(run: &Run<'_>) -> impl Iterator<Item = (&'static str, Value)> {
    let layered = run
        .models()
        .into_iter()
        .filter(|(_, m)| layers(m) > 1 && m["kind"] != "mlp" && m.get("normalization") != Some(&json!("batch")));
    let deep = ("three layers of gcn", model(json!({"kind": "gcn", "layers": 3})));
    layered.chain([deep]).flat_map(|(what, model)| {
        let [mut dropping, mut dropping_features] = [model.clone(), model.clone()];
        dropping["dropout"] = json!(0.4);
        dropping_features["input_dropout"] = json!(0.3);
        [(what, model), (what, dropping), (what, dropping_features)]
    })
}

/// The mini-batch of [`seeds`] with the given rows of these nodes, by the trainer's parameters and all neighbours, and with what the
/// first layer's weights multiply for them, if `inputs`. `None` where the operator refuses dropout of the features.
fn with_given(
    run: &Run<'_>,
    trainer: &mut Trainer,
    model: &Value,
    given: fn(u32) -> bool,
    inputs: bool,
) -> Option<HostBatch> {
    let mut batch = batch_with_given(&run.dataset, seeds(model), layers(model), 1, &given);
    let given = batch.given.as_mut().expect("nodes are given");
    let one_hop = super::batch(&run.dataset, &given.nodes, 1, 1);
    let mut expected = reference::first_inputs(&run.dataset, model, &given.nodes);
    let mut found = vec![Vec::new(); expected.len()];
    let computed = trainer.first_layer(&one_hop, &mut given.rows, &mut found);
    let drops = model.get("input_dropout").is_some();
    match computed.expect("an operator that computes its first layer alone") {
        Err(e) if drops && e.to_string().contains("input dropout") => return None,
        computed => computed.expect("the first layer"),
    }
    // An operator need not hand out what its weights multiply.
    if found.iter().all(|found| !found.is_empty()) && !found.is_empty() {
        let far = |(found, expected): (&Vec<f32>, &Vec<f32>)| {
            let far = found.iter().zip(expected).any(|(a, b)| (a - b).abs() > 1e-5 * b.abs().max(1.0));
            found.len() != expected.len() || (far && !drops)
        };
        assert!(!found.iter().zip(&expected).any(far), "{model}: {found:?} is what weights multiply, not {expected:?}");
        expected = found;
    }
    if inputs {
        given.inputs = expected;
    }
    Some(batch)
}

/// A mini-batch whose given rows are computed with the same parameters has the loss of the ordinary one, in training and in
/// evaluation, and the gradients of all layers but the first; of the first, too, where what its weights multiply came along. Rows that
/// are missing are refused, and so are such matrices of another model.
fn given_rows_stand_for_computed_ones(run: &Run<'_>, what: &str, model: &Value) {
    let mut ordinary = run.build(model);
    accumulate(&mut ordinary, &run.batch(model, seeds(model), 0));
    step(&mut ordinary);
    let given: [fn(u32) -> bool; 2] = [|v| v % 2 == 0, |_| true];
    for (given, inputs) in given.into_iter().flat_map(|given| [(given, false), (given, true)]) {
        let mut trainer = run.build(model);
        trainer.set_parameters(&parameters(&ordinary)).expect("parameters");
        let Some(batch) = with_given(run, &mut trainer, model, given, inputs) else { return };
        let complete = batch.given.as_ref().is_some_and(|given| !given.inputs.is_empty());
        let mut whole = run.build(model);
        whole.set_parameters(&parameters(&ordinary)).expect("parameters");
        let [moved, computed] = [(run.subject.transfer)(batch.clone()), run.batch(model, seeds(model), 1)];
        // Rows with dropout of the features are those of training alone.
        let passes: &[fn(&mut Trainer, &MiniBatch) -> Score] = match model.get("input_dropout") {
            Some(_) => &[accumulate],
            None => &[score, accumulate],
        };
        for pass in passes {
            let (found, expected) = (pass(&mut trainer, &moved), pass(&mut whole, &computed));
            let off = (found.loss_sum - expected.loss_sum).abs();
            assert!(off < 1e-5 * expected.loss_sum.abs().max(1.0), "{what}: {found:?}, computed {expected:?}");
        }
        let upper = |trainer: &mut Trainer| {
            let tensors = gradients(trainer).tensors.into_iter();
            let is_first = |name: &str| name.starts_with("convs.0.") || name.starts_with("norms.0.");
            tensors.filter(|t| complete || !is_first(&t.name)).collect::<Vec<_>>()
        };
        close(what, &upper(&mut trainer), &upper(&mut whole), 1e-5);

        let GivenRows { nodes, degrees, rows, .. } = *batch.given.clone().expect("nodes are given");
        let wrong = vec![vec![0.0; nodes.len()]; 3];
        for (rows, inputs) in [(Vec::new(), Vec::new()), (rows, wrong)] {
            let given = GivenRows { nodes: nodes.clone(), degrees: degrees.clone(), rows, inputs, version: 0 };
            let faulty = HostBatch { given: Some(Box::new(given)), ..batch.clone() };
            let refused = refusal(&mut trainer, &(run.subject.transfer)(faulty), "given rows that do not fit");
            assert!(refused.contains("given") && !refused.contains('\n'), "{refused}");
        }
    }
}

/// Given rows of a reordered graph are dropped by the numbers that their nodes had before, as computed ones are.
fn dropout_follows_draw_keys(run: &Run<'_>) {
    let mut dataset = Dataset::clone(&run.dataset);
    let keys: Vec<u32> = run.all_nodes().into_iter().rev().collect();
    dataset.topology = dataset.topology.clone().with_draw_keys(keys).expect("a permutation");
    let reordered = Run { dataset: Arc::new(dataset), ..*run };
    let model = model(json!({"kind": "sage", "dropout": 0.5}));
    given_rows_stand_for_computed_ones(&reordered, "sage on a reordered graph", &model);
}

/// A mini-batch that is given no row has the bits of an ordinary one; a model without a second layer that reads the graph
/// refuses given rows.
fn no_given_rows_change_nothing(run: &Run<'_>) {
    let sage = model(json!({"kind": "sage", "dropout": 0.4}));
    let batch = with_given(run, &mut run.build(&sage), &sage, |_| true, false).expect("no dropout of the features");
    for (what, model) in layered(run) {
        let none = Some(Box::new(GivenRows::default()));
        let batches = [None, none].map(|given| HostBatch { given, ..run.host_batch(&model, seeds(&model), 1) });
        let [expected, found] = batches.map(|batch| {
            let mut trainer = run.build(&model);
            let score = accumulate(&mut trainer, &(run.subject.transfer)(batch));
            (score, gradients(&mut trainer))
        });
        if run.subject.deterministic {
            assert_eq!(found, expected, "{what}: bits of a mini-batch that is given no row");
        }
        close(what, &found.1.tensors, &expected.1.tensors, 1e-5);
    }
    let refusing = [json!({"kind": "mlp"}), json!({"kind": "sage", "normalization": "batch"})];
    for model in refusing.map(model) {
        // An operator need not train every model.
        let Ok(mut trainer) = run.try_build(&model, json!({}), 1) else { continue };
        let refused = refusal(&mut trainer, &(run.subject.transfer)(batch.clone()), "a model that takes no given rows");
        assert!(refused.contains("given rows"), "{model}: {refused}");
    }
}

/// Without what the first layer's weights multiply, gradients agree with finite differences of the loss as a function of the parameters
/// with the given rows constant.
fn gradients_with_given_rows_are_differences(run: &Run<'_>) {
    // Each with dropout, which leaves nothing out of the pass.
    for (what, model) in layered(run).filter(|(_, model)| model["dropout"] != 0.0) {
        let mut trainer = run.build(&model);
        accumulate(&mut trainer, &run.batch(&model, seeds(&model), 0));
        step(&mut trainer);
        let Some(batch) = with_given(run, &mut trainer, &model, |v| v % 2 == 1, false) else { continue };
        let batch = (run.subject.transfer)(batch);
        differences(run, &format!("{what} with given rows"), &mut trainer, &batch);
    }
}
