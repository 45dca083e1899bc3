//! An operator on a CUDA device or the emulated one, compared with the reference.
#![allow(dead_code, reason = "each test program uses a part")]

use std::process::Command;
use std::sync::Arc;

use morphgl_conformance::batching::{Case, graphs, reference};
use morphgl_cuda::{CudaBatch, Device, Stream};
use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_registry::{BatchId, HostBatch, MiniBatch, Place, Transferring, TransferringContext};
use morphgl_transferring_cuda::{ZERO_COPY_KEY, ZeroCopy};
use serde_json::Value;

pub(crate) fn place() -> Place {
    "cuda:0".parse().expect("a place")
}

pub(crate) fn stream() -> Stream {
    let device = Device::open(&place(), &ZERO_COPY_KEY).expect("the device is available");
    Stream::new(&device, false).expect("a stream")
}

pub(crate) fn upload(stream: &Stream, batch: &HostBatch) -> MiniBatch {
    CudaBatch::upload(stream, batch).expect("enough memory").into_batch()
}

pub(crate) fn operator(case: &Case, options: Value) -> Result<ZeroCopy, String> {
    let dataset = Arc::clone(&case.dataset);
    let sampled = Some((case.seeds.clone(), case.settings.clone()));
    let context = TransferringContext { dataset, from: place(), to: place(), gather: true, sampled, options };
    ZeroCopy::new(&context).map_err(|e| e.to_string())
}

/// Transfers the mini-batch `index` of the case, and compares it with the reference.
pub(crate) fn check(operator: &mut ZeroCopy, stream: &Stream, case: &Case, index: u32) {
    let whole = reference::sample(case, BatchId { epoch: 0, index });
    let without_features = HostBatch { features: None, ..whole.clone() };
    let handle = operator.transfer(upload(stream, &without_features)).expect("a gather");
    let MiniBatch::Device(batch) = handle.wait().expect("no failure").0 else {
        panic!("the mini-batch is on the device")
    };
    assert_eq!(batch.to_host().expect("a copy"), whole);
}

/// A graph with feature rows of `row_bytes` bytes.
pub(crate) fn with_rows(num_nodes: usize, row_bytes: usize) -> Dataset {
    let mut dataset = graphs::random(num_nodes, 5, false);
    let data: Vec<u8> = (0..num_nodes * row_bytes).map(|i| (i * 7 + i / 251) as u8).collect();
    dataset.features = Some(FeatureMatrix::U8 { data: data.into(), dim: row_bytes });
    dataset
}

/// Runs the test `in_a_process_of_its_own` as this part, on an emulation with these settings.
#[track_caller]
pub(crate) fn run(part: &str, settings: &str) {
    let late = std::env::var("MORPHGL_EMULATION").is_ok_and(|words| words.split(',').any(|word| word == "late"));
    let settings = format!("{}{settings}", if late { "late," } else { "" });
    let mut command = Command::new(std::env::current_exe().expect("the program has a path"));
    command.args(["--exact", "in_a_process_of_its_own", "--nocapture", "--test-threads", "1"]);
    let output = command.env("MORPHGL_TEST_PART", part).env("MORPHGL_EMULATION", &settings).output();
    let output = output.expect("the program starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("the part is done"), "{part} with {settings}: {text}");
}
