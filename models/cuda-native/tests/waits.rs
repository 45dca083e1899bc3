//! How often the host waits for the device. Alone in its program, which starts itself with streams that are late: only then
//! is there anything to wait for on the emulated device.
#![cfg(feature = "emulate")]

#[allow(dead_code, reason = "the native operator's tests use the rest")]
#[path = "../../cpu-native/tests/common/typed.rs"]
mod blocks;
mod common;

use std::process::Command;
use std::sync::Arc;

use common::{batch, context, dataset, give, model, place, transfer};
use morphgl_cuda::{Buffer, Device, Stream, statistics};
use morphgl_graph_store::Dtype;
use morphgl_registry::{Handle, MiniBatch, Training};
use morphgl_training_cuda_native::{CudaNative, KEY};
use serde_json::json;

const CHILD: &str = "MORPHGL_TEST_WAITS";

#[test]
fn a_step_waits_once() {
    late("a_step_waits_once", steps);
}

#[test]
fn a_trained_mini_batchs_memory_waits_for_no_later_training() {
    late("a_trained_mini_batchs_memory_waits_for_no_later_training", memory);
}

#[test]
fn typed_rows_are_numbered_without_waiting_for_the_step_before() {
    late("typed_rows_are_numbered_without_waiting_for_the_step_before", typed);
}

/// Does `check` in a program of its own, whose streams are late.
fn late(test: &str, check: fn()) {
    if std::env::var(CHILD).is_ok() {
        return check();
    }
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command.args(["--exact", test, "--nocapture"]);
    let output = command.env(CHILD, "1").env("MORPHGL_EMULATION", "late").output().expect("it starts");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn steps() {
    let (dim, classes) = (12, 4);
    let device = Device::open(&place(), &KEY).expect("it is emulated");
    for (kind, launches) in [("sage", 34), ("gcn", 25), ("gat", 64), ("gin", 45), ("mlp", 18)] {
        let model = model(kind, dim, classes, json!({"hidden": 16, "layers": 2, "heads": 2, "dropout": 0.5}));
        let mut trainer =
            CudaNative::new(&context(&model, place(), dataset(0, 0, dim, classes, false))).expect("built");
        let of_seed = |seed| batch(&[90, 40, 17], (dim, classes), Dtype::F16, false, seed);
        let mut batches: Vec<(MiniBatch, u64)> = (0..4).map(|seed| (transfer(of_seed(seed)), launches)).collect();
        if kind != "mlp" {
            // Given rows take two copies and their dropout, and two copies of degrees.
            batches.extend((4..6).map(|seed| {
                let mut batch = of_seed(seed);
                give(&mut batch, 30, 16, &[]);
                (transfer(batch), launches + 5)
            }));
        }
        for (batch, launches) in &batches {
            let before = statistics(&device);
            trainer.train(batch).and_then(Handle::wait).expect("a step");
            let after = statistics(&device);
            assert_eq!(after.waits - before.waits, 1, "{kind}, {:?}", batch.id());
            let given = after.launches - before.launches;
            assert!(given <= *launches, "{kind}: {given} launches per step");
        }
    }
}

fn typed() {
    let (dim, classes) = (12, 4);
    let device = Device::open(&place(), &KEY).expect("it is emulated");
    let mut model = model("rsage", dim, classes, json!({"hidden": 16, "layers": 2, "dropout": 0.5}));
    model["types"] = serde_json::to_value(blocks::types()).expect("JSON");
    let dataset = Arc::new(blocks::dataset(dim, classes));
    let mut trainer = CudaNative::new(&context(&model, place(), dataset)).expect("built");
    // The first step takes much longer than the host takes to queue the second.
    let batches = [&[2700, 1200, 510], &[90, 40, 17]];
    let [first, second] =
        batches.map(|nodes| transfer(blocks::typed_batch(nodes, (dim, classes), (Dtype::F16, false), nodes[0] as u64)));
    let before = statistics(&device).waits;
    let [first, second] = [first, second].map(|batch| trainer.train(&batch).expect("it is queued"));
    assert_eq!(statistics(&device).waits - before, 2, "once for the numbers of each mini-batch's rows");
    assert!(!first.is_ready(), "the step before was waited for");
    second.wait().expect("a step");
    assert!(first.is_ready());
}

fn memory() {
    let (dim, classes) = (12, 4);
    let device = Device::open(&place(), &KEY).expect("it is emulated");
    let model = model("sage", dim, classes, json!({"hidden": 16, "layers": 2, "dropout": 0.0}));
    let mut trainer = CudaNative::new(&context(&model, place(), dataset(0, 0, dim, classes, false))).expect("built");
    let given = |seed| transfer(batch(&[900, 40, 17], (dim, classes), Dtype::F32, false, seed));
    let [first, second, third] = [0, 1, 2].map(given);
    let trained = trainer.train(&first).expect("given");
    trained.wait().expect("a step");
    // The trainer's stream has more work when the first mini-batch's memory comes back.
    let later = trainer.train(&second).expect("given");
    drop(first);
    let (other, before) = (Stream::new(&device, true).expect("a stream"), statistics(&device).allocations);
    let mut again = Buffer::<f32>::new(&other, 900 * dim).expect("memory");
    other.fill(&mut again, 0).expect("given");
    other.synchronize().expect("done");
    assert_eq!(statistics(&device).allocations, before, "it is memory that came back");
    assert!(!later.is_ready(), "the next step was waited for");
    later.wait().expect("a step");
    // Memory of a mini-batch that is dropped before its step was waited for waits for it.
    let last = trainer.train(&third).expect("given");
    drop(third);
    let [mut one, mut two] = [(); 2].map(|()| Buffer::<f32>::new(&other, 900 * dim).expect("memory"));
    [&mut one, &mut two].into_iter().for_each(|b| other.fill(b, 0).expect("given"));
    other.synchronize().expect("done");
    assert!(last.is_ready(), "its memory was written to while it was read");
}
