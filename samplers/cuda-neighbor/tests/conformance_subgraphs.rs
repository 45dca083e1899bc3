//! The suite of phase Batching for ShaDow and random walks: a program beside `conformance`, since the thread sanitizer takes minutes for
//! each, one thread at a time.

mod parts;

use morphgl_batching_cuda_neighbor::{SHADOW, WALK};
use morphgl_conformance::batching::run_part;

#[test]
fn shadow_conforms() {
    let _suite = parts::alone();
    run_part(&SHADOW, parts::of(&SHADOW));
}

#[test]
fn walk_conforms() {
    let _suite = parts::alone();
    run_part(&WALK, parts::of(&WALK));
}
