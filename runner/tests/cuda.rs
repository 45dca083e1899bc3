//! A binary with the CUDA operators on a machine without a driver: it reports that, and trains on the CPU.
#![cfg(all(feature = "cuda", not(feature = "emulate")))]

mod support;

use serde_json::Value;
use support::Bench;

/// Operators on CUDA devices, of `morphgl ops`.
fn operators(bench: &Bench) -> Vec<Value> {
    let json = bench.json(&["ops"]);
    let all = json["operators"].as_array().expect("a list");
    let on_cuda = |o: &&Value| o["hardware"].to_string().contains("CUDA");
    all.iter().filter(on_cuda).cloned().collect()
}

#[test]
#[allow(clippy::print_stderr, reason = "reports what was not tested")]
fn without_a_driver_training_runs_on_the_cpu() {
    let bench = Bench::new();
    let operators = operators(&bench);
    // There are CUDA operators if they are linked.
    let linked = include_str!("../src/operators.rs").contains("feature = \"cuda\"");
    assert_eq!(!operators.is_empty(), linked, "{operators:?}");
    if operators.iter().any(|o| o["available"] == true) {
        return eprintln!("this machine has a CUDA device: messages without one are not tested");
    }
    for operator in &operators {
        let reason = operator["reason"].as_str().unwrap_or_default();
        // An installed driver finds no device.
        assert!(reason == "no CUDA driver found" || reason.contains("the CUDA driver"), "{operator:#}");
    }
    if linked {
        let text = bench.text(&["ops"]);
        assert!(text.contains("no: no CUDA driver found") || text.contains("the CUDA driver"), "{text}");
    }
    bench.small();
    let quick = ["--layers", "2", "--hidden", "16", "--fanouts", "5,5", "--profile-seconds", "0.2", "--epochs", "2"];
    let json = bench.json(&[&["train", "small"], &quick[..]].concat());
    assert!(json["test_accuracy"].as_f64().expect("a number") > 0.3, "{json:#}");
    assert_eq!(json["epochs"].as_array().expect("a list").len(), 2);
}

/// A device with a driver and without cuBLAS: the CPU trains, and the reason is printed.
#[test]
#[cfg(target_os = "linux")]
#[allow(clippy::print_stderr, reason = "reports what was not tested")]
fn without_cublas_the_cpu_trains() {
    let bench = Bench::new();
    bench.small();
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/../transfer/cuda/tests/fake/fake.cpp");
    let library = bench.path().join("libcuda.so");
    let compile = ["-std=gnu++17", "-shared", "-fPIC", "-DFAKE_CUDA", driver, "-o"];
    match std::process::Command::new("g++").args(compile).arg(&library).status() {
        Err(_) => return eprintln!("no g++: training without cuBLAS is not tested"),
        Ok(status) => assert!(status.success(), "{driver} does not compile"),
    }
    let args = ["train", "small", "--layers", "2", "--hidden", "16", "--fanouts", "5,5", "--epochs", "1"];
    let mut command = bench.command(&args);
    command.env("LD_LIBRARY_PATH", bench.path()).env("MORPHGL_CUBLAS", "/no/such/library");
    let output = command.output().expect("the binary starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains(
            "Training_CUDA_Native: cublasCreate_v2: GEMM needs cuBLAS: MORPHGL_CUBLAS names /no/such/library"
        ),
        "{stderr}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("all epochs done"), "{stderr}");
}
