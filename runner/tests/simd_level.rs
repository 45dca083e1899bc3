//! `MORPHGL_ISA` caps the SIMD level, is refused where it is wrong, and changes neither mini-batches nor losses.

mod support;

use morphgl_platform::{ISA_VARIABLE, SimdLevel};
use serde_json::Value;
use support::Bench;

/// Runs a command at a level, and returns its JSON document.
fn json_at(bench: &Bench, level: SimdLevel, args: &[&str]) -> Value {
    let output = bench.command(args).arg("--json").env(ISA_VARIABLE, level.name()).output().expect("the binary starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{level}, {args:?}: {errors}");
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

#[test]
fn the_current_level_is_reported() {
    let bench = Bench::new();
    bench.small();
    for level in SimdLevel::available() {
        assert_eq!(json_at(&bench, level, &["ops"])["isa"], level.name());
        let args = ["bench", "sample", "small", "--fanouts", "3,3", "--repeats", "1", "--batches", "2"];
        assert_eq!(json_at(&bench, level, &args)["isa"], level.name());
    }
}

#[test]
fn an_unknown_level_is_wrong_usage() {
    let bench = Bench::new();
    for (name, why) in [("avx9", "no SIMD level of this architecture"), ("AVX2", "no SIMD level")] {
        let output = bench.command(&["ops"]).env(ISA_VARIABLE, name).output().expect("the binary starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(&format!("{ISA_VARIABLE}={name}: {why}")), "{errors}");
        assert!(errors.contains("there are portable"), "{errors}");
    }
}

#[test]
fn every_level_has_the_same_losses() {
    let bench = Bench::new();
    bench.small();
    for model in ["sage", "gcn", "gat"] {
        let args = ["train", "small", "--model", model, "--layers", "2", "--hidden", "16", "--fanouts", "5,5"];
        let args = [&args[..], &["--epochs", "3", "--profile-seconds", "0.1", "--training", "Training_CPU_Native"]];
        let losses = |level| -> Vec<f64> {
            let run = json_at(&bench, level, &args.concat());
            run["epochs"].as_array().expect("epochs").iter().map(|e| e["loss"].as_f64().expect("a loss")).collect()
        };
        let portable = losses(SimdLevel::Portable);
        assert_eq!(portable.len(), 3);
        for level in SimdLevel::available() {
            for (a, b) in losses(level).iter().zip(&portable) {
                assert!((a - b).abs() <= 1e-5 * b.abs(), "{model} at {level}: loss {a}, portable {b}");
            }
        }
    }
}
