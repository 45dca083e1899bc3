//! Work that is queued: the same bits every time, bad mini-batches that change nothing, memory that stays.

mod common;

use common::{batch, context, dataset, give, model, place, transfer};
use morphgl_conformance::available;
use morphgl_graph_store::Dtype;
use morphgl_registry::{Gradients, HostBatch, ModelState, Training};
use morphgl_training_cuda_native::CudaNative;
use serde_json::json;

const SIZES: (usize, usize) = (12, 4);

fn build(kind: &str) -> CudaNative {
    let more = json!({"hidden": 16, "layers": 2, "heads": 2, "dropout": 0.5});
    let model = model(kind, SIZES.0, SIZES.1, more);
    CudaNative::new(&context(&model, place(), dataset(0, 0, SIZES.0, SIZES.1, false))).expect("it is built")
}

fn good(seed: u64) -> HostBatch {
    batch(&[90, 40, 17], SIZES, Dtype::F16, false, seed)
}

#[test]
fn the_same_bits_every_time() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for kind in ["sage", "gcn", "gat", "gin", "mlp"] {
        let run = || {
            let mut trainer = build(kind);
            for seed in 0..3 {
                trainer.accumulate(&transfer(good(seed))).expect("it is queued");
                trainer.step().expect("it is queued");
            }
            (trainer.parameters().expect("parameters"), trainer.optimizer_state().expect("a state"))
        };
        assert_eq!(run(), run(), "{kind}");
    }
}

#[test]
fn a_bad_mini_batch_among_queued_ones_changes_nothing() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    let mut endless = good(1);
    let features = endless.features.as_mut().expect("features");
    // Infinity in every element: an f16 of all ones in the exponent.
    let infinite: Vec<u8> = [0x00u8, 0x7c].repeat(90 * SIZES.0);
    features.resize(90, SIZES.0, Dtype::F16).copy_from_slice(&infinite);
    let mut unknown = good(2);
    unknown.labels[3] = 4;
    let run = |batches: &[HostBatch]| {
        let mut trainer = build("sage");
        let batches: Vec<_> = batches.iter().map(|b| transfer(b.clone())).collect();
        let handles: Vec<_> = batches.iter().map(|b| trainer.accumulate(b).expect("it is queued")).collect();
        // The mini-batches may go as soon as they are queued.
        drop(batches);
        let found: Vec<Result<_, String>> =
            handles.into_iter().map(|h| h.wait().map(|(score, _)| score).map_err(|e| e.to_string())).collect();
        (found, trainer.gradients().expect("gradients"))
    };
    let (scores, clean) = run(&[good(0), good(3)]);
    let (found, mixed) = run(&[good(0), endless.clone(), unknown, good(3)]);
    assert_eq!(mixed, clean, "a bad mini-batch left its gradients");
    assert_eq!([&found[0], &found[3]], [&scores[0], &scores[1]]);
    let error = found[1].as_ref().expect_err("a loss of NaN");
    assert!(error.contains("mini-batch 1 of epoch 1") && error.contains("learning rate"), "{error}");
    let error = found[2].as_ref().expect_err("a class too many");
    assert!(error.contains("mini-batch 2 of epoch 1") && error.contains("class 4"), "{error}");

    // Nothing but bad ones: the step finds nothing, on the device, and takes none.
    let mut trainer = build("sage");
    let start = trainer.parameters().expect("parameters");
    let handle = trainer.accumulate(&transfer(endless)).expect("it is queued");
    let error = trainer.step().and_then(|h| h.wait()).expect_err("there is no gradient").to_string();
    assert!(error.contains("accumulate"), "{error}");
    assert!(handle.wait().is_err(), "a loss of NaN");
    assert_eq!(trainer.parameters().expect("parameters"), start);
    assert_eq!(trainer.optimizer_state().expect("a state")[0].values, [0.0, 0.0], "a step that was none is counted");
    let Gradients { tensors, count } = trainer.gradients().expect("gradients");
    assert!(count == 0 && tensors.iter().all(|t| t.values.iter().all(|v| *v == 0.0)));
}

#[test]
fn a_steady_state_takes_no_memory() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    let mut trainer = build("gat");
    let sizes = [[900, 400, 170], [800, 420, 150], [60, 30, 10]];
    let round = |trainer: &mut CudaNative| {
        for (nodes, given) in sizes.into_iter().flat_map(|nodes| [(nodes, 0), (nodes, 70)]) {
            let mut batch = batch(&nodes, SIZES, Dtype::F32, false, 3);
            if given > 0 {
                give(&mut batch, given, 16, &[]);
            }
            trainer.accumulate(&transfer(batch)).and_then(|h| h.wait()).expect("accumulated");
            trainer.step().and_then(|h| h.wait()).expect("a step");
        }
        trainer.workspace_bytes()
    };
    round(&mut trainer);
    let steady = round(&mut trainer);
    assert_eq!(round(&mut trainer), steady, "a mini-batch like one before took memory");
}

/// The host never sees a given row: a broken one is found by the loss, and changes nothing.
#[test]
fn given_rows_that_are_no_numbers_change_nothing() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for kind in ["sage", "gcn", "gat", "gin"] {
        let run = |broken: bool| {
            let mut trainer = build(kind);
            let [mut first, mut second, mut third] = [0, 1, 2].map(good);
            [&mut first, &mut second, &mut third].into_iter().for_each(|batch| give(batch, 30, 16, &[]));
            let mut handles = vec![trainer.accumulate(&transfer(first)).expect("it is queued")];
            if broken {
                second.given.as_mut().expect("rows").rows.fill(f32::NAN);
                handles.push(trainer.accumulate(&transfer(second)).expect("it is queued"));
            }
            handles.push(trainer.accumulate(&transfer(third)).expect("it is queued"));
            let found: Vec<Result<_, String>> =
                handles.into_iter().map(|h| h.wait().map(|(score, _)| score).map_err(|e| e.to_string())).collect();
            (found, trainer.gradients().expect("gradients"))
        };
        let ((good, expected), (mut found, gradients)) = (run(false), run(true));
        let error = found.remove(1).expect_err("a loss of NaN");
        assert!(error.contains("mini-batch 1 of epoch 1") && error.contains("learning rate"), "{kind}: {error}");
        assert_eq!(found, good, "{kind}");
        assert_eq!(gradients, expected, "{kind}");
    }
}
