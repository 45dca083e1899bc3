//! The suite of phase Training.

use morphgl_conformance::training::{Subject, check};
use morphgl_registry::{MiniBatch, Place};
use morphgl_training_cpu_burn::CpuBurn;

#[test]
fn conformance() {
    check(&Subject {
        build: &|context| Ok(Box::new(CpuBurn::new(context)?)),
        place: Place::Host,
        transfer: &MiniBatch::Host,
        deterministic: true,
        takes_given_rows: true,
        sanitized: false,
    });
}
