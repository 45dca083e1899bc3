use morphgl_registry::{Hardware, Key, Phase};

use super::*;
use crate::device::Device;
use crate::emulated::{EmulatedDevice, Settings};
use crate::test_kernels::TESTS;
use crate::{CUDA, Pinned, Shape};

const KEY: Key = Key::new(Phase::Batching, Hardware::new(&[CUDA]), "Tests");

/// Streams of devices, the first and third of which have no peer access to each other.
fn streams(num_devices: u32, late: bool) -> Vec<Stream> {
    let settings = Settings { late, apart: vec![[2, 0]], ..Settings::default() };
    let device = |index| Device::over(EmulatedDevice::new(index, settings.clone()), None, &KEY);
    (0..num_devices).map(|index| Stream::new(&device(index), false).expect("a stream")).collect()
}

fn upload(stream: &Stream, values: &[u32]) -> Buffer<u32> {
    Buffer::of(stream, values).expect("memory")
}

#[test]
fn parts_are_read_in_place_and_kept_until_then() {
    for (devices, late) in [(vec![0], true), (vec![0, 1], false), (vec![0, 1], true), (vec![1, 3, 4, 0], true)] {
        let streams = streams(5, late);
        let len = 999;
        let part = |n: usize| (n as u32..len).step_by(devices.len()).map(|i| i * i).collect::<Vec<u32>>();
        let parts: Vec<_> = devices.iter().enumerate().map(|(n, &device)| upload(&streams[device], &part(n))).collect();
        let reader = &streams[0];
        let sharded = ShardedBuffer::new(reader, parts).expect("the parts are accessible");
        assert_eq!(sharded.parts().len(), devices.len());
        let mut out = Buffer::<u32>::new(reader, len as usize).expect("memory");
        let kernel = TESTS.kernel(reader.device(), "test_spread").expect("the kernel exists");
        let arguments = &mut [(&sharded).into(), (devices.len() as u32).into(), (&mut out).into(), len.into()];
        // SAFETY: the arguments are the kernel's, and the parts have `len` values.
        unsafe { reader.launch(&kernel, Shape::covering(len as usize, 64), arguments) }.expect("queued");
        drop(sharded);
        // The next user of the memory overwrites it immediately.
        for (n, &device) in devices.iter().enumerate() {
            let stream = &streams[device];
            let mut next = Buffer::<u32>::new(stream, part(n).len()).expect("memory");
            stream.fill(&mut next, 0).expect("queued");
            stream.synchronize().expect("done");
        }
        let mut back = Pinned::new(reader.device(), len as usize).expect("memory");
        reader.copy(&out, 0..len as usize, &mut back, 0).expect("queued");
        reader.synchronize().expect("done");
        assert_eq!(back[..], (0..len).map(|i| i * i).collect::<Vec<u32>>(), "{devices:?}, late: {late}");
    }
}

#[test]
fn an_inaccessible_device_is_named() {
    let streams = streams(3, true);
    let [first, second, third] = [0, 1, 2].map(|i: usize| streams[i].device());
    let reaches = |of: &Device, other| of.reaches(other).expect("the driver answers");
    assert!(reaches(first, first) && reaches(first, second) && reaches(third, second));
    assert!(!reaches(first, third) && !reaches(third, first));
    let free = third.free_bytes().expect("a number");
    let parts = vec![upload(&streams[0], &[1]), upload(&streams[2], &[2])];
    let error = ShardedBuffer::new(&streams[0], parts).expect_err("no peer access").to_string();
    let expected = "Batching_CUDA_Tests: cuCtxEnablePeerAccess: cuda:0 reads the memory of cuda:2: ";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(third.free_bytes().expect("a number"), free, "the part was released to its pool");
}

#[test]
fn memory_of_another_device_is_refused() {
    let streams = streams(2, true);
    let other = upload(&streams[1], &[1, 2]);
    let mut host = Pinned::<u32>::new(streams[0].device(), 2).expect("memory");
    let copy = std::panic::AssertUnwindSafe(|| streams[0].copy(&other, 0..2, &mut host, 0));
    let panic = std::panic::catch_unwind(copy).expect_err("a panic");
    let message = panic.downcast_ref::<String>().expect("a message");
    let words = ["is given to work of", "cuda:0", "cuda:1"];
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
}
