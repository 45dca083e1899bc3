//! Rows of the first layer's output that mini-batches bring along. Operators that compute no layer alone are not tested.

use morphgl_registry::{GivenRows, HostBatch, Training};
use serde_json::{Value, json};

use super::graph::batch_with_given;
use super::numbers::differences;
use super::{Run, Trainer, accumulate, close, gradients, layers, model, models, parameters, refusal, step};

/// Seeds whose last hop but one finds nodes that no hop before has found.
fn seeds(model: &Value) -> &'static [u32] {
    if layers(model) == 2 { &[0, 3, 7, 11] } else { &[3] }
}

/// Models with a second layer, without dropout and with dropout of the first layer's output.
fn layered() -> impl Iterator<Item = (&'static str, Value)> {
    let layered = models()
        .into_iter()
        .filter(|(_, m)| layers(m) > 1 && m["kind"] != "mlp" && m.get("normalization") != Some(&json!("batch")));
    let deep = ("three layers of gcn", model(json!({"kind": "gcn", "layers": 3})));
    layered.chain([deep]).flat_map(|(what, model)| {
        let mut dropping = model.clone();
        dropping["dropout"] = json!(0.4);
        [(what, model), (what, dropping)]
    })
}

/// The rows of nodes with all their neighbours, by the trainer's parameters; `None` where it computes no layer alone.
fn first_layer(run: &Run<'_>, trainer: &mut dyn Training, nodes: &[u32]) -> Option<Vec<f32>> {
    let one_hop = super::batch(&run.dataset, nodes, 1, 0);
    let mut rows = Vec::new();
    trainer.first_layer(&one_hop, &mut rows)?.expect("the first layer");
    Some(rows)
}

/// The mini-batch of [`seeds`] with the given rows of these nodes.
fn with_given(run: &Run<'_>, trainer: &mut Trainer, model: &Value, given: fn(u32) -> bool) -> Option<HostBatch> {
    let mut batch = batch_with_given(&run.dataset, seeds(model), layers(model), 1, &given);
    if let Some(given) = &mut batch.given {
        given.rows = first_layer(run, trainer.as_mut(), &given.nodes)?;
    }
    Some(batch)
}

/// A mini-batch whose given rows are computed with the same parameters has the loss of the ordinary one, and the gradients of all
/// layers but the first. Rows that are missing, or given to a model that reads none, are refused.
pub(super) fn given_rows_stand_for_computed_ones(run: &Run<'_>) {
    for (what, model) in layered() {
        let mut ordinary = run.build(&model);
        accumulate(&mut ordinary, &run.batch(&model, seeds(&model), 0));
        step(&mut ordinary);
        let given: [fn(u32) -> bool; 2] = [|v| v % 2 == 0, |_| true];
        for given in given {
            let mut trainer = run.build(&model);
            trainer.set_parameters(&parameters(&ordinary)).expect("parameters");
            let Some(batch) = with_given(run, &mut trainer, &model, given) else { return };
            let count = batch.given.as_ref().map_or(0, |given| given.nodes.len());
            assert!(count > 0, "{what}: nodes are given");
            let found = accumulate(&mut trainer, &(run.subject.transfer)(batch.clone()));
            let mut whole = run.build(&model);
            whole.set_parameters(&parameters(&ordinary)).expect("parameters");
            let expected = accumulate(&mut whole, &run.batch(&model, seeds(&model), 1));
            let off = (found.loss_sum - expected.loss_sum).abs();
            assert!(off < 1e-5 * expected.loss_sum.abs().max(1.0), "{what}: {found:?}, computed {expected:?}");
            let upper = |trainer: &mut Trainer| {
                let tensors = gradients(trainer).tensors.into_iter();
                tensors
                    .filter(|t| !t.name.starts_with("convs.0.") && !t.name.starts_with("norms.0."))
                    .collect::<Vec<_>>()
            };
            close(what, &upper(&mut trainer), &upper(&mut whole), 1e-5);

            let unfilled = batch.given.map(|given| Box::new(GivenRows { rows: Vec::new(), ..*given }));
            let unfilled = HostBatch { given: unfilled, ..batch };
            let refused = refusal(&mut trainer, &(run.subject.transfer)(unfilled), "given rows that are missing");
            assert!(refused.contains("given") && !refused.contains('\n'), "{refused}");
        }
    }
}

/// Gradients agree with finite differences of the loss as a function of the parameters with the given rows constant.
pub(super) fn gradients_with_given_rows_are_differences(run: &Run<'_>) {
    // Each with dropout, which leaves nothing out of the pass.
    for (what, model) in layered().filter(|(_, model)| model["dropout"] != 0.0) {
        let mut trainer = run.build(&model);
        accumulate(&mut trainer, &run.batch(&model, seeds(&model), 0));
        step(&mut trainer);
        let Some(batch) = with_given(run, &mut trainer, &model, |v| v % 2 == 1) else { return };
        let batch = (run.subject.transfer)(batch);
        differences(&format!("{what} with given rows"), &mut trainer, &batch);
    }
}
