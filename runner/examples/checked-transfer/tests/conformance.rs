//! The suites of the operators of this crate.

mod outside;

#[test]
fn conforms() {
    morphgl_conformance::transferring::run(&morphgl_transferring_cpu_checked::DESCRIPTION);
}

#[test]
fn the_sampler_with_mini_batches_of_its_own_conforms() {
    morphgl_conformance::batching::run(&morphgl_transferring_cpu_checked::labor::DESCRIPTION);
}

#[test]
fn the_sampler_conforms() {
    morphgl_conformance::batching::run(&morphgl_transferring_cpu_checked::mapped::DESCRIPTION);
}

/// The walk-through of a sampler outside of the repository: its manifest and test are those of the document, its file is ours.
#[test]
fn the_sampler_of_the_walk_through_conforms_outside_of_the_workspace() {
    outside::conforms("## A sampler\n", include_str!("../src/labor.rs"));
}
