//! For tests on the emulated device: calls of the driver that fail when they are told to.

use std::sync::atomic::Ordering;

use crate::device::Device;
use crate::emulated::Emulated;

/// The emulation behind a device.
pub(crate) fn of(device: &Device) -> &Emulated {
    device.driver().as_any().downcast_ref().expect("with the feature `emulate` every device is emulated")
}

/// Calls of the driver that the device has seen.
pub fn calls(device: &Device) -> u64 {
    of(device).calls.load(Ordering::Relaxed)
}

/// Makes all calls fail from number `call` on, as [`calls`] counts them from 1 on: so a device does that is lost.
/// Only what gives something back goes on. `u64::MAX` makes none fail.
pub fn fail_from(device: &Device, call: u64) {
    of(device).failing.store(call, Ordering::Relaxed);
}
