//! Facilities of the emulated device: warps, barriers, shared memory, GEMM, graphs.
#![cfg(feature = "emulate")]

use morphgl_cuda::{Argument, Buffer, CUDA, Device, Pinned, Shape, Stream, Transpose};
use morphgl_registry::{Hardware, Key, Machine, Phase};

mod common;

use common::TESTS;

const KEY: Key = Key::new(Phase::Batching, Hardware::new(&[CUDA]), "Tests");

fn stream() -> Stream {
    let device = Device::open(&"cuda:0".parse().expect("a place"), &KEY).expect("the device is emulated");
    Stream::new(&device, false).expect("a stream")
}

fn launch(stream: &Stream, kernel: &str, shape: Shape, arguments: &mut [Argument<'_>]) -> Result<(), String> {
    let kernel = TESTS.kernel(stream.device(), kernel).map_err(|e| e.to_string())?;
    // SAFETY: the tests pass the arguments of the kernels in tests/emulation.cu.
    unsafe { stream.launch(&kernel, shape, arguments) }.map_err(|e| e.to_string())
}

#[test]
fn the_probe_finds_devices_where_they_are_asked_for() {
    let machine = Machine::probe();
    let asked_for = std::env::var_os("MORPHGL_EMULATION").is_some();
    assert_eq!(!morphgl_cuda::accelerators(&machine).is_empty(), asked_for);
    match morphgl_cuda::probe(&machine) {
        Ok(()) => assert!(asked_for),
        Err(why) => assert!(!asked_for && why.reason.contains("MORPHGL_EMULATION=devices=1"), "{}", why.reason),
    }
}

#[test]
fn a_block_scans_by_shuffles_barriers_and_shared_memory() {
    let stream = stream();
    for len in [1u32, 31, 32, 33, 256] {
        let values: Vec<u32> = (0..len).map(|i| i * 7 % 11).collect();
        let mut buffer = Buffer::new(&stream, values.len()).expect("memory");
        stream
            .copy(&Pinned::of(stream.device(), &values).expect("memory"), 0..values.len(), &mut buffer, 0)
            .expect("a copy");
        let shape = Shape::linear(1, 256).with_shared(8 * 4);
        launch(&stream, "test_scan", shape, &mut [(&mut buffer).into(), len.into()]).expect("a launch");
        let expected: Vec<u32> = values
            .iter()
            .scan(0, |sum, v| {
                *sum += v;
                Some(*sum)
            })
            .collect();
        assert_eq!(buffer.to_vec(&stream).expect("no failure"), expected, "of {len}");
    }
}

#[test]
fn every_thread_of_every_block_runs() {
    let stream = stream();
    let mut seen = Buffer::<u32>::new(&stream, 2 * 3 * 4 * 5).expect("memory");
    stream.fill(&mut seen, 0).expect("a fill");
    let shape = Shape { grid: [2, 3, 1], block: [4, 5, 1], shared: 0 };
    launch(&stream, "test_blocks", shape, &mut [(&mut seen).into()]).expect("a launch");
    assert_eq!(seen.to_vec(&stream).expect("no failure"), vec![1; 120]);
}

#[test]
fn a_barrier_that_some_thread_never_reaches_is_an_error() {
    // A device of its own, which stays in error.
    let device = Device::open(&"cuda:1".parse().expect("a place"), &KEY).expect("the device is emulated");
    let stream = Stream::new(&device, false).expect("a stream");
    let done = launch(&stream, "test_stuck", Shape::linear(1, 64), &mut [])
        .and_then(|()| stream.synchronize().map_err(|e| e.to_string()));
    let error = done.expect_err("the barrier is never complete");
    assert!(error.contains("test_stuck") && error.contains("Batching_CUDA_Tests"), "{error}");
}

#[test]
fn half_values_are_exact() {
    let stream = stream();
    let mut out = Buffer::<f32>::new(&stream, 4).expect("memory");
    launch(&stream, "test_half", Shape::linear(1, 1), &mut [(&mut out).into()]).expect("a launch");
    assert_eq!(out.to_vec(&stream).expect("no failure"), [1.0, -2.0, 65504.0, 1.5]);
}

#[test]
fn gemm_reads_factors_plain_and_transposed() {
    let stream = stream();
    let up = |values: &[f32]| {
        let mut buffer = Buffer::new(&stream, values.len()).expect("memory");
        stream
            .copy(&Pinned::of(stream.device(), values).expect("memory"), 0..values.len(), &mut buffer, 0)
            .expect("a copy");
        buffer
    };
    let (a, at) = (up(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), up(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
    let (b, bt) = (up(&[1.0, 0.0, 0.0, 1.0, 2.0, 2.0]), up(&[1.0, 0.0, 2.0, 0.0, 1.0, 2.0]));
    for (a, b) in [((&a, Transpose::No), (&b, Transpose::No)), ((&at, Transpose::Yes), (&bt, Transpose::Yes))] {
        let mut out = up(&[1.0; 4]);
        stream.multiply([2, 2, 3], a, b, &mut out, (2.0, 1.0)).expect("a GEMM");
        assert_eq!(out.to_vec(&stream).expect("no failure"), [15.0, 17.0, 33.0, 35.0]);
    }
}

#[test]
fn ended_lanes_do_not_vote() {
    let stream = stream();
    let mut out = Buffer::<u32>::new(&stream, 64).expect("memory");
    launch(&stream, "test_votes", Shape::linear(1, 32), &mut [(&mut out).into()]).expect("a launch");
    let out = out.to_vec(&stream).expect("no failure");
    assert_eq!(out[..32], [u32::MAX; 32]);
    assert_eq!(out[32..48], [0xaaaa; 16]);
    assert_eq!(out[48..], std::array::from_fn::<u32, 16, _>(|lane| (lane as u32 ^ 1) * 10));
}
