//! The suite of phase Batching for sampling of neighbours. Under a sanitizer, a part of the graphs and of the combinations of settings is tested.

mod parts;

use morphgl_batching_cuda_neighbor::{NEIGHBOR, TYPED};
use morphgl_conformance::batching::run_part;

#[test]
fn neighbor_conforms() {
    let _suite = parts::alone();
    run_part(&NEIGHBOR, parts::of(&NEIGHBOR));
}

#[test]
fn typed_conforms() {
    let _suite = parts::alone();
    run_part(&TYPED, parts::of(&TYPED));
}
