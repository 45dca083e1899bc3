//! The suite of phase Batching for ShaDow and random walks: a program beside `conformance`, since the thread sanitizer takes minutes for
//! each, one thread at a time.

mod strides;

use morphgl_batching_cuda_neighbor::{SHADOW, WALK};
use morphgl_conformance::batching::run_some;

#[test]
fn shadow_conforms() {
    run_some(&SHADOW, strides::every()[0]);
}

#[test]
fn walk_conforms() {
    run_some(&WALK, strides::every()[0]);
}
