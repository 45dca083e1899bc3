//! For tests on the emulated device: calls of the driver that fail when they are told to.

use std::sync::atomic::Ordering;

use crate::Device;

/// The emulation behind a device.
fn of(device: &Device) -> &crate::emulated::Emulated {
    device.driver().emulated().expect("with the feature `emulate` every device is emulated")
}

/// Calls of the driver that the device has seen.
pub fn calls(device: &Device) -> u64 {
    of(device).calls.load(Ordering::Relaxed)
}

/// Makes call number `call` fail, as [`calls`] counts them from 1 on; 0 makes none fail.
pub fn fail_at(device: &Device, call: u64) {
    of(device).failing.store(call, Ordering::Relaxed);
}
