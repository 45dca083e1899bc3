//! The suite of phase Batching.

#[test]
fn conforms() {
    morphgl_conformance::batching::run_neighbor(&morphgl_batching_cuda_neighbor::DESCRIPTION);
}
