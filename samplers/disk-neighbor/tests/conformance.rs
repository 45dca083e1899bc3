//! The suite of phase Batching, each of its graphs written to disk first.

mod support;

use morphgl_batching_disk_neighbor::{NEIGHBOR, TYPED};
use morphgl_registry::{Build, Description};

fn run(description: &Description) {
    let build = Build::Batching(|context| Ok(Box::new(support::build(context)?)));
    morphgl_conformance::batching::run(&Description { build, ..description.clone() });
}

#[test]
fn neighbor_conforms() {
    run(&NEIGHBOR);
}

#[test]
fn typed_conforms() {
    run(&TYPED);
}
