//! A device lost at any call: every public function fails with an error that names the call and the operator.
#![cfg(feature = "emulate")]

use std::sync::Arc;

use morphgl_cuda::{
    Buffer, CUDA, CudaBatch, CudaFeatures, CudaRows, Device, Mapped, Pinned, Precision, Shape, ShardedBuffer, Stream,
    Transpose, emulation, pending,
};
use morphgl_graph_store::Dtype;
use morphgl_registry::{
    BatchId, Block, DeviceBatch, Error, GivenRows, Hardware, HostBatch, Key, Phase, Result, TargetValues,
};

mod common;

use common::TESTS;

const KEY: Key = Key::new(Phase::Training, Hardware::new(&[CUDA]), "Failures");

/// Part of the interface; returns the number of calls up to the last one whose outcome is reported: later ones release.
type Part = fn(&Device) -> Result<u64>;
const PARTS: [(&str, Part); 7] = [
    ("properties", properties),
    ("memory", memory),
    ("kernels", kernels),
    ("products", products),
    ("events", events),
    ("mini-batches", batches),
    ("peers", peers),
];

fn properties(device: &Device) -> Result<u64> {
    assert!(device.properties()?.memory_bytes >= device.free_bytes()?);
    Ok(emulation::calls(device))
}

fn memory(device: &Device) -> Result<u64> {
    let stream = Stream::new(device, true)?;
    let values = Arc::new(vec![7u32; 5000]);
    // SAFETY: the owner keeps the values.
    let mapped = unsafe { Mapped::new(device, Arc::clone(&values) as _, &values) }?;
    let mut there = Buffer::<u32>::new(&stream, 5000)?;
    stream.fill(&mut there, 0)?;
    stream.copy(&mapped, 0..5000, &mut there, 0)?;
    let mut back = Pinned::new(device, 5000)?;
    stream.copy(&there, 0..5000, &mut back, 0)?;
    stream.synchronize()?;
    assert_eq!(back[..], values[..]);
    Ok(emulation::calls(device))
}

fn kernels(device: &Device) -> Result<u64> {
    let stream = Stream::new(device, false)?;
    let kernel = TESTS.kernel(device, "test_half")?;
    assert!(kernel.occupancy(128, 0)? > 0);
    let mut out = Buffer::<f32>::new(&stream, 4)?;
    // SAFETY: the arguments are the kernel's.
    unsafe { stream.launch(&kernel, Shape::linear(1, 1), &mut [(&mut out).into()]) }?;
    stream.synchronize()?;
    Ok(emulation::calls(device))
}

fn products(device: &Device) -> Result<u64> {
    let stream = Stream::new(device, false)?;
    stream.prepare_products(Precision::F32)?;
    let mut a = Buffer::<f32>::new(&stream, 4)?;
    stream.fill(&mut a, 0)?;
    let mut out = Buffer::<f32>::new(&stream, 4)?;
    stream.multiply([2; 3], (&a, Transpose::No), (&a, Transpose::Yes), &mut out, (1.0, 0.0))?;
    stream.multiply([2, 2, 0], (&a, Transpose::No), (&a, Transpose::Yes), &mut out, (1.0, 0.0))?;
    stream.synchronize()?;
    Ok(emulation::calls(device))
}

fn events(device: &Device) -> Result<u64> {
    let (stream, other) = (Stream::new(device, false)?, Stream::new(device, false)?);
    let start = stream.record(true)?;
    other.wait(&start)?;
    let end = stream.record(true)?;
    end.synchronize()?;
    end.elapsed(&start)?;
    let (value, _) = pending(stream.record(true)?, stream.record(true)?, || Ok(1)).wait()?;
    assert_eq!(value, 1);
    Ok(emulation::calls(device))
}

fn batches(device: &Device) -> Result<u64> {
    let stream = Stream::new(device, false)?;
    let block = Block {
        num_dst: 1,
        num_src: 2,
        indptr: vec![0, 2],
        indices: vec![0, 1],
        weights: Some(vec![0.5, 1.5]),
        ..Block::default()
    };
    let host = HostBatch {
        id: BatchId { epoch: 0, index: 0 },
        num_seeds: 1,
        input_nodes: vec![4, 5],
        degrees: vec![2.0, 3.0],
        blocks: vec![block],
        features: None,
        given: Some(Box::new(GivenRows {
            nodes: vec![6],
            degrees: vec![1.0],
            rows: vec![0.5, -1.0],
            version: 3,
            ..GivenRows::default()
        })),
        labels: vec![1],
        targets: TargetValues { width: 2, values: vec![f32::NAN, 0.25] },
        pairs: None,
        features_by_type: Vec::new(),
        trees: None,
    };
    let mut batch = CudaBatch::upload(&stream, &host)?;
    let mut bytes = Buffer::new(&stream, 12)?;
    stream.fill(&mut bytes, 1)?;
    batch.features = Some(CudaFeatures { dim: 6, dtype: Dtype::U8, rows: CudaRows::Packed(bytes) });
    batch.ready = stream.record(false)?;
    let back = batch.to_host()?;
    assert_eq!(back.features.as_ref().map(|f| f.as_bytes().len()), Some(12));
    assert_eq!(HostBatch { features: None, ..back }, host);
    let batch = batch.into_batch();
    assert!(CudaBatch::on(device, &batch).is_ok() && CudaBatch::into_on(device, batch).is_ok());
    // Releases report nothing: the next call does.
    stream.synchronize()?;
    Ok(emulation::calls(device))
}

/// Reads memory of another device, whose calls are not counted.
fn peers(device: &Device) -> Result<u64> {
    Ok(shard(device, &self::device(500_000 + index(device)))?[0])
}

/// Work of `device` reads memory of both devices; returns the number of calls of each.
fn shard(device: &Device, peer: &Device) -> Result<[u64; 2]> {
    assert!(device.reaches(peer)?);
    let (stream, other) = (Stream::new(device, false)?, Stream::new(peer, false)?);
    let mut parts = vec![Buffer::<u32>::new(&stream, 50)?, Buffer::new(&other, 50)?];
    stream.fill(&mut parts[0], 1)?;
    other.fill(&mut parts[1], 2)?;
    let parts = ShardedBuffer::new(&stream, parts)?;
    let kernel = TESTS.kernel(device, "test_spread")?;
    let mut out = Buffer::<u32>::new(&stream, 100)?;
    let arguments = &mut [(&parts).into(), 2u32.into(), (&mut out).into(), 100u32.into()];
    // SAFETY: the arguments are the kernel's, and the parts have as many values.
    unsafe { stream.launch(&kernel, Shape::linear(1, 128), arguments) }?;
    let mut back = Pinned::<u32>::new(device, 100)?;
    stream.copy(&out, 0..100, &mut back, 0)?;
    stream.synchronize()?;
    assert!(back.chunks(2).all(|pair| pair == [0x0101_0101, 0x0202_0202]));
    // Drops report nothing: the devices' next calls do.
    drop((parts, other));
    stream.synchronize()?;
    peer.free_bytes()?;
    Ok([device, peer].map(emulation::calls))
}

/// An unshared device.
fn device(index: usize) -> Device {
    Device::open(&format!("cuda:{index}").parse().expect("a place"), &KEY).expect("the device is emulated")
}

#[test]
fn a_lost_device_is_an_error_of_the_next_call() {
    for (at, (name, part)) in PARTS.iter().enumerate() {
        let calls = part(&device(1000 * at)).unwrap_or_else(|e| panic!("{name}: {e}"));
        for call in 1..=calls {
            let device = device(1000 * at + call as usize);
            emulation::fail_from(&device, call);
            let error =
                part(&device).map(|_| ()).err().unwrap_or_else(|| panic!("{name}, {call} of {calls}: no error"));
            check(name, call, &error);
        }
    }
}

/// Index of a device's place.
fn index(device: &Device) -> usize {
    device.place().to_string().trim_start_matches("cuda:").parse().expect("a number")
}

#[test]
fn a_lost_peer_is_an_error_of_the_next_call() {
    let peer = device(900_000);
    let [_, calls] = shard(&device(800_000), &peer).expect("nothing fails");
    for call in 1..=calls {
        let peer = device(900_000 + call as usize);
        emulation::fail_from(&peer, call);
        let error = shard(&device(800_000 + call as usize), &peer).expect_err("a call of the peer fails");
        check("a peer", call, &error);
    }
}

#[track_caller]
fn check(part: &str, call: u64, error: &Error) {
    let message = error.to_string();
    let rest = message.strip_prefix("Training_CUDA_Failures: ").unwrap_or_else(|| panic!("{part}, {call}: {message}"));
    let function = rest.split(": ").next().unwrap_or_default();
    let is_call = function.starts_with("cuda") || function.starts_with("cu") && !function.contains(' ');
    assert!(is_call && message.ends_with("is made to fail"), "{part}, {call}: {message}");
}

#[test]
fn a_place_without_a_device_is_an_error() {
    let error = Device::open(&"sim:0".parse().expect("a place"), &KEY)
        .expect_err("the place belongs to another backend")
        .to_string();
    assert!(error.contains("Training_CUDA_Failures") && error.contains("give cuda:0"), "{error}");
}
