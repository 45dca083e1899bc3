//! Operators that read features from the dataset.

use morphgl_registry::HostBatch;
use serde_json::json;

use super::{Run, accumulate, close, gradients, parameters, refusal, score, step};

/// A mini-batch without features gives the score, gradients and step of one with features; an input node that does not exist
/// is an error that names the mini-batch.
pub(super) fn features_are_read_from_the_store(run: &Run<'_>) {
    // Reverse order, so that rows of the mini-batch are not rows of the dataset.
    let nodes: Vec<u32> = run.all_nodes().into_iter().rev().collect();
    let mut checked = 0;
    for (what, model) in run.models() {
        // An operator may refuse a model.
        if run.try_build(&model, json!({}), 1).is_err() {
            continue;
        }
        checked += 1;
        let whole = run.host_batch(&model, &nodes, 2);
        let lacking = HostBatch { features: None, ..whole.clone() };
        let [with, without] = [whole, lacking.clone()].map(|batch| {
            let (mut trainer, batch) = (run.build(&model), (run.subject.transfer)(batch));
            let scores = [score(&mut trainer, &batch), accumulate(&mut trainer, &batch)];
            let gradients = gradients(&mut trainer);
            step(&mut trainer);
            (scores, gradients, parameters(&trainer))
        });
        for (a, e) in without.0.iter().zip(&with.0) {
            assert_eq!((a.count, a.correct), (e.count, e.correct), "{what}");
            assert!((a.loss_sum - e.loss_sum).abs() <= 1e-5 * e.loss_sum.abs(), "{what}: {a:?}, gathered {e:?}");
        }
        close(&format!("{what}, gradients"), &without.1.tensors, &with.1.tensors, 1e-5);
        if run.subject.deterministic {
            assert_eq!(without, with, "{what}: bits of a mini-batch without features");
        }

        let mut foreign = lacking;
        *foreign.input_nodes.last_mut().expect("a node") = run.dataset.num_nodes() as u32;
        let name = foreign.id.to_string();
        let foreign = (run.subject.transfer)(foreign);
        let mut trainer = run.build(&model);
        let error = refusal(&mut trainer, &foreign, "no such node");
        assert!(error.contains(&name), "{what}, a node that does not exist: {error}");
    }
    assert!(checked > 0, "an operator that trains none of the models");
}
