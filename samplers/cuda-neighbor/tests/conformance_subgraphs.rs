//! The suite of phase Batching for ShaDow and random walks: a program beside `conformance`, since the thread sanitizer takes minutes for
//! each, one thread at a time.

mod parts;

use morphgl_batching_cuda_neighbor::{SHADOW, WALK};

#[test]
fn shadow_conforms() {
    parts::run(&SHADOW);
}

#[test]
fn walk_conforms() {
    parts::run(&WALK);
}
