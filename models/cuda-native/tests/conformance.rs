//! The suite of phase Training, on a CUDA device, or the emulated one.

mod common;

use common::{place, transfer};
use morphgl_conformance::available;
use morphgl_conformance::training::{Subject, check};
use morphgl_training_cuda_native::CudaNative;

#[test]
fn conformance() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    check(&Subject {
        build: &|context| Ok(Box::new(CudaNative::new(context)?)),
        place: place(),
        transfer: &transfer,
        deterministic: true,
    });
}
