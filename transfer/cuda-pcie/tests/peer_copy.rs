//! The copy from another device: the suite of phase Transferring, and its counters. Number of devices and peer access are settings of
//! the emulation: each part runs in a process of its own.
#![cfg(feature = "emulate")]

mod common;

use std::sync::Arc;

use common::{run, upload, with_rows};
use morphgl_conformance::batching::{Case, reference};
use morphgl_conformance::transferring::run_from;
use morphgl_cuda::{Device, Stream, statistics};
use morphgl_registry::{
    BatchId, CACHE_HITS, CACHE_REQUESTS, Counters, HostBatch, LINK_BYTES, Measured, MiniBatch, PEER_BYTES, Place,
    Transferring, TransferringContext,
};
use morphgl_transferring_cuda::{PEER_COPY, PEER_COPY_KEY, PeerCopy, ZeroCopy};
use serde_json::{Value, json};

#[test]
#[allow(clippy::print_stdout, reason = "the parent process reads it")]
fn in_a_process_of_its_own() {
    match std::env::var("MORPHGL_TEST_PART").as_deref() {
        Ok("conforms") => conforms(),
        Ok("counters") => counters(&[json!(null), json!({"presample": 0})], false),
        Ok("counters-through-host") => counters(&[json!({"through_host": true})], true),
        Ok("counters-apart") => counters(&[json!(null)], true),
        Ok("steady") => steady(),
        Ok("refused") => refused(),
        _ => return,
    }
    println!("the part is done");
}

#[test]
fn conforms_with_peer_access_and_without() {
    run("conforms", "devices=2");
    run("conforms", "devices=2,apart=0-1");
}

#[test]
fn bytes_over_each_link_are_counted() {
    run("counters", "devices=2");
    run("counters-through-host", "devices=2");
    run("counters-apart", "devices=2,apart=0-1");
}

#[test]
fn a_steady_state_allocates_nothing() {
    run("steady", "devices=2");
    run("steady", "devices=2,apart=0-1");
}

#[test]
fn wrong_settings_are_refused_with_cures() {
    run("refused", "devices=2");
}

/// The device that samples, and the one that trains.
fn places() -> [Place; 2] {
    ["cuda:1", "cuda:0"].map(|place| place.parse().expect("a place"))
}

fn stream(place: &Place) -> Stream {
    Stream::new(&Device::open(place, &PEER_COPY_KEY).expect("the device is there"), false).expect("a stream")
}

fn context(case: &Case, from: &Place, to: &Place, options: Value) -> TransferringContext {
    TransferringContext { options, ..TransferringContext::new(Arc::clone(&case.dataset), from.clone(), to.clone()) }
}

fn conforms() {
    let [from, _] = places();
    let sampler = stream(&from);
    run_from(&PEER_COPY, &from, &mut |batch, _| upload(&sampler, &batch));
}

/// A mini-batch as a device samples it, and with its features.
fn sampled(case: &Case, index: u32) -> (HostBatch, HostBatch) {
    let whole = reference::sample(case, BatchId { epoch: 0, index });
    (HostBatch { features: None, ..whole.clone() }, whole)
}

fn moved(operator: &mut dyn Transferring, batch: MiniBatch) -> (HostBatch, Counters) {
    let (moved, Measured { counters, .. }) =
        operator.transfer(batch).and_then(|handle| handle.measured()).expect("no failure");
    (moved.to_host().expect("a copy").into_owned(), counters)
}

/// Features are counted as `Transferring_CUDA+PCIe_ZeroCopy` counts them; all else crosses the link between the devices, or that of
/// each with the host.
fn counters(options: &[Value], through_host: bool) {
    let [from, to] = places();
    let case = Case::new(with_rows(900, 100));
    let [sampler, trainer] = [&from, &to].map(stream);
    for options in options {
        let mut operator = PeerCopy::new(&context(&case, &from, &to, options.clone())).expect("both are there");
        let mut options = options.clone();
        options.as_object_mut().map(|options| options.remove("through_host"));
        let mut gather = ZeroCopy::new(&context(&case, &to, &to, options.clone())).expect("the device is there");
        for index in 0..3 {
            let (lacking, whole) = sampled(&case, index);
            let (copied, counted) = moved(&mut operator, upload(&sampler, &lacking));
            let (gathered, mut expected) = moved(&mut gather, upload(&trainer, &lacking));
            assert_eq!((&copied, &gathered), (&whole, &whole));
            let bytes = lacking.num_bytes() as u64;
            expected +=
                Counters::NONE.with(&PEER_BYTES, bytes).with(&LINK_BYTES, if through_host { 2 * bytes } else { 0 });
            let of =
                |counters: Counters| [PEER_BYTES, LINK_BYTES, CACHE_REQUESTS, CACHE_HITS].map(|c| counters.get(&c));
            assert_eq!(of(counted), of(expected), "{options}");
        }
    }
}

/// Memory of both devices and of the host is used again, in whatever order mini-batches are dropped.
fn steady() {
    let [from, to] = places();
    let case = Case::new(with_rows(900, 100));
    let sampler = stream(&from);
    let mut operator = PeerCopy::new(&context(&case, &from, &to, json!({"presample": 0}))).expect("both are there");
    let devices = [&from, &to].map(|place| Device::open(place, &PEER_COPY_KEY).expect("the device is there"));
    let mut settled = [0; 2];
    for round in 0..6 {
        let send = |index: u32| operator.transfer(upload(&sampler, &sampled(&case, index).0)).expect("enough memory");
        let sent: Vec<_> = (0..3).map(send).collect();
        sent.into_iter().rev().for_each(|handle| drop(handle.wait().expect("no failure")));
        let allocations = devices.each_ref().map(|device| statistics(device).allocations);
        match round {
            0..=2 => settled = allocations,
            _ => assert_eq!(allocations, settled, "in round {round}"),
        }
    }
}

fn refused() {
    let [from, to] = places();
    let case = Case::new(with_rows(30, 8));
    let refusal = |from: &Place, to: &Place, options: Value| {
        PeerCopy::new(&context(&case, from, to, options)).expect_err("refused").to_string()
    };
    for (error, expected) in [
        (refusal(&to, &to, json!(null)), "it goes from one device to another, and both are cuda:0; give two"),
        (refusal(&Place::Host, &to, json!(null)), "it runs on CUDA devices, not at host; give cuda:0"),
        (refusal(&from, &Place::Host, json!(null)), "it runs on CUDA devices, not at host; give cuda:0"),
        (refusal(&from, &to, json!({"through_host": 1})), "options: through_host: "),
        (refusal(&from, &to, json!({"host_bytes": 1})), "give none, and features in memory"),
        (refusal(&from, &to, json!({"lines": 0})), "lines: with none in flight no row is read; give at least 1"),
    ] {
        assert!(error.starts_with("Transferring_CUDA+PCIe+Peer_Copy: ") && error.contains(expected), "{error}");
    }
    let mut operator = PeerCopy::new(&context(&case, &from, &to, json!(null))).expect("both are there");
    let trainer = stream(&to);
    let (lacking, _) = sampled(&case, 0);
    let error = operator.transfer(upload(&trainer, &lacking)).expect_err("it lies on the other device").to_string();
    assert!(error.contains("expected on the device at cuda:1, lies at cuda:0"), "{error}");
}
