//! The suite of phase Training, on a CUDA device, or the emulated one.

mod common;

use common::{place, transfer};
use morphgl_conformance::available;
use morphgl_conformance::training::{Subject, check};
use morphgl_training_cuda_native::{CudaNative, DESCRIPTION};

#[test]
fn conformance() {
    if !available(&DESCRIPTION) {
        return;
    }
    check(&Subject {
        build: &|context| Ok(Box::new(CudaNative::new(context)?)),
        place: place(),
        transfer: &transfer,
        deterministic: true,
        takes_given_rows: DESCRIPTION.takes_given_rows,
        sanitized: option_env!("MORPHGL_SANITIZE").is_some(),
    });
}
