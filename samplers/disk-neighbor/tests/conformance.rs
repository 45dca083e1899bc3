//! The suite of phase Batching, each of its graphs written to disk first.

mod support;

use morphgl_batching_disk_neighbor::DESCRIPTION;
use morphgl_registry::{Build, Description};

#[test]
fn conforms() {
    let build = Build::Batching(|context| Ok(Box::new(support::build(context)?)));
    morphgl_conformance::batching::run(&Description { build, ..DESCRIPTION });
}
