//! The suite of phase Batching, for each kind of sampling.

use morphgl_batching_cuda_neighbor::{NEIGHBOR, SHADOW, TYPED, WALK};
use morphgl_conformance::batching::{run, run_some};

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
    let every = match option_env!("MORPHGL_SANITIZE") {
        // It takes over five minutes there.
        Some("thread") => return,
        Some(_) => 31,
        None => 7,
    };
    run_some(&TYPED, every);
}
