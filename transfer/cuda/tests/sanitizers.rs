//! Kernels with defects, each in a process of its own: the sanitizer that watches the kernels must stop them.
//! `.ci/run` runs it with the libraries of both; without a sanitizer nothing is tested here.
#![cfg(feature = "emulate")]

use std::process::Command;

use morphgl_cuda::{Buffer, CUDA, Device, Shape, Stream};
use morphgl_registry::{Hardware, Key, Phase};

mod common;

use common::TESTS;

const KEY: Key = Key::new(Phase::Batching, Hardware::new(&[CUDA]), "Sanitizers");

/// Number of elements, far below the capacity of their pool block.
const LEN: u32 = 40;

/// Runs the kernel that the environment names, if any.
#[test]
fn in_a_process_of_its_own() {
    let Ok(name) = std::env::var("MORPHGL_TEST_KERNEL") else { return };
    let device = Device::open(&"cuda:0".parse().expect("a place"), &KEY).expect("the device is emulated");
    let stream = Stream::new(&device, false).expect("a stream");
    let mut out = Buffer::<u32>::new(&stream, LEN as usize).expect("memory");
    let kernel = TESTS.kernel(&device, &name).expect("the kernel exists");
    let shape = Shape::linear(1, 64).with_shared(LEN as usize * 4);
    // SAFETY: test_race, test_ordered and test_unordered have one argument, the others have two. Their out-of-bounds accesses
    // are what is tested.
    unsafe {
        match name.as_str() {
            "test_race" => stream.launch(&kernel, Shape { block: [LEN, 1, 1], ..shape }, &mut [(&mut out).into()]),
            "test_ordered" | "test_unordered" => {
                stream.launch(&kernel, Shape { block: [32, 1, 1], ..shape }, &mut [(&mut out).into()])
            }
            _ => stream.launch(&kernel, shape, &mut [(&mut out).into(), LEN.into()]),
        }
    }
    .expect("launched");
    stream.synchronize().expect("done");
}

/// Whether the kernel was stopped, and the output.
fn run(kernel: &str) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().expect("the program has a path"));
    command.args(["--exact", "in_a_process_of_its_own", "--nocapture", "--test-threads", "1"]);
    let output = command.env("MORPHGL_TEST_KERNEL", kernel).output().expect("the program starts");
    let output_text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    (!output.status.success(), output_text)
}

#[track_caller]
fn check(kernel: &str, stopped_by: &[(&str, &str)]) {
    let sanitizer = morphgl_cuda::sanitizer().unwrap_or_default();
    let words = stopped_by.iter().find(|(name, _)| *name == sanitizer).map(|(_, words)| *words);
    if sanitizer.is_empty() {
        return;
    }
    let (stopped, output) = run(kernel);
    assert_eq!(stopped, words.is_some(), "{kernel}: {output}");
    if let Some(words) = words {
        assert!(output.contains(words) && output.contains(kernel), "{kernel}: no {words:?} in {output}");
    }
}

#[test]
fn correct_kernels_are_not_stopped() {
    check("test_scan", &[]);
    check("test_ordered", &[]);
}

#[test]
fn a_shuffle_does_not_order_memory() {
    check("test_unordered", &[("thread", "ThreadSanitizer: data race")]);
}

#[test]
fn a_race_between_threads_of_a_block_is_stopped() {
    check("test_race", &[("thread", "ThreadSanitizer: data race")]);
}

#[test]
fn a_write_beyond_a_buffer_but_within_its_block_is_stopped() {
    check("test_overrun", &[("address", "AddressSanitizer: use-after-poison")]);
}

#[test]
fn a_write_beyond_shared_memory_is_stopped() {
    check("test_shared_overrun", &[("address", "AddressSanitizer: use-after-poison")]);
}
