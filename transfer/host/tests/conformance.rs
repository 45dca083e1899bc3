//! The suite of phase Transferring.

#[test]
fn conforms() {
    morphgl_conformance::transferring::run(&morphgl_transferring_cpu_host::DESCRIPTION);
}
