//! How often the host waits for the device. Alone in its program, which starts itself with streams that are late: only then
//! is there anything to wait for on the emulated device.
#![cfg(feature = "emulate")]

mod common;

use std::process::Command;

use common::{batch, context, dataset, model, place, transfer};
use morphgl_cuda::{Device, statistics};
use morphgl_graph_store::Dtype;
use morphgl_registry::{MiniBatch, Training};
use morphgl_training_cuda_native::{CudaNative, KEY};
use serde_json::json;

const CHILD: &str = "MORPHGL_TEST_WAITS";

#[test]
fn a_step_waits_once() {
    if std::env::var(CHILD).is_ok() {
        return steps();
    }
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command.args(["--exact", "a_step_waits_once", "--nocapture"]);
    let output = command.env(CHILD, "1").env("MORPHGL_EMULATION", "late").output().expect("it starts");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn steps() {
    let (dim, classes) = (12, 4);
    let device = Device::open(&place(), &KEY).expect("it is emulated");
    for kind in ["sage", "gcn", "gat", "gin", "mlp"] {
        let model = model(kind, dim, classes, json!({"hidden": 16, "layers": 2, "heads": 2, "dropout": 0.5}));
        let mut trainer =
            CudaNative::new(&context(&model, place(), dataset(0, 0, dim, classes, false))).expect("built");
        let given = |seed| transfer(batch(&[90, 40, 17], (dim, classes), Dtype::F16, false, seed));
        let batches: Vec<MiniBatch> = (0..4).map(given).collect();
        for batch in &batches {
            let before = statistics(&device).waits;
            trainer.train(batch).expect("a step");
            assert_eq!(statistics(&device).waits - before, 1, "{kind}, {:?}", batch.id());
        }
    }
}
