//! Mini-batches of links and of edges: the same bits every time, and pairs of nodes that are no seeds, or of no class, change nothing.

mod common;

use common::{batch, context, dataset, model, pair, place, transfer};
use morphgl_conformance::available;
use morphgl_graph_store::Dtype;
use morphgl_registry::{Handle, HostBatch, ModelState, Training};
use morphgl_training_cuda_native::CudaNative;
use serde_json::json;

const WIDTH: usize = 24;
const CLASSES: usize = 5;

/// A model of links by a loss of pairs, or of classes of edges.
fn build(loss: &str, decoder: &str) -> CudaNative {
    let mut task = json!({"task": "link", "loss": loss, "decoder": decoder, "hidden": 16, "layers": 2});
    if loss == "cross-entropy" {
        (task["task"], task["edge_outputs"]) = (json!("classify"), json!(CLASSES));
    }
    let model = model("sage", 12, WIDTH, task);
    CudaNative::new(&context(&model, place(), dataset(0, 0, 12, 0, false))).expect("it is built")
}

fn of_pairs(seed: u64) -> HostBatch {
    let mut batch = batch(&[90, 60, 40], (12, WIDTH), Dtype::F16, false, seed);
    pair(&mut batch, 30, 4);
    batch.labels = (0..30 * 5).map(|i| i % (CLASSES as i32 + 1) - 1).collect();
    batch
}

/// Losses and decoders.
fn models() -> impl Iterator<Item = (&'static str, &'static str)> {
    let links = ["bce", "bpr", "margin"].into_iter();
    let links = links.flat_map(|loss| ["dot", "distmult", "mlp"].map(|decoder| (loss, decoder)));
    links.chain([("cross-entropy", "mlp")])
}

#[test]
fn the_same_bits_every_time() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for (loss, decoder) in models() {
        let run = || {
            let mut trainer = build(loss, decoder);
            for seed in 0..3 {
                trainer.train(&transfer(of_pairs(seed))).and_then(Handle::wait).expect("it is trained on");
            }
            (trainer.parameters().expect("parameters"), trainer.optimizer_state().expect("a state"))
        };
        assert_eq!(run(), run(), "{loss}, {decoder}");
    }
}

/// A mini-batch is neither scored nor trained on, with these words, and leaves the gradients of the one before.
fn is_refused(what: &str, (loss, decoder): (&str, &str), words: &[&str], wrong: HostBatch) {
    let mut trainer = build(loss, decoder);
    trainer.accumulate(&transfer(of_pairs(0))).and_then(Handle::wait).expect("a score");
    let before = trainer.gradients().expect("gradients");
    let wrong = transfer(wrong);
    let scored = trainer.score(&wrong).and_then(Handle::wait).map(drop);
    let trained = trainer.accumulate(&wrong).and_then(Handle::wait).map(drop);
    for refused in [scored, trained] {
        let error = refused.expect_err(what).to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{loss}, {decoder}, {what}: {error}");
    }
    assert_eq!(trainer.gradients().expect("gradients"), before, "{loss}, {decoder}, {what}");
}

#[test]
fn a_pair_of_no_seeds_is_refused_and_changes_nothing() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for model in models().filter(|(loss, _)| ["bpr", "cross-entropy"].contains(loss)) {
        for end in [40, 1 << 20, u32::MAX] {
            let mut wrong = of_pairs(1);
            wrong.pairs.as_mut().expect("pairs").ends[55][1] = end;
            is_refused(&format!("end {end}"), model, &["mini-batch 1 of epoch 1", "there are 40"], wrong);
        }
    }
}

#[test]
fn an_edge_of_no_class_is_refused_and_changes_nothing() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for class in [CLASSES as i32, i32::MAX] {
        let mut wrong = of_pairs(1);
        // There are fewer seeds than pairs.
        wrong.labels[149] = class;
        let words = ["mini-batch 1 of epoch 1", &format!("a pair of class {class}, the model has 5 classes")];
        is_refused("a class", ("cross-entropy", "mlp"), &words, wrong);
    }
}
