//! Properties of the simulation: durations, capacity, independent copies, refused places.

use std::time::Duration;

use morphgl_conformance::batching::{Case, graphs, reference};
use morphgl_registry::{
    BatchId, Counters, DeviceBatch, HostBatch, LINK_BYTES, MiniBatch, PEER_BYTES, Transferring, TransferringContext,
};
use morphgl_sim::{Device, SimBatch};
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
