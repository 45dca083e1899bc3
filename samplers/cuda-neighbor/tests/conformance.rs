//! The suite of phase Batching, on the emulated device.
#![cfg(feature = "emulate")]

#[test]
fn conforms() {
    morphgl_conformance::batching::run_neighbor(&morphgl_batching_cuda_neighbor::DESCRIPTION);
}
