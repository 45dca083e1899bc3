//! The suite of phase Batching, for every placement of the topology.

use morphgl_batching_cuda_neighbor::{CudaNeighbor, DESCRIPTION};
use morphgl_registry::{Batching, BatchingContext, Build, Description, Result};
use serde_json::{Value, json};

#[test]
fn conforms() {
    morphgl_conformance::batching::run(&DESCRIPTION);
}

/// The operator for the properties of every sampler; [`conforms`] sets its options and compares it with the reference.
fn properties(build: Build) -> Description {
    Description { build, interchangeable: false, options: &[], ..DESCRIPTION }
}

fn build(context: &BatchingContext, options: Value) -> Result<Box<dyn Batching>> {
    Ok(Box::new(CudaNeighbor::new(&BatchingContext { options, ..context.clone() })?))
}

#[test]
fn conforms_with_the_topology_in_host_memory() {
    let build = Build::Batching(|context| build(context, json!({"topology": "host"})));
    morphgl_conformance::batching::run(&properties(build));
}

#[test]
fn conforms_with_some_rows_cached() {
    let build = Build::Batching(|context| {
        let topology = &context.dataset.topology;
        let bytes = 16 * topology.num_nodes() as u64 + topology.num_edges();
        build(context, json!({"topology": "cached", "topology_bytes": bytes}))
    });
    morphgl_conformance::batching::run(&properties(build));
}
