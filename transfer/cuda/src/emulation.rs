//! Test controls of the emulated device: counted driver calls and loads, injected failures.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use crate::device::Device;
use crate::emulated::EmulatedDevice;

unsafe extern "C" {
    fn morphgl_emulation_sanitizer() -> c_int;
    fn morphgl_emulation_count_loads(begin: *const c_void, bytes: usize, granule: usize);
    fn morphgl_emulation_counted_loads() -> u64;
    fn morphgl_emulation_counted_visits() -> u64;
}

pub(crate) fn of(device: &Device) -> &EmulatedDevice {
    let driver: &dyn Any = device.driver();
    driver.downcast_ref().expect("with the feature `emulate` every device is emulated")
}

pub(crate) fn sanitizer() -> Option<&'static str> {
    // SAFETY: it returns a constant.
    match unsafe { morphgl_emulation_sanitizer() } {
        0 => None,
        1 => Some("address"),
        _ => Some("thread"),
    }
}

/// Number of driver calls on the device so far.
pub fn calls(device: &Device) -> u64 {
    of(device).calls.load(Ordering::Relaxed)
}

/// Makes every call from number `call` on fail, counted from 1 as by [`calls`], like a lost device. Only calls that free
/// something still succeed. `u64::MAX` makes none fail.
pub fn fail_from(device: &Device, call: u64) {
    of(device).failing.store(call, Ordering::Relaxed);
}

/// What the loads touch that kernels declare by `WARP_LOAD`, in granules of memory: pieces of the address space of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loads {
    /// Distinct granules that each load of a warp touches, summed over the loads. With lines of 128 bytes of host memory, that is
    /// the number of read requests over the bus.
    pub touched: u64,
    /// How often a warp comes to a granule, for the first time or having left it, summed over the warps. A warp has left a granule
    /// when it has loads in flight and none of them is there; those between two exchanges by its lanes are in flight together.
    pub visits: u64,
}

/// Counts what the loads of `work` touch of `memory`, in granules of so many bytes.
///
/// It counts the kernels that the calling thread runs: those it launches or, in late mode, waits for.
///
/// # Panics
///
/// When `granule` is 0.
pub fn count_loads<T>(memory: &[u8], granule: usize, work: impl FnOnce() -> T) -> (T, Loads) {
    assert!(granule > 0, "a granule has bytes");
    // SAFETY: the range is compared with addresses, and never read.
    unsafe { morphgl_emulation_count_loads(memory.as_ptr().cast(), memory.len(), granule) };
    let value = work();
    // SAFETY: they read numbers of this thread.
    let (touched, visits) = unsafe { (morphgl_emulation_counted_loads(), morphgl_emulation_counted_visits()) };
    (value, Loads { touched, visits })
}
