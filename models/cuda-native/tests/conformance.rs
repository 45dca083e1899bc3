//! The suite of phase Training, on a CUDA device, or the emulated one.

mod common;

use common::{place, transfer};
use morphgl_conformance::available;
use morphgl_conformance::training::{Subject, check};
use morphgl_training_cuda_native::DESCRIPTION;

#[test]
fn conformance() {
    if !available(&DESCRIPTION) {
        return;
    }
    check(&Subject {
        takes_relations: false,
        takes_types: true,
        refused_types: &["hgt", "attention", "diagonal_blocks"],
        place: &place(),
        transfer: &transfer,
        sanitized: morphgl_cuda::sanitizer().is_some(),
        ..Subject::new(&DESCRIPTION)
    });
}
