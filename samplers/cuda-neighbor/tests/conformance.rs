//! The suite of phase Batching for sampling of neighbours. Under a sanitizer, a part of the combinations of settings is tested.

mod strides;

use morphgl_batching_cuda_neighbor::{NEIGHBOR, TYPED};
use morphgl_conformance::batching::run_some;

#[test]
fn neighbor_conforms() {
    run_some(&NEIGHBOR, strides::every()[0]);
}

#[test]
fn typed_conforms() {
    run_some(&TYPED, strides::every()[1]);
}
