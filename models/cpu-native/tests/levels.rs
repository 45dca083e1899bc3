//! Losses of the first steps agree to 1e-5 at every SIMD level. The test runs its own program once for each level.
#![allow(clippy::print_stdout, reason = "the child processes print losses")]

use std::process::Command;

use common::{batch, context, host, model};
use morphgl_graph_store::Dtype;
use morphgl_platform::{ISA_VARIABLE, SimdLevel};
use morphgl_registry::Training;
use morphgl_training_cpu_native::CpuNative;
use serde_json::json;

mod common;

/// Environment variable of the child processes, which print losses.
const CHILD: &str = "MORPHGL_TEST_PRINTS_LOSSES";

/// Losses of four steps of every model.
fn losses() -> Vec<f64> {
    let mut losses = Vec::new();
    for (kind, dtype) in [("sage", Dtype::F32), ("gcn", Dtype::F16), ("gat", Dtype::Bf16), ("sage", Dtype::U8)] {
        let model = model(kind, 100, 7, json!({"layers": 2, "hidden": 96}));
        let build = if SimdLevel::current() == SimdLevel::Amx { CpuNative::on_tiles } else { CpuNative::new };
        let mut trainer = build(&context(&model, 2)).expect("the operator is built");
        for seed in 0..4 {
            let batch = host(batch(&[5_000, 1_500, 300], (100, 7), dtype, false, seed));
            let (score, _) = trainer.accumulate(&batch).and_then(|h| h.wait()).expect("accumulated");
            losses.push(score.loss_sum / score.count as f64);
            trainer.step().expect("a step");
        }
    }
    losses
}

#[test]
fn every_level_has_the_same_losses() {
    let expected = losses();
    if std::env::var_os(CHILD).is_some() {
        println!("level {} {}", SimdLevel::current(), serde_json::to_string(&expected).expect("numbers"));
        return;
    }
    let program = std::env::current_exe().expect("this program");
    for level in SimdLevel::available() {
        let mut command = Command::new(&program);
        command.args(["every_level_has_the_same_losses", "--exact", "--nocapture"]);
        let output = command.env(ISA_VARIABLE, level.name()).env(CHILD, "1").output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let printed = text.split_once(&format!("level {level} ")).and_then(|(_, rest)| rest.lines().next());
        let found: Vec<f64> =
            serde_json::from_str(printed.unwrap_or_else(|| panic!("{level}: {text}"))).expect("losses");
        assert_eq!(found.len(), expected.len());
        for (step, (a, b)) in found.iter().zip(&expected).enumerate() {
            assert!((a - b).abs() <= 1e-5 * b.abs(), "{level}, step {step}: loss {a}, at {} {b}", SimdLevel::current());
        }
    }
}
