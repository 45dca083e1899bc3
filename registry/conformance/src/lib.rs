#![doc = include_str!("../README.md")]

pub mod batching;
pub mod training;
pub mod transferring;

use morphgl_registry::{Description, Machine};

/// Whether an operator can run on this machine; where it cannot, says why.
pub fn available(description: &Description) -> bool {
    let found = (description.probe)(&Machine::probe());
    if let Err(unavailable) = &found {
        batching::skip(&format!("{}: skipped, not available on this machine: {}", description.key, unavailable.reason));
    }
    found.is_ok()
}
