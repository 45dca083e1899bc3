//! The suite of phase Batching.

#[test]
fn conforms() {
    morphgl_conformance::batching::run(&morphgl_batching_cpu_shadow::DESCRIPTION);
}
