//! Test controls of the emulated device: counted driver calls and injected failures.

use std::any::Any;
use std::sync::atomic::Ordering;

use crate::device::Device;
use crate::emulated::EmulatedDevice;

pub(crate) fn of(device: &Device) -> &EmulatedDevice {
    let driver: &dyn Any = device.driver();
    driver.downcast_ref().expect("with the feature `emulate` every device is emulated")
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
