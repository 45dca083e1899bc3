//! Whether there is a device.

use morphgl_registry::{Accelerator, Machine, Unavailable};

use crate::driver::{Driver, Outcome};

/// Whether an operator can run on a CUDA device of this machine. Never panics.
///
/// # Errors
///
/// There is no driver, no device, or one that is too old; the reason says which.
pub fn probe(_: &Machine) -> Result<(), Unavailable> {
    devices().map(|_| ()).map_err(|reason| Unavailable { reason })
}

/// The CUDA devices of this machine. Never panics.
pub fn accelerators(_: &Machine) -> Vec<Accelerator> {
    devices().unwrap_or_default()
}

#[cfg(feature = "emulate")]
fn devices() -> Result<Vec<Accelerator>, String> {
    let driver = crate::emulated::Emulated::default();
    let [_, memory_bytes] = driver.memory().map_err(|e| e.to_string())?;
    let place = morphgl_registry::Place::Device { backend: crate::BACKEND.into(), index: 0 };
    Ok(vec![Accelerator { place, name: driver.name(), memory_bytes }])
}

#[cfg(feature = "emulate")]
pub(crate) fn open(_: u32) -> Outcome<Box<dyn Driver>> {
    Ok(Box::new(crate::emulated::Emulated::default()))
}

#[cfg(not(feature = "emulate"))]
fn devices() -> Result<Vec<Accelerator>, String> {
    Err("no CUDA driver found".to_string())
}

#[cfg(not(feature = "emulate"))]
pub(crate) fn open(_: u32) -> Outcome<Box<dyn Driver>> {
    Err(crate::driver::Failure { call: "cuInit", what: "no CUDA driver found".to_string(), memory: false })
}
