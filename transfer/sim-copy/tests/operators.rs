//! Properties of the simulation: durations, capacity, independent copies, refused places.

use std::time::Duration;

use morphgl_conformance::batching::{Case, graphs, reference};
use morphgl_hotness::{InDegree, Policy, hottest};
use morphgl_registry::{
    BatchId, CACHE_HITS, CACHE_REQUESTS, Counters, DeviceBatch, HostBatch, LINK_BYTES, MiniBatch, PEER_BYTES,
    Transferring, TransferringContext,
};
use morphgl_row_cache::NodeMap;
use morphgl_sim::{Device, MachineDescription, SimBatch};
use morphgl_transferring_sim_copy::{COPY_KEY, GATHER_KEY, SimCopy, SimDma, SimGather};

fn device(config: &str) -> Device {
    Device::new("sim:0".parse().expect("a place"), config.parse().expect("a configuration"))
}

fn case() -> Case {
    Case::new(graphs::random(120, 7, false))
}

fn batch(index: u32) -> HostBatch {
    reference::sample(&case(), BatchId { epoch: 0, index })
}

fn context(from: &str, to: &str) -> TransferringContext {
    let place = |p: &str| p.parse().expect("a place");
    let (dataset, options) = (case().dataset, Default::default());
    TransferringContext { dataset, from: place(from), to: place(to), gather: true, sampled: None, options }
}

fn dma(device: &Device) -> SimDma {
    SimDma::new(&context("host", "sim:0"), device).expect("built")
}

fn moved(operator: &mut dyn Transferring, batch: MiniBatch) -> (MiniBatch, Duration) {
    operator.transfer(batch).and_then(|h| h.wait()).expect("transferred")
}

#[test]
fn operators_occupy_the_resources_of_their_keys() {
    let device = device("transferring-pcie=25ms,transferring-device=35ms");
    let (copied, took) = moved(&mut dma(&device), MiniBatch::Host(batch(0)));
    assert!(took >= Duration::from_millis(25), "{took:?}");
    let s = device.statistics();
    assert_eq!((s.pcie.operations, s.sim.operations), (1, 0), "a copy occupies only the link");
    let mut gather = SimGather::new(&context("sim:0", "sim:0"), &device).expect("built");
    let (_, took) = moved(&mut gather, copied);
    assert!(took >= Duration::from_millis(35), "{took:?}");
    let s = device.statistics();
    assert_eq!((s.pcie.operations, s.sim.operations), (2, 1), "a gather occupies both");
    assert!(s.sim.busy >= Duration::from_millis(35) && s.pcie.busy >= Duration::from_millis(60), "{s:?}");
}

#[test]
fn exceeding_the_memory_is_an_error_and_memory_is_reused() {
    let device = device("transferring-pcie=0s,memory=2");
    let mut dma = dma(&device);
    let copies: Vec<_> = (0..2).map(|i| moved(&mut dma, MiniBatch::Host(batch(i))).0).collect();
    let error = dma.transfer(MiniBatch::Host(batch(2))).and_then(|h| h.wait()).expect_err("two mini-batches fit");
    assert_eq!(
        error.to_string(),
        "Transferring_PCIe_SimDma, mini-batch 2 of epoch 0: simulated device memory: 2 mini-batches fit, and this is \
         one more; plan with a smaller device buffer"
    );
    drop(copies);
    for i in 0..3 {
        let (copied, _) = moved(&mut dma, MiniBatch::Host(batch(i)));
        let MiniBatch::Device(copied) = copied else { panic!("the mini-batch is on the device") };
        assert_eq!(copied.to_host().expect("intact"), batch(i), "in reused memory");
    }
    assert_eq!((device.statistics().memory_used, device.statistics().memory_peak), (0, 2));
}

#[test]
fn a_mix_up_of_buffers_is_detected_at_the_next_use() {
    let device = device("transferring-device=0s");
    let mut ours = SimBatch::copy(&device, &GATHER_KEY, &batch(1)).expect("memory");
    let other = batch(2);
    ours.tamper(|content| *content = other).expect("no reader");
    let mut gather = SimGather::new(&context("sim:0", "sim:0"), &device).expect("built");
    let error = gather.transfer(ours.into_batch()).and_then(|h| h.wait()).expect_err("the content differs");
    assert_eq!(
        error.to_string(),
        "mini-batch 1 of epoch 0: content was mixed up in simulated device memory: its buffer holds mini-batch 2 of epoch 0"
    );
    let mut ours = SimBatch::copy(&device, &GATHER_KEY, &batch(1)).expect("memory");
    ours.tamper(|content| content.input_nodes.swap(0, 1)).expect("no reader");
    let error = ours.to_host().expect_err("the content differs").to_string();
    assert!(error.ends_with("its buffer holds mini-batch 1 of epoch 0 with other bytes than it came with"), "{error}");
}

#[test]
fn a_buffer_with_readers_is_not_written() {
    let device = device("");
    let mut ours = SimBatch::copy(&device, &GATHER_KEY, &HostBatch { features: None, ..batch(0) }).expect("memory");
    let reader = ours.clone();
    let dataset = case().dataset;
    let matrix = dataset.features.as_ref().expect("the graph has features");
    let error = ours.gather(matrix).expect_err("the buffer has a reader").to_string();
    assert_eq!(
        error,
        "mini-batch 0 of epoch 0: its buffer is still read by work that is under way; wait for that first"
    );
    drop(reader);
    ours.gather(matrix).expect("no reader");
    assert_eq!(ours.to_host().expect("intact"), batch(0));
}

#[test]
fn other_places_are_refused() {
    let device = device("");
    let refused = |error: morphgl_registry::Error| error.to_string();
    let wrong = SimDma::new(&context("host", "sim:1"), &device).expect_err("another device");
    assert_eq!(
        refused(wrong),
        "Transferring_PCIe_SimDma: it goes from host to sim:0, not from host to sim:1; give these places"
    );
    assert!(SimGather::new(&context("host", "sim:0"), &device).is_err());
    let on_device = SimBatch::copy(&device, &GATHER_KEY, &batch(0)).expect("memory").into_batch();
    assert!(dma(&device).transfer(on_device).is_err(), "it reads host memory");
    let mut gather = SimGather::new(&context("sim:0", "sim:0"), &device).expect("built");
    let error = gather.transfer(MiniBatch::Host(batch(0))).expect_err("it reads device memory");
    assert_eq!(refused(error), "mini-batch 0 of epoch 0: expected on the simulated device at sim:0, lies at host");
}

/// Two devices of a configuration, and a copy from the second to the first.
fn pair(config: &str) -> (Device, Device, SimCopy) {
    let [to, from] = ["sim:0", "sim:1"]
        .map(|place| Device::new(place.parse().expect("a place"), config.parse().expect("a configuration")));
    let copy = SimCopy::new(&context("sim:1", "sim:0"), &from, &to).expect("built");
    (to, from, copy)
}

#[test]
fn a_copy_between_devices_occupies_both_links_and_frees_its_source() {
    let (to, from, mut copy) = pair("transferring-peer=30ms,memory=1");
    let sampled = HostBatch { features: None, ..batch(0) };
    for _ in 0..2 {
        // Each device has memory for one mini-batch.
        let ours = SimBatch::copy(&from, &COPY_KEY, &sampled).expect("the mini-batch before has left").into_batch();
        let handle = copy.transfer(ours).expect("queued");
        let (moved, measured) = handle.measured().expect("moved");
        assert!(measured.busy >= Duration::from_millis(30), "{measured:?}");
        let features = batch(0).num_bytes() - sampled.num_bytes();
        let counters = Counters::NONE.with(&PEER_BYTES, sampled.num_bytes() as u64).with(&LINK_BYTES, features as u64);
        assert_eq!(measured.counters, counters);
        assert_eq!(moved.to_host().expect("intact").into_owned(), batch(0));
        assert_eq!((from.statistics().memory_used, to.statistics().memory_used), (0, 1));
    }
    let [s, t] = [&from, &to].map(Device::statistics);
    assert_eq!([s.peer, t.peer].map(|link| link.operations), [2, 2], "the links of both");
    assert_eq!([s.pcie.operations, s.sim.operations], [0, 0], "the device that sampled goes on");
    assert_eq!([t.pcie.operations, t.sim.operations], [2, 2], "features are gathered where they are read");
}

#[test]
fn copies_in_opposite_directions_do_not_wait_for_each_other() {
    let (first, second, mut back) = pair("transferring-peer=1ms,memory=8");
    let mut there = SimCopy::new(&context("sim:0", "sim:1"), &first, &second).expect("built");
    for _ in 0..100 {
        let [a, b] = [&first, &second].map(|d| SimBatch::copy(d, &COPY_KEY, &batch(0)).expect("memory").into_batch());
        let handles = [there.transfer(a), back.transfer(b)].map(|handle| handle.expect("queued"));
        handles.into_iter().for_each(|handle| drop(handle.wait().expect("moved")));
    }
    assert_eq!((first.statistics().memory_used, second.statistics().memory_used), (0, 0));
}

#[test]
fn a_copy_ends_with_its_operator_while_it_waits_for_the_other_device() {
    let (to, from, mut copy) = pair("transferring-peer=0s,fault=transferring-peer:hang@0:0");
    let mut other = SimCopy::new(&context("sim:0", "sim:1"), &to, &from).expect("built");
    let hanging = other.transfer(SimBatch::copy(&to, &COPY_KEY, &batch(0)).expect("memory").into_batch());
    while from.statistics().hanging == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let waiting = copy.transfer(SimBatch::copy(&from, &COPY_KEY, &batch(1)).expect("memory").into_batch());
    std::thread::sleep(Duration::from_millis(20));
    drop(copy);
    let error = waiting.and_then(|handle| handle.wait()).expect_err("its operator was dropped").to_string();
    assert!(error.contains("the operator was dropped before this was done"), "{error}");
    drop(other);
    drop(hanging);
}

/// A machine of one device, of round figures.
fn machine() -> MachineDescription {
    let text = "name = \"m\"\n[host]\ncores = 1\nmemory_gb = 1\nbandwidth_gb_per_s = 1\nsampling_m_edges_per_s = 1\ngflop_per_s = 1\n\
                [[link]]\nname = \"l\"\ngb_per_s = 1\n[[device]]\nname = \"d\"\nlink = \"l\"\nmemory_gb = 1\nbandwidth_gb_per_s = 100\n\
                tflop_per_s = 1\nsampling_m_edges_per_s = 1\n";
    MachineDescription::parse("m", text).expect("a description")
}

/// The gather of a device of [`machine`], with these options.
fn described(options: serde_json::Value) -> morphgl_registry::Result<(Device, SimGather)> {
    let Case { dataset, seeds, settings, .. } = case();
    let device = Device::described("sim:0".parse().expect("a place"), machine());
    let context =
        TransferringContext { dataset, sampled: Some((seeds, settings)), options, ..context("sim:0", "sim:0") };
    let gather = SimGather::new(&context, &device)?;
    Ok((device, gather))
}

/// Hits and seconds of a gather of the whole graph's rows.
fn gathered(device: &Device, gather: &mut SimGather) -> (u64, f64) {
    let nodes: Vec<u32> = (0..case().dataset.num_nodes() as u32).collect();
    let lacking = HostBatch { features: None, input_nodes: nodes, ..HostBatch::default() };
    let ours = SimBatch::copy(device, &GATHER_KEY, &lacking).expect("memory").into_batch();
    let (_, measured) = gather.transfer(ours).expect("queued").measured().expect("gathered");
    let requests = measured.counters.get(&CACHE_REQUESTS).unwrap_or(0);
    assert!(requests == 0 || requests == lacking.input_nodes.len() as u64, "{requests}");
    (measured.counters.get(&CACHE_HITS).unwrap_or(0), measured.busy.as_secs_f64())
}

/// A cache never takes more than it may, a larger one has all rows of a smaller one, all rows need no map, and each hit is read
/// from the device's memory in place of the link.
#[test]
fn a_cache_keeps_to_its_bytes_and_its_hits_leave_the_link() {
    let (device, mut gather) = described(serde_json::Value::Null).expect("built");
    let dataset = case().dataset;
    let row_bytes = dataset.features.as_ref().expect("features").row_bytes() as u64;
    let all = dataset.num_nodes() as u64;
    let link = |rows: u64| rows as f64 * row_bytes.div_ceil(32) as f64 * 32.0 / 1e9;
    let mut before = 0;
    for bytes in (0..=all * row_bytes + 8).step_by(7).chain([all * row_bytes]) {
        gather.resize_cache(bytes).expect("ranked");
        let held = gather.cache().expect("it caches").bytes;
        assert!(held <= bytes, "{held} bytes of {bytes}");
        let (hits, seconds) = gathered(&device, &mut gather);
        assert!(hits >= before || bytes == all * row_bytes, "{hits} hits with more room than for {before}");
        let expected = link(all - hits) + 2.0 * (hits * row_bytes) as f64 / 100e9;
        assert!((seconds - expected).abs() < 2e-9, "{seconds} s, expected {expected} s");
        before = hits;
    }
    assert_eq!((before, gather.cache().map(|cache| cache.bytes)), (all, Some(all * row_bytes)), "without a map");
}

/// The rows of a cache are the first ones by pre-sampling, or by the policy that the option names.
#[test]
fn a_cache_is_filled_by_its_policy() {
    let dataset = case().dataset;
    let row_bytes = dataset.features.as_ref().expect("features").row_bytes() as u64;
    let bytes = NodeMap::num_bytes_of(dataset.num_nodes()) + 9 * row_bytes;
    let cached = |options: serde_json::Value| -> Vec<u32> {
        let (device, mut gather) = described(options).expect("built");
        gather.resize_cache(bytes).expect("ranked");
        let is_hit = |node: u32| {
            let lacking = HostBatch { features: None, input_nodes: vec![node], ..HostBatch::default() };
            let ours = SimBatch::copy(&device, &GATHER_KEY, &lacking).expect("memory").into_batch();
            let (_, measured) = gather.transfer(ours).expect("queued").measured().expect("gathered");
            measured.counters.get(&CACHE_HITS) == Some(1)
        };
        let mut is_hit = is_hit;
        (0..dataset.num_nodes() as u32).filter(|&node| is_hit(node)).collect()
    };
    let sorted = |scores: &[f32]| {
        let mut first = hottest(scores, 9);
        first.sort_unstable();
        first
    };
    let Case { seeds, settings, .. } = case();
    let degrees = InDegree.score(&dataset.topology, seeds.nodes(), &settings).expect("degrees");
    assert_eq!(cached(serde_json::json!({ "cache": "in-degree" })), sorted(&degrees.features));
    let (auto, epoch) = (cached(serde_json::Value::Null), cached(serde_json::json!({ "cache": "presample:1" })));
    assert_eq!((auto.len(), &auto), (9, &epoch), "an epoch has fewer mini-batches than auto counts at most");
    let refused = |options: serde_json::Value| described(options).expect_err("no such cache").to_string();
    assert!(refused(serde_json::json!({ "cache": "lru" })).contains("name a hotness policy"));
    let off = described(serde_json::json!({ "cache": "none" })).expect("built").1;
    assert_eq!(off.cache(), None);
    let named =
        TransferringContext { options: serde_json::json!({ "cache": "in-degree" }), ..context("sim:0", "sim:0") };
    let error = SimGather::new(&named, &device("")).expect_err("durations are configured").to_string();
    assert!(error.contains("describe a machine"), "{error}");
}
