//! Lists cached on several devices. Number of devices and peer access are settings of the emulation: each test runs in a process of its own.
#![cfg(feature = "emulate")]

mod common;

use std::process::Command;

use common::{expected, host};
use morphgl_batching_cuda_neighbor::{CudaSampler, NEIGHBOR, TopologyPlacement};
use morphgl_conformance::batching::{Case, graphs};
use morphgl_cuda::{Device, accelerators};
use morphgl_registry::{BatchId, Batching, Machine, PairSettings, Pick, Place, Sampling, ShadowSettings, WalkSettings};
use serde_json::{Value, json};

#[test]
#[allow(clippy::print_stdout, reason = "the parent process reads it")]
fn in_a_process_of_its_own() {
    match std::env::var("MORPHGL_TEST_PART").as_deref() {
        Ok("lists") => lists(),
        Ok("apart") => apart(),
        _ => return,
    }
    println!("the part is done");
}

/// Runs a part on an emulation with these settings.
#[track_caller]
fn run(part: &str, settings: &str) {
    let late = std::env::var("MORPHGL_EMULATION").is_ok_and(|words| words.split(',').any(|word| word == "late"));
    let settings = format!("{}{settings}", if late { "late," } else { "" });
    let mut command = Command::new(std::env::current_exe().expect("the program has a path"));
    command.args(["--exact", "in_a_process_of_its_own", "--nocapture", "--test-threads", "1"]);
    let output = command.env("MORPHGL_TEST_PART", part).env("MORPHGL_EMULATION", &settings).output();
    let output = output.expect("the program starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("the part is done"), "{part} with {settings}: {text}");
}

#[test]
fn samplers_of_all_devices_share_their_lists() {
    for devices in 1..=3 {
        run("lists", &format!("devices={devices}"));
    }
}

#[test]
fn inaccessible_devices_are_refused() {
    run("apart", "devices=3,apart=0-2");
}

fn places() -> Vec<Place> {
    accelerators(&Machine::probe()).into_iter().map(|a| a.place).collect()
}

fn sampler(case: &Case, place: &Place, options: &Value) -> CudaSampler {
    CudaSampler::new(&case.context(place.clone(), options.clone())).expect("the case is valid")
}

/// n samplers hold n times as many lists as one, each on one device, and sample what the reference does; a second sampler takes tables
/// alone, and the memory is free again with the last one.
fn lists() {
    let places = places();
    let num_devices = places.len() as u64;
    let devices: Vec<Device> =
        places.iter().map(|place| Device::open(place, &NEIGHBOR.key).expect("the device is available")).collect();
    let free = || devices.iter().map(|device| device.free_bytes().expect("a number")).collect::<Vec<u64>>();
    for (weights, pick, order) in
        [(false, Pick::Uniform, "nodes"), (true, Pick::Uniform, "pages"), (true, Pick::Weighted, "nodes")]
    {
        let case = Case::new(graphs::random(900, 200, weights)).with_hops(|h| h.pick = pick);
        let (node, edge) = if weights { (16, 8) } else { (12, 4) };
        let tables = node * 900;
        let rows = edge * case.dataset.topology.num_edges() / 5;
        let bytes = tables + rows;
        let options = json!({"topology": "cached", "topology_bytes": bytes, "order": order, "peers": "all", "cache": "in-degree"});
        let empty = free();
        let mut samplers = Vec::new();
        for (i, place) in places.iter().enumerate() {
            let before = free();
            let made = sampler(&case, place, &options);
            assert_eq!(made.topology(), TopologyPlacement::Cached);
            assert!(made.topology_bytes() <= tables + rows && made.topology_bytes() > tables + rows * 9 / 10);
            let taken: Vec<u64> = before.iter().zip(free()).map(|(before, after)| before - after).collect();
            for (device, &taken) in taken.iter().enumerate() {
                let lists = if i == 0 { rows * 9 / 10..rows * 5 / 4 + 4096 } else { 0..4096 };
                let own = if device == i { tables..tables * 5 / 4 + 16_384 } else { 0..1 };
                let range = lists.start + own.start..lists.end + own.end;
                assert!(range.contains(&taken), "sampler {i}: {taken} bytes of device {device}, {range:?}");
            }
            samplers.push(made);
        }
        // n devices hold n times the lists of one: 3 of 5 parts of the neighbours are read from devices by three.
        for sampler in &samplers {
            let mut worker = sampler.worker(1).expect("a worker");
            for index in 0..sampler.num_batches() as u32 {
                let id = BatchId { epoch: 3, index };
                let batch = worker.prepare(id, None).and_then(|h| h.wait()).expect("a mini-batch").0;
                assert_eq!(host(&batch), expected(&case, id), "{num_devices} devices, {options}");
            }
        }
        // The lists stay as long as a sampler reads them.
        let last = samplers.pop().expect("a sampler");
        drop(samplers);
        let mut worker = last.worker(1).expect("a worker");
        let id = BatchId { epoch: 4, index: 0 };
        let batch = worker.prepare(id, None).and_then(|h| h.wait()).expect("a mini-batch").0;
        assert_eq!(host(&batch), expected(&case, id));
        drop((batch, worker, last));
        assert_eq!(free(), empty, "the memory is free again");
    }
    // Subgraphs and walks read lists on every device, too.
    let hops = Case::new(graphs::random(900, 200, false));
    let shadow = ShadowSettings { hops: hops.settings.sampling.hops().expect("fanouts").clone(), layers: 2 };
    let pairs: Vec<[u32; 2]> = (0..300).map(|v| [7 * v % 900, v % 5]).collect();
    for case in [
        hops.with(|s| s.sampling = Sampling::Shadow(shadow)),
        hops.with(|s| s.sampling = Sampling::Walk(WalkSettings::of_layers(2))),
        // The rows that lose edges are one more part.
        hops.with(|s| s.batch_size = 100).of_pairs(&pairs, PairSettings::default()),
    ] {
        let bytes = 12 * 900 + 4 * case.dataset.topology.num_edges() / 5;
        let options = json!({"topology": "cached", "topology_bytes": bytes, "peers": "all", "cache": "in-degree"});
        let samplers: Vec<CudaSampler> = places.iter().map(|place| sampler(&case, place, &options)).collect();
        for sampler in &samplers {
            let id = BatchId { epoch: 3, index: 1 };
            let made = sampler.worker(1).and_then(|mut worker| worker.prepare(id, None)?.wait()).expect("a mini-batch");
            assert_eq!(host(&made.0), expected(&case, id), "{num_devices} devices, {}", case.settings.sampling);
        }
    }
}

/// An inaccessible peer is an error that names the accessible ones.
fn apart() {
    let case = Case::new(graphs::random(60, 9, false));
    let options = |peers: Value| json!({"topology": "cached", "peers": peers});
    for (peers, cure) in
        [(json!(["cuda:2"]), "give []"), (json!("all"), "[\"cuda:1\"]"), (json!(["cuda:0"]), "leave it out")]
    {
        let context = case.context("cuda:0".parse().expect("a place"), options(peers));
        let error = CudaSampler::new(&context).expect_err("refused").to_string();
        assert!(error.contains("options: peers: cuda:") && error.ends_with(cure), "{error}");
    }
    let context = case.context("cuda:0".parse().expect("a place"), options(json!(["cuda:1"])));
    CudaSampler::new(&context).expect("the peer is accessible");
}
