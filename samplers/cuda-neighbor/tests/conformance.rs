//! The suite of phase Batching for sampling of neighbours. Under a sanitizer, a part of the graphs and of the combinations of settings is tested.

mod parts;

use morphgl_batching_cuda_neighbor::{NEIGHBOR, TYPED};

#[test]
fn neighbor_conforms() {
    parts::run(&NEIGHBOR);
}

#[test]
fn typed_conforms() {
    parts::run(&TYPED);
}
