//! Device discovery.

use morphgl_registry::{Accelerator, Machine, Unavailable};

use crate::driver::{Driver, Outcome};

/// Checks that this machine has a usable CUDA device. Never panics.
///
/// # Errors
///
/// No driver, no device, or one that is too old; the reason says which.
pub fn probe(_: &Machine) -> Result<(), Unavailable> {
    devices().map(|_| ()).map_err(|reason| Unavailable { reason })
}

/// The CUDA devices of this machine. Never panics.
pub fn accelerators(_: &Machine) -> Vec<Accelerator> {
    devices().unwrap_or_default()
}

#[cfg(feature = "emulate")]
fn devices() -> Result<Vec<Accelerator>, String> {
    let settings = crate::emulated::Settings::from_env()?;
    let device = |index| {
        let driver = crate::emulated::EmulatedDevice::new(index, settings.clone());
        let [_, memory_bytes] = driver.memory().map_err(|e| e.to_string())?;
        let place = morphgl_registry::Place::Device { backend: crate::BACKEND.into(), index };
        Ok(Accelerator { place, name: driver.name(), memory_bytes })
    };
    if settings.devices == 0 {
        return Err("no emulated device: MORPHGL_EMULATION=devices=1 makes one".to_string());
    }
    (0..settings.devices).map(device).collect()
}

#[cfg(feature = "emulate")]
pub(crate) fn open(index: u32) -> Outcome<Box<dyn Driver>> {
    let settings = crate::emulated::Settings::from_env();
    let settings = settings.map_err(|message| crate::driver::Failure::new("cuInit", message))?;
    Ok(Box::new(crate::emulated::EmulatedDevice::new(index, settings)))
}

#[cfg(not(feature = "emulate"))]
fn devices() -> Result<Vec<Accelerator>, String> {
    let accelerator = |found: &crate::real::probe::DeviceInfo| Accelerator {
        place: morphgl_registry::Place::Device { backend: crate::BACKEND.into(), index: found.ordinal },
        name: found.name.clone(),
        memory_bytes: found.memory_bytes,
    };
    Ok(crate::real::probe::machine()?.devices.iter().map(accelerator).collect())
}

#[cfg(not(feature = "emulate"))]
pub(crate) fn open(index: u32) -> Outcome<Box<dyn Driver>> {
    crate::real::open(index)
}
