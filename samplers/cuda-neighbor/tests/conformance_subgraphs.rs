//! The suite of phase Batching for ShaDow and random walks: a program beside `conformance`, since the thread sanitizer takes minutes for
//! each, one thread at a time.

mod parts;

use morphgl_batching_cuda_neighbor::{SHADOW, WALK};
use morphgl_conformance::batching::run_part;

#[test]
fn shadow_conforms() {
    run_part(&SHADOW, parts::run()[0]);
}

#[test]
fn walk_conforms() {
    run_part(&WALK, parts::run()[0]);
}
