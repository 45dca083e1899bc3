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

    // Operators of one graph have one topology on the device.
    let case = Case::new(graphs::random(500, 40, false));
    let (first, before) = (sampler(&case, Value::Null), device().free_bytes().expect("the driver says it"));
    let second = sampler(&case, Value::Null);
    let after = device().free_bytes().expect("the driver says it");
    assert_eq!((first.topology(), second.topology()), (Topologies::Device, Topologies::Device));
    assert!(before - after < first.topology_bytes() / 2, "{} bytes for the second operator", before - after);
}
