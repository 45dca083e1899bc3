//! Reuse and accounting of memory. A single test, since all tests of a process share the device and its statistics.

mod common;

use common::{available, placements, reordered, sampler};
use morphgl_batching_cuda_neighbor::NEIGHBOR;
#[cfg(feature = "emulate")]
use morphgl_batching_cuda_neighbor::TopologyPlacement;
use morphgl_conformance::batching::{Case, graphs};
use morphgl_cuda::{Device, statistics};
use morphgl_registry::{
    BatchId, Batching, CustomSettings, MiniBatch, PairSettings, Pick, Sampling, ShadowSettings, WalkSettings,
};
use morphgl_sampler_core::TYPED;
use serde_json::{Value, json};

fn device() -> Device {
    Device::open(&"cuda:0".parse().expect("a place"), &NEIGHBOR.key).expect("the device is available")
}

/// Maximum number of epochs until one allocates nothing. Where the host queries sizes, the largest hop may come last in the third
/// epoch, and mini-batches alive then have smaller buffers. On a real device, timing decides how many pinned blocks have copies in
/// flight at once, so a later epoch may need one more block than those before.
const EPOCHS: u32 = if cfg!(feature = "emulate") { 6 } else { 32 };

/// A repeated epoch allocates nothing, while four mini-batches are alive.
#[track_caller]
fn check(case: &Case, options: Value) {
    let sampler = sampler(case, options.clone());
    let mut worker = sampler.worker(1).expect("a worker");
    let (device, mut alive) = (device(), Vec::new());
    let mut allocates = |epoch: u32| {
        let before = statistics(&device).allocations;
        for index in 0..sampler.num_batches() as u32 {
            let recycled: Option<MiniBatch> = if alive.len() == 4 { Some(alive.remove(0)) } else { None };
            let handle = worker.prepare(BatchId { epoch, index }, recycled).expect("queued");
            alive.push(handle.wait().expect("a mini-batch").0);
        }
        statistics(&device).allocations > before
    };
    for epoch in 0..3 {
        allocates(epoch);
    }
    assert!((3..EPOCHS).any(|epoch| !allocates(epoch % 3)), "every repeated epoch allocates, {options}");
}

/// Reported bytes equal the decrease of free device memory: for mini-batches the capacity by bounds, whatever their size,
/// and for scratch memory, orders and the topology.
#[cfg(feature = "emulate")]
#[track_caller]
fn check_reported_bytes(case: &Case, options: Value) {
    let device = device();
    let free = || device.free_bytes().expect("the driver answers");
    let before = free();
    let sampler = sampler(case, options.clone());
    let mut worker = sampler.worker(1).expect("a worker");
    let mut batches = Vec::new();
    for index in 0..sampler.num_batches() as u32 {
        for epoch in 0..3 {
            batches
                .push(worker.prepare(BatchId { epoch, index }, None).and_then(|h| h.wait()).expect("a mini-batch").0);
        }
    }
    batches.truncate(4);
    let bytes = |batch: &MiniBatch| match batch {
        MiniBatch::Device(batch) => batch.num_bytes().expect("a number"),
        MiniBatch::Host(_) => panic!("the mini-batch is on the device"),
    };
    let capacity: u64 = batches.iter().map(bytes).sum();
    let copies: usize = batches.iter().map(|batch| common::host(batch).num_bytes()).sum();
    assert!(capacity > copies as u64, "{capacity} bytes of capacity, {copies} of content");
    let worker_bytes = worker.num_bytes().expect("a number");
    let topology = sampler.allocated_bytes();
    assert!(topology >= sampler.topology_bytes(), "{topology}");
    assert_eq!(before - free(), capacity + worker_bytes + topology, "{options}, {:?}", case.settings);
}

#[test]
fn memory_is_reused_and_accounted() {
    if !available() {
        return;
    }
    let case = Case::new(graphs::random(600, 9, true)).with(|s| s.batch_size = 20);
    for case in [&case, &reordered(&case)] {
        placements(case).into_iter().for_each(|options| check(case, options));
    }
    check(&case.with_hops(|h| h.pick = Pick::Weighted), Value::Null);
    let all = case.with_fanouts("-1,40");
    check(&all, Value::Null);
    check(&all, json!({"hop_bytes": 3000}));
    let hops = case.settings.sampling.hops().expect("fanouts").clone();
    let subgraphs = [1, 2, 4].map(|layers| Sampling::Shadow(ShadowSettings { hops: hops.clone(), layers }));
    let walks = [(2, 5, 2), (2, 60, 3), (1, 1000, 4)];
    let walks = walks.map(|(layers, walks, length)| {
        Sampling::Walk(WalkSettings { walks, length, ..WalkSettings::of_layers(layers) })
    });
    let few: Vec<u32> = (0..50).collect();
    let others = subgraphs.into_iter().chain(walks);
    let others: Vec<Case> =
        others.map(|sampling| case.of(&few).with(|s| (s.sampling, s.batch_size) = (sampling, 5))).collect();
    for case in &others {
        check(case, Value::Null);
        check(case, json!({"hop_bytes": 3000}));
    }
    // Pairs of hubs, whose rows lose edges in most mini-batches, and single edges.
    let hub: Vec<[u32; 2]> = (0..300).map(|v| [2 * v, v % 3]).collect();
    let settings = PairSettings { negatives: 2, ..PairSettings::default() };
    let hub = case.with(|s| s.batch_size = 40).of_pairs(&hub, settings);
    let walk = WalkSettings { walks: 5, ..WalkSettings::of_layers(2) };
    let pairs = [
        hub.clone(),
        hub.with_hops(|h| h.pick = Pick::Weighted),
        hub.with(|s| s.sampling = Sampling::Shadow(ShadowSettings { hops: hops.clone(), layers: 2 })),
        hub.with(|s| s.sampling = Sampling::Walk(walk)),
        case.with(|s| s.batch_size = 300).of_edges(settings),
    ];
    pairs.iter().for_each(|case| check(case, Value::Null));
    // By edge type, in trees, and within times.
    let by_type = |case: &Case, temporal: &str, pick| {
        let mut hops = case.settings.sampling.hops().expect("fanouts").clone();
        (hops.fanouts, hops.pick) = ("3,40".parse().expect("fanouts"), pick);
        let settings = [("temporal".to_string(), temporal.into())].into_iter().collect();
        let custom = CustomSettings { kind: TYPED.name.to_string(), layers: 2, hops: Some(hops), settings };
        case.with(|s| s.sampling = Sampling::Custom(custom))
    };
    let typed = Case::new(graphs::timed(&graphs::typed(120, 6, true), false, true)).with(|s| s.batch_size = 10);
    let typed = [
        by_type(&typed, "no", Pick::Uniform),
        by_type(&typed, "uniform", Pick::Weighted),
        by_type(&typed, "last", Pick::Uniform),
        by_type(&typed.with(|s| s.batch_size = 90).of_edges(settings), "uniform", Pick::Uniform),
    ];
    for case in &typed {
        check(case, Value::Null);
        check(case, json!({"hop_bytes": 3000}));
    }

    #[cfg(feature = "emulate")]
    {
        placements(&case).into_iter().for_each(|options| check_reported_bytes(&case, options));
        check_reported_bytes(&case.with_hops(|h| h.pick = Pick::Weighted), Value::Null);
        check_reported_bytes(&case.with_fanouts("-1,40"), Value::Null);
        check_reported_bytes(&case.with(|s| s.shuffle = false), Value::Null);
        for case in &others {
            placements(case).into_iter().for_each(|options| check_reported_bytes(case, options));
        }
        for case in &typed {
            for topology in ["device", "host", "cached"] {
                check_reported_bytes(case, json!({"topology": topology, "topology_bytes": 25_000}));
            }
        }
        for case in &pairs {
            placements(case).into_iter().for_each(|options| check_reported_bytes(case, options));
        }
        let case = reordered(&case);
        placements(&case).into_iter().for_each(|options| check_reported_bytes(&case, options));
        check_sharing();
    }
}

/// Operators on one graph share its topology. Checked on the emulated device alone: a driver's free memory changes by whole pages.
#[cfg(feature = "emulate")]
fn check_sharing() {
    let case = Case::new(graphs::random(500, 40, false));
    let (first, before) = (sampler(&case, Value::Null), device().free_bytes().expect("the driver answers"));
    let second = sampler(&case, Value::Null);
    let after = device().free_bytes().expect("the driver answers");
    assert_eq!((first.topology(), second.topology()), (TopologyPlacement::Device, TopologyPlacement::Device));
    assert!(before - after < first.topology_bytes() / 2, "{} bytes for the second operator", before - after);

    // So does one that asks for no cache, as for evaluation, whatever rows are cached; another policy caches other ones.
    let case = Case::new(graphs::random(500, 8, false));
    let budget = 12 * 500 + case.dataset.topology.num_edges();
    let free = || device().free_bytes().expect("the driver answers");
    let cached = sampler(&case, json!({"cache": "in-degree", "topology_bytes": budget}));
    let before = free();
    let evaluating = sampler(&case, json!({"topology_bytes": budget}));
    assert_eq!((evaluating.topology_bytes(), free()), (cached.topology_bytes(), before));
    let other = sampler(&case, json!({"cache": "out-degree", "topology_bytes": budget}));
    assert!(before - free() >= other.topology_bytes(), "{} bytes for another policy", before - free());
}
