//! The suite of phase Transferring for the copy engine's operator, on a CUDA device or the emulated one.

use std::sync::Arc;

use morphgl_conformance::available;
use morphgl_conformance::batching::{Case, graphs, reference};
use morphgl_conformance::transferring;
use morphgl_registry::{
    BatchId, Counters, DeviceBatch, Handle, LINK_BYTES, MiniBatch, Place, Transferring, TransferringContext,
};
use morphgl_transferring_cuda::{DMA, PcieDma};
use serde_json::{Value, json};

fn context(case: &Case, options: Value) -> TransferringContext {
    let to = "cuda:0".parse().expect("a place");
    TransferringContext { options, ..TransferringContext::new(Arc::clone(&case.dataset), Place::Host, to) }
}

#[test]
fn conforms() {
    if !available(&DMA) {
        return;
    }
    transferring::run(&DMA);
}

/// Bytes of given rows are counted where they cross the link, and where they lie on the device.
#[test]
fn given_rows_are_counted() {
    if !available(&DMA) {
        return;
    }
    let case = Case::new(graphs::random(120, 7, false));
    let mut operator = PcieDma::new(&context(&case, Value::Null)).expect("the device is available");
    let mut sent = |given: bool| -> (u64, Box<dyn DeviceBatch>, Counters) {
        let id = BatchId { epoch: 0, index: 1 };
        let mut batch = reference::sample_with_given(&case, id, &|_| given);
        if let Some(given) = &mut batch.given {
            given.rows = vec![0.5; given.nodes.len() * 1000];
        }
        let bytes = batch.num_bytes() as u64;
        let (moved, measured) =
            operator.transfer(MiniBatch::Host(batch)).and_then(Handle::measured).expect("no failure");
        let MiniBatch::Device(moved) = moved else { panic!("the mini-batch is on the device") };
        (bytes, moved, measured.counters)
    };
    let (without, with) = (sent(false), sent(true));
    for (bytes, moved, counters) in [&without, &with] {
        assert_eq!(counters.get(&LINK_BYTES), Some(*bytes));
        assert!(moved.num_bytes().is_some_and(|on_device| on_device >= *bytes), "{bytes} bytes sent");
    }
    assert_eq!((without.1.given_version(), with.1.given_version()), (None, Some(0)));
    assert!(with.0 > without.0, "given rows are longer than the edges that they leave out");
}

#[test]
fn invalid_settings_are_refused_with_cures() {
    if !available(&DMA) {
        return;
    }
    let case = Case::new(graphs::random(30, 3, false));
    let elsewhere = TransferringContext { from: "cuda:0".parse().expect("a place"), ..context(&case, Value::Null) };
    for (context, expected) in [
        (elsewhere, "not at cuda:0"),
        (TransferringContext { to: Place::Host, ..context(&case, Value::Null) }, "not at host"),
        (context(&case, json!({"depth": 0})), "a depth of 0"),
        (context(&case, json!({"deep": 1})), "unknown field"),
    ] {
        let error = PcieDma::new(&context).expect_err("refused").to_string();
        assert!(error.contains(expected) && error.contains("Transferring_PCIe_Dma"), "{error}");
    }
}
