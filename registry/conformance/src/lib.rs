#![doc = include_str!("../README.md")]

pub mod batching;
pub mod fake;
pub mod training;
pub mod transferring;

use morphgl_registry::{At, Description, Machine, OptionRole, OptionSpec, Place, Result};
use serde_json::{Value, json};

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

/// Sets every option to each of [`OptionSpec::tried`], one at a time: the operator is built and `checked`, or refuses the value by
/// one line with the cure. Of each option a value is taken, but for the part of the host memory in which a dataset on disk is
/// cached: those of the suites are in memory.
fn set_each_option<T>(specs: &[OptionSpec], build: impl Fn(Value) -> Result<T>, mut checked: impl FnMut(&str, T)) {
    for spec in specs {
        let values = spec.tried();
        assert!(!values.is_empty(), "option {}: no value is known; give one by `OptionSpec::such_as`", spec.name);
        let mut taken = 0;
        for value in values {
            let what = format!("option {} = {value}", spec.name);
            match build(json!({ spec.name: value })) {
                Ok(operator) => {
                    taken += 1;
                    checked(&what, operator);
                }
                Err(refused) => one_line(&what, &refused.to_string()),
            }
        }
        let on_disk = spec.role == OptionRole::HostBudget;
        assert!(taken > 0 || on_disk, "option {}: every value is refused", spec.name);
    }
}

/// Checks that a refusal is one line, and says the cure.
fn one_line(what: &str, message: &str) {
    assert!(!message.contains('\n') && !message.ends_with('.'), "{what}: one line without a full stop: {message}");
    assert!(message.contains("; "), "{what}: the message says the cure: {message}");
}
