//! The suite of phase Batching, each of its graphs written to disk first.

mod support;

use morphgl_batching_disk_neighbor::{NEIGHBOR, TYPED};
use morphgl_conformance::batching::{Part, run_part};
use morphgl_registry::{Build, Description};

fn run(description: &Description) {
    let build = Build::Batching(|context| Ok(Box::new(support::build(context)?)));
    // All settings take minutes on a disk; the tests `equality` and `typed` draw random ones.
    let part = Part { cases: 1, settings: 7 };
    run_part(&Description { build, ..description.clone() }, part);
}

#[test]
fn neighbor_conforms() {
    run(&NEIGHBOR);
}

#[test]
fn typed_conforms() {
    run(&TYPED);
}
