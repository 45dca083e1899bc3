//! Rows of the first layer's output that mini-batches bring along.

use std::sync::Arc;

use morphgl_graph_store::Dataset;
use morphgl_registry::{GivenRows, HostBatch};
use serde_json::{Value, json};

use super::graph::batch_with_given;
use super::numbers::differences;
use super::{Run, Trainer, accumulate, close, gradients, layers, model, parameters, refusal, score, step};

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

/// Models with a second layer, without dropout and with dropout of the first layer's output.
fn layered(run: &Run<'_>) -> impl Iterator<Item = (&'static str, Value)> {
    let layered = run
        .models()
        .into_iter()
        .filter(|(_, m)| layers(m) > 1 && m["kind"] != "mlp" && m.get("normalization") != Some(&json!("batch")));
    let deep = ("three layers of gcn", model(json!({"kind": "gcn", "layers": 3})));
    layered.chain([deep]).flat_map(|(what, model)| {
        let mut dropping = model.clone();
        dropping["dropout"] = json!(0.4);
        [(what, model), (what, dropping)]
    })
}

/// The mini-batch of [`seeds`] with the given rows of these nodes, by the trainer's parameters and all neighbours.
fn with_given(run: &Run<'_>, trainer: &mut Trainer, model: &Value, given: fn(u32) -> bool) -> HostBatch {
    let mut batch = batch_with_given(&run.dataset, seeds(model), layers(model), 1, &given);
    let given = batch.given.as_mut().expect("nodes are given");
    let one_hop = super::batch(&run.dataset, &given.nodes, 1, 0);
    let computed =
        trainer.first_layer(&one_hop, &mut given.rows).expect("an operator that computes its first layer alone");
    computed.expect("the first layer");
    batch
}

/// A mini-batch whose given rows are computed with the same parameters has the loss of the ordinary one, in training and in
/// evaluation, and the gradients of all layers but the first. Rows that are missing are refused.
fn given_rows_stand_for_computed_ones(run: &Run<'_>, what: &str, model: &Value) {
    let mut ordinary = run.build(model);
    accumulate(&mut ordinary, &run.batch(model, seeds(model), 0));
    step(&mut ordinary);
    let given: [fn(u32) -> bool; 2] = [|v| v % 2 == 0, |_| true];
    for given in given {
        let mut trainer = run.build(model);
        trainer.set_parameters(&parameters(&ordinary)).expect("parameters");
        let batch = with_given(run, &mut trainer, model, given);
        let mut whole = run.build(model);
        whole.set_parameters(&parameters(&ordinary)).expect("parameters");
        let [moved, computed] = [(run.subject.transfer)(batch.clone()), run.batch(model, seeds(model), 1)];
        for pass in [score, accumulate] {
            let (found, expected) = (pass(&mut trainer, &moved), pass(&mut whole, &computed));
            let off = (found.loss_sum - expected.loss_sum).abs();
            assert!(off < 1e-5 * expected.loss_sum.abs().max(1.0), "{what}: {found:?}, computed {expected:?}");
        }
        let upper = |trainer: &mut Trainer| {
            let tensors = gradients(trainer).tensors.into_iter();
            tensors.filter(|t| !t.name.starts_with("convs.0.") && !t.name.starts_with("norms.0.")).collect::<Vec<_>>()
        };
        close(what, &upper(&mut trainer), &upper(&mut whole), 1e-5);

        let unfilled = batch.given.map(|given| Box::new(GivenRows { rows: Vec::new(), ..*given }));
        let unfilled = HostBatch { given: unfilled, ..batch };
        let refused = refusal(&mut trainer, &(run.subject.transfer)(unfilled), "given rows that are missing");
        assert!(refused.contains("given") && !refused.contains('\n'), "{refused}");
    }
}

/// Given rows of a reordered graph are dropped by the numbers that their nodes had before, as computed ones are.
fn dropout_follows_draw_keys(run: &Run<'_>) {
    let mut dataset = Dataset::clone(&run.dataset);
    let keys: Vec<u32> = run.all_nodes().into_iter().rev().collect();
    dataset.topology = dataset.topology.clone().with_draw_keys(keys).expect("a permutation");
    let reordered = Run { subject: run.subject, dataset: Arc::new(dataset) };
    let model = model(json!({"kind": "sage", "dropout": 0.5}));
    given_rows_stand_for_computed_ones(&reordered, "sage on a reordered graph", &model);
}

/// A mini-batch that is given no row has the bits of an ordinary one; a model without a second layer that reads the graph
/// refuses given rows.
fn no_given_rows_change_nothing(run: &Run<'_>) {
    let sage = model(json!({"kind": "sage", "dropout": 0.4}));
    let batch = with_given(run, &mut run.build(&sage), &sage, |_| true);
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

/// Gradients agree with finite differences of the loss as a function of the parameters with the given rows constant.
fn gradients_with_given_rows_are_differences(run: &Run<'_>) {
    // Each with dropout, which leaves nothing out of the pass.
    for (what, model) in layered(run).filter(|(_, model)| model["dropout"] != 0.0) {
        let mut trainer = run.build(&model);
        accumulate(&mut trainer, &run.batch(&model, seeds(&model), 0));
        step(&mut trainer);
        let batch = (run.subject.transfer)(with_given(run, &mut trainer, &model, |v| v % 2 == 1));
        differences(run, &format!("{what} with given rows"), &mut trainer, &batch);
    }
}
