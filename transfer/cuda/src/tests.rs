//! Properties of memory and order, on the emulated device in late mode.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use morphgl_registry::{Hardware, Key, Phase};
use proptest::prelude::*;

use crate::emulated::{EmulatedDevice, Settings};
use crate::pinning::PinnedRange;
use crate::{Buffer, CUDA, Device, HostMemory, Mapped, Pinned, Stream, emulation};

const KEY: Key = Key::new(Phase::Batching, Hardware::new(&[CUDA]), "Tests");
const PAGE: usize = 4096;

/// Serialises tests that inspect pinned pages: arrays of two tests may share a page.
static PAGES: Mutex<()> = Mutex::new(());

fn pages() -> MutexGuard<'static, ()> {
    PAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn device(settings: Settings) -> Device {
    Device::over(EmulatedDevice::new(0, settings), None, &KEY)
}

fn late() -> Device {
    device(Settings { late: true, ..Settings::default() })
}

#[test]
fn work_runs_only_when_waited_for() {
    let device = late();
    let (first, second) = (Stream::new(&device, false).expect("a stream"), Stream::new(&device, false).expect("one"));
    let mut buffer = Buffer::<u8>::new(&first, 4).expect("memory");
    let mut host = Pinned::<u8>::new(&device, 4).expect("memory");
    first.fill(&mut buffer, 1).expect("queued");
    second.copy(&buffer, 0..4, &mut host, 0).expect("queued");
    second.synchronize().expect("done");
    assert_eq!(host[..], [0xa5; 4], "no event, no order");
    second.wait(&first.record(false).expect("an event")).expect("queued");
    second.copy(&buffer, 0..4, &mut host, 0).expect("queued");
    second.synchronize().expect("done");
    assert_eq!(host[..], [1; 4]);
}

#[derive(Debug, Clone)]
enum Step {
    /// Copies bytes to the device on one stream and back on another.
    Send {
        bytes: usize,
        streams: [usize; 2],
        early: bool,
    },
    Wait(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let send = (1usize..3000, [0usize..3, 0usize..3], any::<bool>()).prop_map(|(bytes, streams, early)| Step::Send {
        bytes,
        streams,
        early,
    });
    prop::collection::vec(prop_oneof![4 => send, 1 => (0usize..3).prop_map(Step::Wait)], 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Memory dropped with work in flight and reused at once keeps its content for that work.
    #[test]
    fn no_block_is_reused_while_work_on_it_is_pending(steps in steps()) {
        let device = late();
        let streams: Vec<Stream> = (0..3).map(|_| Stream::new(&device, false).expect("a stream")).collect();
        let mut back = Vec::new();
        for (i, step) in steps.iter().enumerate() {
            match step {
                Step::Wait(stream) => streams[*stream].synchronize().expect("done"),
                Step::Send { bytes, streams: [up, down], early } => {
                    let tag = (i % 251) as u8 + 1;
                    let there = Pinned::of(&device, &vec![tag; *bytes]).expect("memory");
                    let mut buffer = Buffer::new(&streams[*up], *bytes).expect("memory");
                    streams[*up].copy(&there, 0..*bytes, &mut buffer, 0).expect("queued");
                    if *early {
                        drop(there);
                    }
                    streams[*down].wait(&streams[*up].record(false).expect("an event")).expect("queued");
                    let mut host = Pinned::new(&device, *bytes).expect("memory");
                    streams[*down].copy(&buffer, 0..*bytes, &mut host, 0).expect("queued");
                    back.push((tag, host));
                }
            }
        }
        for stream in &streams {
            stream.synchronize().expect("done");
        }
        for (tag, host) in back {
            prop_assert!(host.iter().all(|byte| *byte == tag), "{tag}: {:?}", &host[..]);
        }
    }

    /// Ranges of one array pinned and released in any order: each page is pinned once, and none stays pinned.
    #[test]
    fn pages_are_pinned_once_and_released(
        ranges in prop::collection::vec((0usize..40 * PAGE, 1usize..9 * PAGE), 1..12),
        order in any::<u64>(),
        locked in prop_oneof![Just(u64::MAX), (0u64..30).prop_map(|pages| pages * PAGE as u64)],
    ) {
        let _alone = pages();
        let device = device(Settings { locked, ..Settings::default() });
        let owner: Arc<dyn Any + Send + Sync> = Arc::new(());
        let bytes = vec![0u8; 50 * PAGE];
        let mut ranges_pinned = Vec::new();
        for (start, len) in ranges {
            // SAFETY: the vector outlives the ranges; the emulation asserts that no page is pinned twice.
            match unsafe { PinnedRange::new(&device, &owner, &bytes[start..start + len], 4 * PAGE) } {
                Ok(range) => ranges_pinned.push(range),
                Err(why) => prop_assert!(locked < u64::MAX && why.to_string().starts_with("cuMemHostRegister_v2: pinning")),
            }
        }
        while !ranges_pinned.is_empty() {
            ranges_pinned.swap_remove(order as usize % ranges_pinned.len());
        }
        prop_assert_eq!(emulation::of(&device).registered(), 0);
    }
}

#[test]
fn the_steady_state_takes_no_memory_from_the_driver() {
    let device = late();
    let streams: Vec<Stream> = (0..2).map(|_| Stream::new(&device, false).expect("a stream")).collect();
    let mut free = Vec::new();
    for _ in 0..10 {
        let host = Pinned::of(&device, &[1u32; 1000]).expect("memory");
        let mut buffers: Vec<_> = [500, 1000].map(|len| Buffer::new(&streams[0], len).expect("memory")).into();
        streams[0].copy(&host, 0..500, &mut buffers[0], 0).expect("queued");
        streams[1].wait(&streams[0].record(false).expect("an event")).expect("queued");
        let mut back = Pinned::new(&device, 500).expect("memory");
        streams[1].copy(&buffers[0], 0..500, &mut back, 0).expect("queued");
        streams[1].synchronize().expect("done");
        free.push(device.driver().memory().expect("a number")[0]);
        drop((host, buffers, back));
    }
    assert_eq!(free[1..], [free[1]; 9], "{free:?}");
}

#[test]
fn full_memory_first_frees_idle_blocks_and_then_refuses() {
    let device = device(Settings { memory: 10_000, ..Settings::default() });
    let stream = Stream::new(&device, false).expect("a stream");
    drop(Buffer::<u8>::new(&stream, 5_000).expect("memory"));
    assert_eq!(device.free_bytes().expect("a number"), 10_000);
    let buffer = Buffer::<u8>::new(&stream, 8_000).expect("idle blocks were freed");
    let error = Buffer::<u8>::new(&stream, 4_000).expect_err("memory is full").to_string();
    assert!(error.starts_with("Batching_CUDA_Tests: cuMemAlloc_v2: "), "{error}");
    let error = Buffer::<u64>::new(&stream, usize::MAX / 2).expect_err("no device has that much").to_string();
    assert!(error.starts_with("Batching_CUDA_Tests: cuMemAlloc_v2: "), "{error}");
    drop(buffer);
    drop(Buffer::<u8>::new(&stream, 8_000).expect("memory is free again"));
}

#[test]
fn a_limit_acts_as_the_size_of_device_memory() {
    let device = Device::over(EmulatedDevice::new(0, Settings::default()), Some(10_000), &KEY);
    let stream = Stream::new(&device, false).expect("a stream");
    assert_eq!(device.properties().expect("a number").memory_bytes, 10_000);
    drop(Buffer::<u8>::new(&stream, 5_000).expect("memory"));
    let (unallocated, free) = (device.unallocated_bytes().expect("a number"), device.free_bytes().expect("a number"));
    assert_eq!((unallocated, free), (10_000 - 5_120, 10_000));
    let buffer = Buffer::<u8>::new(&stream, 8_000).expect("idle blocks were freed");
    let error = Buffer::<u8>::new(&stream, 4_000).expect_err("memory is full").to_string();
    let expected =
        "Batching_CUDA_Tests: cuMemAlloc_v2: 4096 bytes requested, 8192 of the 10000 that MORPHGL_CUDA_MEMORY";
    assert!(error.starts_with(expected), "{error}");
    drop(buffer);
    drop(Buffer::<u8>::new(&stream, 10_000).expect_err("the size class exceeds the limit"));
    drop(Buffer::<u8>::new(&stream, 8_000).expect("memory is free again"));
    assert!(Pinned::<u8>::new(&device, 20_000).is_ok(), "pinned memory is not limited");
}

#[test]
fn unused_memory_is_reused_first() {
    let device = late();
    let [busy, other] = [(); 2].map(|()| Stream::new(&device, false).expect("a stream"));
    let mut used = Buffer::<u8>::new(&busy, 1000).expect("memory");
    let unused = Buffer::<u8>::new(&other, 1000).expect("memory");
    let [first, second] = [unused.address(), used.address()];
    busy.fill(&mut used, 1).expect("queued");
    drop(unused);
    // Released last, with work of its stream pending.
    drop(used);
    other.synchronize().expect("done");
    let taken = [(); 2].map(|()| Buffer::<u8>::new(&other, 1000).expect("memory"));
    assert_eq!(taken.each_ref().map(Buffer::address), [first, second]);
}

#[test]
fn memory_that_cannot_be_pinned_is_copied() {
    let _alone = pages();
    let values: Arc<Vec<u32>> = Arc::new((0..5000).collect());
    let owner = || -> Arc<dyn Any + Send + Sync> { Arc::clone(&values) as _ };
    let device = device(Settings { locked: 8192, late: true, ..Settings::default() });
    // SAFETY: the owner keeps the values, here and below.
    let error = unsafe { Mapped::new(&device, owner(), &values) }.expect_err("the limit is lower").to_string();
    assert!(error.contains("Batching_CUDA_Tests: cuMemHostRegister_v2: pinning 20000 bytes in place"), "{error}");
    // SAFETY: as above.
    let mapped = unsafe { Mapped::new_or_copy(&device, owner(), &values) }.expect("there is memory");
    let refused = mapped.refused().expect("the memory was copied");
    assert!(refused.contains("cuMemHostRegister_v2: pinning 20000 bytes in place"), "{refused}");
    assert_eq!(round_trip(&device, mapped), values[10..]);
    // SAFETY: as above.
    let small = unsafe { Mapped::new_or_copy(&device, owner(), &values[..10]) }.expect("the array is within the limit");
    assert_eq!(small.refused(), None);
    // SAFETY: as above.
    let none = unsafe { Mapped::new(&device, owner(), &values[..0]) }.expect("an empty array needs no pinning");
    assert!(none.is_empty());
}

/// Copies all but ten elements to the device and back, dropping the mapping before the copies are done.
fn round_trip(device: &Device, mapped: Mapped<u32>) -> Vec<u32> {
    let stream = Stream::new(device, false).expect("a stream");
    let mut there = Buffer::new(&stream, mapped.len()).expect("memory");
    stream.copy(&mapped, 10..mapped.len(), &mut there, 0).expect("queued");
    let mut back = Pinned::new(device, mapped.len() - 10).expect("memory");
    drop(mapped);
    stream.copy(&there, 0..back.len(), &mut back, 0).expect("queued");
    stream.synchronize().expect("done");
    back.to_vec()
}

/// Values that are wiped when their owner is dropped.
struct Wiped(Vec<u32>);

impl Drop for Wiped {
    fn drop(&mut self) {
        self.0.fill(0);
    }
}

#[test]
fn mapped_memory_is_released_after_the_work_on_it() {
    let _alone = pages();
    let device = late();
    let values = Arc::new(Wiped((0..5000).collect()));
    let expected = values.0[10..].to_vec();
    // SAFETY: the owner keeps the values.
    let mapped = unsafe { Mapped::new(&device, Arc::clone(&values) as _, &values.0) }.expect("pinned");
    drop(values);
    assert_eq!(round_trip(&device, mapped), expected);
    assert_eq!(emulation::of(&device).registered(), 0);
}

#[test]
fn allocated_host_memory_is_filled_and_released_after_the_work_on_it() {
    let device = late();
    let expected: Vec<u32> = (0..5000).map(|v| v * 3).collect();
    for memory in [HostMemory::PageLocked, HostMemory::OnNode] {
        let fill = |values: &mut [u32]| {
            assert_eq!(values, [0; 5000], "{memory:?}: it is cleared");
            values.copy_from_slice(&expected);
        };
        let mapped = Mapped::allocate(&device, memory, 5000, fill).expect("memory");
        assert_eq!((mapped.len(), mapped.refused()), (5000, None));
        assert!(round_trip(&device, mapped) == expected[10..], "{memory:?}");
        let before = emulation::of(&device).pinned();
        let mapped = Mapped::<u32>::allocate(&device, memory, 5000, |_| ()).expect("memory");
        assert_eq!(emulation::of(&device).pinned(), before + 20_000, "{memory:?}");
        drop(mapped);
        assert_eq!(emulation::of(&device).pinned(), before, "{memory:?}: it is freed");
        let empty = Mapped::<u32>::allocate(&device, memory, 0, |_| panic!("there is nothing to fill"));
        assert!(empty.expect("it needs no memory").is_empty());
        let error = Mapped::<u8>::allocate(&device, memory, usize::MAX / 4, |_| ()).expect_err("nobody has it");
        assert!(error.to_string().contains("are free"), "{error}");
    }
}

#[test]
fn copies_do_not_cross_pieces() {
    let _alone = pages();
    let device = late();
    let values: Arc<Vec<u8>> = Arc::new((0..20 * PAGE).map(|i| (i / 7 % 256) as u8).collect());
    let owner = || -> Arc<dyn Any + Send + Sync> { Arc::clone(&values) as _ };
    // SAFETY: the owner keeps the values, here and below.
    let middle = unsafe { Mapped::new(&device, owner(), &values[5 * PAGE..9 * PAGE]) }.expect("pinned");
    // SAFETY: as above.
    let all = unsafe { Mapped::new(&device, owner(), &values) }.expect("pinned");
    let stream = Stream::new(&device, false).expect("a stream");
    let mut there = Buffer::new(&stream, all.len()).expect("memory");
    let before = emulation::calls(&device);
    stream.copy(&all, 0..all.len(), &mut there, 0).expect("queued");
    assert_eq!(emulation::calls(&device) - before, 3, "one copy per piece");
    let mut back = Pinned::new(&device, all.len()).expect("memory");
    stream.copy(&there, 0..all.len(), &mut back, 0).expect("queued");
    drop((middle, all));
    stream.synchronize().expect("done");
    assert_eq!(back[..], values[..]);
}

#[test]
fn a_device_has_64_streams_and_reuses_their_numbers() {
    let device = late();
    for _ in 0..2 {
        let streams: Vec<_> = (0..64).map(|_| Stream::new(&device, false).expect("a stream")).collect();
        let error = Stream::new(&device, false).expect_err("there are 64").to_string();
        assert!(error.contains("at most 64 streams"), "{error}");
        drop(streams);
    }
}
