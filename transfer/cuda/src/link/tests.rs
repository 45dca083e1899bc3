use morphgl_registry::{
    BatchFeatures, BatchId, BatchPairs, Block, DeviceBatch, GivenRows, Hardware, HostBatch, Key, Phase, Resource,
    TargetValues,
};

use super::*;
use crate::CUDA;
use crate::emulated::{EmulatedDevice, Settings};

const KEY: Key = Key::new(Phase::Transferring, Hardware::new(&[CUDA, Resource::PEER]), "Tests");

/// Two devices, which have access to each other or not.
fn devices(late: bool, apart: bool, memory: u64) -> [Device; 2] {
    let apart = if apart { vec![[0, 1]] } else { Vec::new() };
    let settings = Settings { late, apart, memory, ..Settings::default() };
    [0, 1].map(|index| Device::over(EmulatedDevice::new(index, settings.clone()), None, &KEY))
}

/// A mini-batch with every kind of array, some of them empty.
fn batch(index: u32) -> HostBatch {
    let numbers = |n: u32| (0..n).map(|i| i.wrapping_mul(0x9e37_79b9) ^ index).collect::<Vec<u32>>();
    let floats = |n: u32| numbers(n).into_iter().map(|i| i as f32).collect::<Vec<f32>>();
    let block = |weights| Block {
        num_dst: 3,
        num_src: 900,
        indptr: numbers(4),
        indices: numbers(777),
        weights,
        importance: true,
        edge_types: Some(numbers(777).into_iter().map(|number| number as u16).collect()),
        edge_ids: None,
    };
    let mut features = BatchFeatures::zeros(900, 5, morphgl_graph_store::Dtype::F32);
    let bytes: Vec<u8> = numbers(4500).into_iter().flat_map(u32::to_le_bytes).collect();
    features.resize(900, 5, morphgl_graph_store::Dtype::F32).copy_from_slice(&bytes);
    HostBatch {
        id: BatchId { epoch: 1, index },
        num_seeds: 3,
        input_nodes: numbers(900),
        degrees: floats(900),
        blocks: vec![block(Some(floats(777))), block(None)],
        features: Some(features),
        given: Some(Box::new(GivenRows {
            nodes: numbers(7),
            degrees: floats(7),
            rows: floats(70),
            inputs: vec![floats(21), floats(14)],
            version: 4,
        })),
        labels: Vec::new(),
        targets: TargetValues { width: 2, values: vec![0.5, f32::NAN, -1.0, 2.0, f32::NAN, 8.0] },
        features_by_type: Vec::new(),
        trees: None,
        pairs: Some(Box::new(BatchPairs {
            num_positives: 2,
            ends: vec![[0, 1], [1, 2], [0, 2], [1, 0]],
            edge_types: vec![3, 1, 3, 1],
        })),
    }
}

/// Mini-batches arrive as they were when they were ready, although their memory is dropped and written again at once: nothing waits
/// on the host.
#[test]
fn mini_batches_arrive_and_leave_their_memory() {
    for (late, apart, through_host) in
        [(false, false, false), (true, false, false), (true, true, false), (true, false, true)]
    {
        let [from, to] = devices(late, apart, 1 << 24);
        let link = DeviceLink::new(&from, &to, through_host).expect("a link");
        assert_eq!(link.is_direct(), !apart && !through_host);
        let [sampler, other] = [(); 2].map(|()| Stream::new(&from, false).expect("a stream"));
        let mut sent = Vec::new();
        for index in 0..6 {
            let ours = CudaBatch::upload(&sampler, &batch(index)).expect("memory");
            let (moved, num_bytes) = link.send(&ours).expect("queued");
            assert_eq!(num_bytes, batch(index).num_bytes() as u64);
            drop(ours);
            // Memory of the mini-batch that left is taken and written.
            for len in [16, 3108, 3600, 18_000] {
                let mut taken = Buffer::<u8>::new(&other, len).expect("memory");
                other.fill(&mut taken, 0xee).expect("queued");
            }
            sent.push(moved);
        }
        other.synchronize().expect("done");
        for (index, moved) in (0..).zip(&sent) {
            assert!(moved.device.is(&to));
            assert_eq!(moved.to_host().expect("a copy"), batch(index), "late {late}, apart {apart}, {through_host}");
        }
    }
}

#[test]
fn a_steady_state_takes_no_memory_from_the_driver() {
    for apart in [false, true] {
        let [from, to] = devices(true, apart, 1 << 24);
        let link = DeviceLink::new(&from, &to, false).expect("a link");
        let sampler = Stream::new(&from, false).expect("a stream");
        let mut free = Vec::new();
        for index in 0..10 {
            let ours = CudaBatch::upload(&sampler, &batch(index)).expect("memory");
            let (moved, _) = link.send(&ours).expect("queued");
            drop(ours);
            moved.ready.synchronize().expect("done");
            free.push([&from, &to].map(|device| device.driver().memory().expect("a number")[0]));
        }
        assert_eq!(free[2..], [free[2]; 8], "{free:?}");
    }
}

/// A copy that finds no memory fails, and its mini-batch stays whole.
#[test]
fn a_full_device_refuses() {
    let [from, _] = devices(true, false, 1 << 24);
    let [_, to] = devices(true, false, 20_000);
    let link = DeviceLink::new(&from, &to, false).expect("a link");
    let sampler = Stream::new(&from, false).expect("a stream");
    let ours = CudaBatch::upload(&sampler, &batch(0)).expect("memory");
    let error = link.send(&ours).expect_err("the features do not fit").to_string();
    assert!(error.starts_with("Transferring_CUDA+Peer_Tests: cuMemAlloc_v2: "), "{error}");
    assert_eq!(ours.to_host().expect("a copy"), batch(0));
}

/// A stream waits for another device's event, and only then sees its work.
#[test]
fn events_order_streams_of_two_devices() {
    let [a, b] = devices(true, false, 1 << 20);
    let [on_a, on_b] = [&a, &b].map(|device| Stream::new(device, false).expect("a stream"));
    let mut pinned = Pinned::<u8>::new(&b, 4).expect("memory");
    let mut buffer = Buffer::<u8>::new(&on_a, 4).expect("memory");
    on_a.fill(&mut buffer, 7).expect("queued");
    let copy = |pinned: &mut Pinned<u8>| {
        // SAFETY: both live until the stream is done.
        on_b.check(unsafe { b.driver().copy(on_b.id(), buffer.address(), pinned.address(), 4) }).expect("queued");
        on_b.synchronize().expect("done");
    };
    copy(&mut pinned);
    assert_eq!(pinned[..], [0xa5; 4], "no event, no order");
    on_b.wait(&on_a.record(false).expect("an event")).expect("queued");
    copy(&mut pinned);
    assert_eq!(pinned[..], [7; 4]);
}
