#![doc = include_str!("../README.md")]

pub mod batching;
pub mod training;
pub mod transferring;

use morphgl_registry::{At, Description, Machine, Place};

/// Whether an operator can run on this machine; where it cannot, prints why.
pub fn available(description: &Description) -> bool {
    let probed = (description.probe)(&Machine::probe());
    probed.map_err(|unavailable| skip(description, &unavailable.reason)).is_ok()
}

/// A place on this machine to which an operator writes mini-batches; where it cannot run, prints why.
fn output_place(description: &Description) -> Option<Place> {
    assert_ne!(description.writes, At::Disk, "{}: mini-batches never lie on disk", description.key);
    let machine = Machine::probe();
    let devices = (description.accelerators)(&machine).into_iter().map(|accelerator| accelerator.place);
    let place = devices.chain([Place::Host]).find(|place| description.writes.matches(place));
    match ((description.probe)(&machine), &place) {
        (Ok(()), Some(_)) => return place,
        (Err(unavailable), _) => skip(description, &unavailable.reason),
        (Ok(()), None) => skip(description, &format!("its backend finds no device of {}", description.writes)),
    }
    None
}

#[allow(clippy::print_stderr, reason = "reports which operator was not tested, and why")]
fn skip(description: &Description, reason: &str) {
    eprintln!("{}: skipped, not available on this machine: {reason}", description.key);
}
