//! Operators that read the features of the dataset themselves.

use morphgl_registry::HostBatch;
use serde_json::json;

use super::{Run, accumulate, batch, close, gradients, models, parameters, step};

/// A mini-batch without features scores, trains and steps as the same with features; a node that the dataset does not
/// have is an error that names the mini-batch.
pub(super) fn features_are_read_from_the_store(run: &Run<'_>) {
    // In another order than the dataset's, so that a row is not the row of its own number.
    let nodes: Vec<u32> = run.all_nodes().into_iter().rev().collect();
    let mut checked = 0;
    for (what, model) in models() {
        // What an operator refuses is another's to train.
        if run.try_build(&model, json!({}), 1).is_err() {
            continue;
        }
        checked += 1;
        let layers = model["layers"].as_u64().expect("a number of layers") as usize;
        let whole = batch(&run.dataset, &nodes, layers, 2);
        let lacking = HostBatch { features: None, ..whole.clone() };
        let [with, without] = [whole, lacking.clone()].map(|batch| {
            let (mut trainer, batch) = (run.build(&model), (run.subject.transfer)(batch));
            let (score, _) = trainer.score(&batch).and_then(|h| h.wait()).expect("a score");
            let trained = accumulate(&mut trainer, &batch);
            let found = gradients(&mut trainer);
            step(&mut trainer);
            ([score, trained], found, parameters(&trainer))
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
        let error = trainer.accumulate(&foreign).and_then(|h| h.wait()).expect_err("no such node").to_string();
        assert!(error.contains(&name), "{what}, a node that the dataset does not have: {error}");
    }
    assert!(checked > 0, "an operator that trains none of the models");
}
