//! The suite of phase Batching, for each kind of sampling. Under a sanitizer, a part of the combinations of settings is tested.

use morphgl_batching_cuda_neighbor::{NEIGHBOR, SHADOW, TYPED, WALK};
use morphgl_conformance::batching::run_some;

const IS_SANITIZED: bool = option_env!("MORPHGL_SANITIZE").is_some();

#[test]
fn neighbor_conforms() {
    run_some(&NEIGHBOR, if IS_SANITIZED { 7 } else { 1 });
}

#[test]
fn shadow_conforms() {
    run_some(&SHADOW, if IS_SANITIZED { 7 } else { 1 });
}

#[test]
fn walk_conforms() {
    run_some(&WALK, if IS_SANITIZED { 7 } else { 1 });
}

/// All combinations take over five minutes on an emulated device.
#[test]
fn typed_conforms() {
    run_some(&TYPED, if IS_SANITIZED { 31 } else { 7 });
}
