//! The suite of phase Transferring.

#[test]
fn conforms() {
    morphgl_conformance::transferring::run(&morphgl_transferring_cpu_checked::DESCRIPTION);
}

#[test]
fn the_sampler_conforms() {
    morphgl_conformance::batching::run_neighbor(&morphgl_transferring_cpu_checked::mapped::DESCRIPTION);
}
