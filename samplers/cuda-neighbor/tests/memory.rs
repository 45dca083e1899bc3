//! Memory that comes back. One test, so that nobody else takes any at the same time: all of a process share the device.

mod common;

use common::{available, forms, sampler};
use morphgl_batching_cuda_neighbor::{KEY, Topologies};
use morphgl_conformance::batching::{Case, graphs};
use morphgl_cuda::{Device, statistics};
use morphgl_registry::{BatchId, Batching, MiniBatch, Pick};
use serde_json::{Value, json};

fn device() -> Device {
    Device::open(&"cuda:0".parse().expect("a place"), &KEY).expect("it is available")
}

/// An epoch that was made before is made again in the memory there is, with mini-batches held meanwhile.
#[track_caller]
fn check(case: &Case, options: Value) {
    let sampler = sampler(case, options.clone());
    let mut worker = sampler.worker(1).expect("a worker");
    let (device, mut before) = (device(), 0);
    let mut held: Vec<MiniBatch> = Vec::new();
    for epoch in [0, 1, 2, 0] {
        before = statistics(&device).allocations;
        for index in 0..sampler.num_batches() as u32 {
            let recycled = if held.len() == 4 { Some(held.remove(0)) } else { None };
            let handle = worker.prepare(BatchId { epoch, index }, recycled).expect("queued");
            held.push(handle.wait().expect("a mini-batch").0);
        }
    }
    assert_eq!(
        statistics(&device).allocations - before,
        0,
        "blocks of memory for an epoch that was made before, {options}"
    );
}

/// What the memory governor is told is what the device lacks: for mini-batches of bounds, however large they came out, for
/// scratch memory, orders and the topology.
#[cfg(feature = "emulate")]
#[track_caller]
fn told(case: &Case, options: Value) {
    let device = device();
    let free = || device.free_bytes().expect("the driver says it");
    let before = free();
    let sampler = sampler(case, options.clone());
    let mut worker = sampler.worker(1).expect("a worker");
    let mut held = Vec::new();
    for index in 0..sampler.num_batches() as u32 {
        for epoch in 0..3 {
            held.push(worker.prepare(BatchId { epoch, index }, None).and_then(|h| h.wait()).expect("a mini-batch").0);
        }
    }
    held.truncate(4);
    let bytes = |batch: &MiniBatch| match batch {
        MiniBatch::Device(batch) => batch.num_bytes().expect("it says it"),
        MiniBatch::Host(_) => panic!("it lies on the device"),
    };
    let batches: u64 = held.iter().map(bytes).sum();
    let copies: usize = held.iter().map(|batch| common::host(batch).num_bytes()).sum();
    assert!(batches > copies as u64, "{batches} bytes of {copies}: room for what might have come out");
    let beside = worker.num_bytes().expect("it says it");
    assert!(beside > sampler.topology_bytes(), "{beside}");
    assert_eq!(before - free(), batches + beside, "{options}, {:?}", case.settings);
}

#[test]
fn memory_comes_back() {
    if !available() {
        return;
    }
    let case = Case::new(graphs::random(600, 9, true)).with(|s| s.batch_size = 20);
    for options in forms(&case) {
        check(&case, options);
    }
    check(&case.with(|s| s.pick = Pick::Weighted), Value::Null);
    let all = case.with(|s| s.fanouts = "-1,40".parse().expect("fanouts"));
    check(&all, Value::Null);
    check(&all, json!({"hop_bytes": 3000}));

    #[cfg(feature = "emulate")]
    {
        forms(&case).into_iter().for_each(|options| told(&case, options));
        told(&case.with(|s| s.pick = Pick::Weighted), Value::Null);
        told(&case.with(|s| s.fanouts = "-1,40".parse().expect("fanouts")), Value::Null);
        told(&case.with(|s| s.shuffle = false), Value::Null);
    }

    // Operators of one graph have one topology on the device.
    let case = Case::new(graphs::random(500, 40, false));
    let (first, before) = (sampler(&case, Value::Null), device().free_bytes().expect("the driver says it"));
    let second = sampler(&case, Value::Null);
    let after = device().free_bytes().expect("the driver says it");
    assert_eq!((first.topology(), second.topology()), (Topologies::Device, Topologies::Device));
    assert!(before - after < first.topology_bytes() / 2, "{} bytes for the second operator", before - after);
}
