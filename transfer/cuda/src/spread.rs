//! Arrays in parts on several devices, read by one of them.

use std::fmt;

use bytemuck::Pod;
use morphgl_registry::Result;

use crate::driver::Address;
use crate::memory::{Buffer, Guarded, Users};
use crate::stream::Stream;

/// Read-only buffers on several devices, read in place by kernels of one device by peer access. As a kernel argument it is
/// an array of the parts' addresses.
///
/// Dropping it waits for the work of its readers; each part then returns to the pool of its device.
pub struct Spread<T: Pod>(Guarded<Parts<T>>);

struct Parts<T: Pod> {
    addresses: Buffer<u64>,
    parts: Vec<Buffer<T>>,
}

impl<T: Pod> Spread<T> {
    /// Makes `parts` readable by the stream's device. Blocks until pending work on the parts is done, so that readers need no
    /// event of it.
    ///
    /// # Errors
    ///
    /// The device has no access to a part ([`crate::Device::reaches`]), work on a part failed, or memory is full.
    pub fn new(stream: &Stream, parts: Vec<Buffer<T>>) -> Result<Self> {
        let reader = stream.device();
        for part in &parts {
            reader.reach(part.device())?;
            part.finish()?;
        }
        let listed: Vec<Address> = parts.iter().map(Buffer::address).collect();
        let addresses = Buffer::of(stream, &listed)?;
        addresses.finish()?;
        Ok(Self(Guarded::new(reader, Parts { addresses, parts })))
    }

    /// The parts.
    pub fn parts(&self) -> &[Buffer<T>] {
        &self.0.parts
    }

    pub(crate) fn address(&self) -> Address {
        self.0.addresses.address()
    }

    pub(crate) fn users(&self) -> Users<'_> {
        self.0.users()
    }
}

impl<T: Pod> fmt::Debug for Spread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spread").field("parts", &self.parts()).field("reader", self.0.device()).finish()
    }
}

#[cfg(all(test, feature = "emulate"))]
mod tests {
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
    fn parts_are_read_where_they_lie_and_stay_until_that_is_done() {
        for (devices, late) in [(vec![0], true), (vec![0, 1], false), (vec![0, 1], true), (vec![1, 3, 4, 0], true)] {
            let streams = streams(5, late);
            let len = 999;
            let part = |n: usize| (n as u32..len).step_by(devices.len()).map(|i| i * i).collect::<Vec<u32>>();
            let parts = devices.iter().enumerate().map(|(n, &device)| upload(&streams[device], &part(n))).collect();
            let reader = &streams[0];
            let spread = Spread::new(reader, parts).expect("it reaches them");
            assert_eq!(spread.parts().len(), devices.len());
            let mut out = Buffer::<u32>::new(reader, len as usize).expect("memory");
            let kernel = TESTS.kernel(reader.device(), "test_spread").expect("it is there");
            let arguments = &mut [(&spread).into(), (devices.len() as u32).into(), (&mut out).into(), len.into()];
            // SAFETY: the arguments are the kernel's, and the values are as many.
            unsafe { reader.launch(&kernel, Shape::covering(len as usize, 64), arguments) }.expect("given");
            drop(spread);
            // The next user of the memory writes to it at once.
            for (n, &device) in devices.iter().enumerate() {
                let stream = &streams[device];
                let mut next = Buffer::<u32>::new(stream, part(n).len()).expect("memory");
                stream.fill(&mut next, 0).expect("given");
                stream.synchronize().expect("done");
            }
            let mut back = Pinned::new(reader.device(), len as usize).expect("memory");
            reader.copy(&out, 0..len as usize, &mut back, 0).expect("given");
            reader.synchronize().expect("done");
            assert_eq!(back[..], (0..len).map(|i| i * i).collect::<Vec<u32>>(), "{devices:?}, late: {late}");
        }
    }

    #[test]
    fn a_device_that_is_not_reached_is_said_to_be() {
        let streams = streams(3, true);
        let [first, second, third] = [0, 1, 2].map(|i: usize| streams[i].device());
        let reaches = |of: &Device, other| of.reaches(other).expect("the driver says it");
        assert!(reaches(first, first) && reaches(first, second) && reaches(third, second));
        assert!(!reaches(first, third) && !reaches(third, first));
        let free = third.free_bytes().expect("told");
        let parts = vec![upload(&streams[0], &[1]), upload(&streams[2], &[2])];
        let error = Spread::new(&streams[0], parts).expect_err("it is not reached").to_string();
        let expected = "Batching_CUDA_Tests: cuCtxEnablePeerAccess: cuda:0 reads the memory of cuda:2: ";
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(third.free_bytes().expect("told"), free, "the part went back to its pool");
    }

    #[test]
    fn memory_of_another_device_is_refused() {
        let streams = streams(2, true);
        let other = upload(&streams[1], &[1, 2]);
        let event = streams[1].record(false).expect("an event");
        let mut host = Pinned::<u32>::new(streams[0].device(), 2).expect("memory");
        let copy = std::panic::AssertUnwindSafe(|| streams[0].copy(&other, 0..2, &mut host, 0));
        check(std::panic::catch_unwind(copy), "is given to work of");
        check(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| streams[0].wait(&event))), "wait for an event");
    }

    #[track_caller]
    fn check(outcome: std::thread::Result<Result<()>>, words: &str) {
        let panic = outcome.expect_err("it cannot be given");
        let said = panic.downcast_ref::<String>().expect("a sentence");
        assert!(said.contains(words) && said.contains("cuda:0") && said.contains("cuda:1"), "{said}");
    }
}
