//! The gather by the host: the suite of phase Transferring, and what it moves.

mod common;

use std::sync::Arc;

use common::{place, stream, upload, with_rows};
use morphgl_conformance::available;
use morphgl_conformance::batching::{Case, reference};
use morphgl_conformance::transferring;
use morphgl_registry::{BatchId, Counters, HostBatch, LINK_BYTES, MiniBatch, Place, Transferring, TransferringContext};
use morphgl_transferring_cuda::{HOST_GATHER, HostGather};
use serde_json::json;

#[test]
fn conforms() {
    if !available(&HOST_GATHER) {
        return;
    }
    let stream = stream();
    transferring::run_from(&HOST_GATHER, &place(), &mut |batch, _| upload(&stream, &batch));
}

fn context(case: &Case, from: Place, options: serde_json::Value) -> TransferringContext {
    TransferringContext { options, ..TransferringContext::new(Arc::clone(&case.dataset), from, place()) }
}

/// Rows of any length, more mini-batches in flight than pinned memory has room for: ids go to the host, rows to the device.
#[test]
fn ids_and_rows_are_moved_and_counted() {
    if !available(&HOST_GATHER) {
        return;
    }
    let stream = stream();
    for row_bytes in [1, 36, 500] {
        let case = Case::new(with_rows(300, row_bytes)).with(|s| s.batch_size = 20);
        for depth in [1, 3] {
            let mut operator = HostGather::new(&context(&case, place(), json!({ "depth": depth }))).expect("built");
            let mut in_flight = Vec::new();
            for index in 0..3 {
                let whole = reference::sample(&case, BatchId { epoch: 0, index });
                let lacking = HostBatch { features: None, ..whole.clone() };
                in_flight.push((whole, operator.transfer(upload(&stream, &lacking)).expect("a gather")));
            }
            for (whole, handle) in in_flight {
                let (batch, measured) = handle.measured().expect("no failure");
                let MiniBatch::Device(batch) = batch else { panic!("it is on the device") };
                assert_eq!(batch.to_host().expect("a copy"), whole);
                let bytes = (4 + row_bytes) * whole.input_nodes.len();
                assert_eq!(measured.counters, Counters::NONE.with(&LINK_BYTES, bytes as u64));
            }
        }
    }
}

#[test]
fn other_places_and_options_are_refused() {
    if !available(&HOST_GATHER) {
        return;
    }
    let case = Case::new(with_rows(10, 4));
    let refused = |from, options| HostGather::new(&context(&case, from, options)).expect_err("refused").to_string();
    assert!(refused(Place::Host, json!({})).contains("cannot go from host"));
    assert!(refused(place(), json!({"depth": 0})).contains("give 1 or more"));
    assert!(refused(place(), json!({"cache": "none"})).contains("cache"));
}
