//! The suite of phase Batching, for each kind of sampling. Under a sanitizer, a part of the combinations of settings is tested.

use morphgl_batching_cuda_neighbor::{NEIGHBOR, SHADOW, TYPED, WALK};
use morphgl_conformance::batching::run_some;

/// `[N, M]`: one of every N combinations of settings is tested, and one of every M of sampling by edge type. All of the latter take over
/// five minutes on an emulated device; under the thread sanitizer each takes seconds.
fn every() -> [usize; 2] {
    match option_env!("MORPHGL_SANITIZE") {
        None => [1, 7],
        Some("thread") => [29, 101],
        Some(_) => [7, 31],
    }
}

#[test]
fn neighbor_conforms() {
    run_some(&NEIGHBOR, every()[0]);
}

#[test]
fn shadow_conforms() {
    run_some(&SHADOW, every()[0]);
}

#[test]
fn walk_conforms() {
    run_some(&WALK, every()[0]);
}

#[test]
fn typed_conforms() {
    run_some(&TYPED, every()[1]);
}
