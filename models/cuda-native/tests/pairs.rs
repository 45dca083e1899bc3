//! Mini-batches of pairs: the same bits every time, and pairs of nodes that are no seeds change nothing.

mod common;

use common::{batch, context, dataset, model, pair, place, transfer};
use morphgl_conformance::available;
use morphgl_graph_store::Dtype;
use morphgl_registry::{Handle, HostBatch, ModelState, Training};
use morphgl_training_cuda_native::CudaNative;
use serde_json::json;

const WIDTH: usize = 24;

fn build(loss: &str, decoder: &str) -> CudaNative {
    let task = json!({"task": "link", "loss": loss, "decoder": decoder, "hidden": 16, "layers": 2});
    let model = model("sage", 12, WIDTH, task);
    CudaNative::new(&context(&model, place(), dataset(0, 0, 12, 0, false))).expect("it is built")
}

fn of_pairs(seed: u64) -> HostBatch {
    let mut batch = batch(&[90, 60, 40], (12, WIDTH), Dtype::F16, false, seed);
    pair(&mut batch, 30, 4);
    batch
}

#[test]
fn the_same_bits_every_time() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for loss in ["bce", "bpr", "margin"] {
        for decoder in ["dot", "distmult", "mlp"] {
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
}

#[test]
fn a_pair_of_no_seeds_is_refused_and_changes_nothing() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for decoder in ["dot", "distmult", "mlp"] {
        for end in [40, 1 << 20, u32::MAX] {
            let mut trainer = build("bpr", decoder);
            trainer.accumulate(&transfer(of_pairs(0))).and_then(Handle::wait).expect("a score");
            let before = trainer.gradients().expect("gradients");
            let mut wrong = of_pairs(1);
            wrong.pairs.as_mut().expect("pairs").ends[55][1] = end;
            let wrong = transfer(wrong);
            let scored = trainer.score(&wrong).and_then(Handle::wait).map(drop);
            let trained = trainer.accumulate(&wrong).and_then(Handle::wait).map(drop);
            for refused in [scored, trained] {
                let error = refused.expect_err("a pair of no seeds").to_string();
                assert!(error.contains("mini-batch 1 of epoch 1") && error.contains("there are 40"), "{error}");
            }
            assert_eq!(trainer.gradients().expect("gradients"), before, "{decoder}, end {end}");
        }
    }
}
