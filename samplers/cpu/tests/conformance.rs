//! The suite of phase Batching, for each kind of sampling.

use morphgl_batching_cpu::{NEIGHBOR, SHADOW, TYPED, WALK};
use morphgl_conformance::batching::run;

#[test]
fn neighbor_conforms() {
    run(&NEIGHBOR);
}

#[test]
fn shadow_conforms() {
    run(&SHADOW);
}

#[test]
fn walk_conforms() {
    run(&WALK);
}

#[test]
fn typed_conforms() {
    run(&TYPED);
}
