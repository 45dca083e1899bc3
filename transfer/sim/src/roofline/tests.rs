use morphgl_registry::Place;

use super::*;

fn machine() -> MachineDescription {
    let text = "
        name = 'm'
        [host]
        cores = 4
        memory_gb = 16
        bandwidth_gb_per_s = 40
        sampling_m_edges_per_s = 50
        gflop_per_s = 100
        [[link]]
        name = 'switch'
        gb_per_s = 10
        latency_us = 5
        [[device]]
        name = 'd'
        count = 2
        link = 'switch'
        memory_gb = 8
        bandwidth_gb_per_s = 400
        tflop_per_s = 10
        sampling_m_edges_per_s = 1000
        launch_us = 20
    ";
    MachineDescription::parse("m", text).expect("valid")
}

#[track_caller]
fn is(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-12, "{found}, expected {expected}");
}

#[test]
fn seconds_are_the_formulas_by_hand() {
    let m = machine();
    let d = &m.devices[0];
    // 1e6 edges at 50 M/s; 1 MB read and written at a quarter of 40 GB/s.
    is(m.host_batching(1e6, 1e6), 0.02 + 2e6 / 1e10);
    is(m.device_batching(d, 1e6, 4_000_000_000).expect("it samples"), 20e-6 + 1e-3);
    // A topology above half of its memory is read over the link: 32 MB at 10 GB/s.
    is(m.device_batching(d, 1e6, 4_000_000_001).expect("it samples"), 20e-6 + 5e-6 + 3.2e-3);
    is(m.copying(d, 1e8), 5e-6 + 0.01);
    // 100 bytes are four sectors.
    is(m.gathering(d, 1e6, 100), 20e-6 + 5e-6 + 128e6 / 1e10);
    // 4 MB of ids and 100 MB of rows at 10 GB/s, which a core reads and writes.
    is(m.host_gathering(d, 1e6, 100), 10e-6 + 104e6 / 1e10 + 2e8 / 1e10);
    is(m.device_training(d, StepWork { flops: 5e10, bytes: 1.0 }), 20e-6 + 5e10 / 5e12);
    is(m.device_training(d, StepWork { flops: 1.0, bytes: 4e9 }), 20e-6 + 0.01);
    is(m.host_training(2, StepWork { flops: 1e9, bytes: 1.0 }), 1e9 / 1e11);
    is(m.host_training(9, StepWork { flops: 1.0, bytes: 4e8 }), 0.01);
    let trains_only = DeviceDescription { sampling_m_edges_per_s: None, ..d.clone() };
    assert_eq!(m.device_batching(&trains_only, 1.0, 1), None);
}

#[test]
fn a_ring_is_as_fast_as_its_slowest_end() {
    let m = machine();
    let [first, second] = [0, 1].map(crate::machine::place);
    is(m.all_reduce(&[first.clone(), second.clone()], 1e8), 2.0 * (5e7 / 1e10 + 5e-6));
    let peers = MachineDescription { peer_gb_per_s: Some(50.0), ..m.clone() };
    is(peers.all_reduce(&[first.clone(), second.clone()], 1e8), 2.0 * 5e7 / 5e10);
    // The host has no peer connection.
    is(peers.all_reduce(&[Place::Host, first, second], 1e8), 4.0 * (1e8 / 3.0 / 1e10 + 5e-6));
    assert_eq!(m.all_reduce(&[Place::Host], 1e8), 0.0);
}

#[test]
fn devices_in_use_at_once_divide_their_link() {
    let m = machine();
    let shared = m.in_use_by_all();
    is(shared.copying(&shared.devices[0], 1e8), 5e-6 + 0.02);
    assert_eq!(shared.devices, m.devices);
}
