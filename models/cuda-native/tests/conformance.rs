//! The suite of phase Training, on the emulated device.
#![cfg(feature = "emulate")]

mod common;

use common::{place, transfer};
use morphgl_conformance::training::{Subject, check};
use morphgl_training_cuda_native::CudaNative;

#[test]
fn conformance() {
    check(&Subject {
        build: &|context| Ok(Box::new(CudaNative::new(context)?)),
        place: place(),
        transfer: &transfer,
        deterministic: true,
    });
}
