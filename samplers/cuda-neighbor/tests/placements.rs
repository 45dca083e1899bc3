//! The properties of every sampler, for each kind of sampling, with the topology in host memory and cached.

use morphgl_batching_cuda_neighbor::{CudaSampler, NEIGHBOR, SHADOW, WALK};
use morphgl_conformance::batching::run;
use morphgl_registry::{Batching, BatchingContext, Build, Description, Result};
use serde_json::{Value, json};

/// The operator for the properties of every sampler; `conformance.rs` sets its options and compares it with the reference.
fn properties(of: Description, build: Build) {
    run(&Description { build, interchangeable: false, options: &[], ..of });
}

type New = fn(&BatchingContext) -> Result<CudaSampler>;

fn on_host(context: &BatchingContext, new: New) -> Result<Box<dyn Batching>> {
    build(context, json!({"topology": "host"}), new)
}

/// With room for some of the rows.
fn cached(context: &BatchingContext, new: New) -> Result<Box<dyn Batching>> {
    let topology = &context.dataset.topology;
    let bytes = 16 * topology.num_nodes() as u64 + topology.num_edges();
    build(context, json!({"topology": "cached", "topology_bytes": bytes}), new)
}

fn build(context: &BatchingContext, options: Value, new: New) -> Result<Box<dyn Batching>> {
    Ok(Box::new(new(&BatchingContext { options, ..context.clone() })?))
}

#[test]
fn conforms_with_the_topology_in_host_memory() {
    properties(NEIGHBOR, Build::Batching(|context| on_host(context, CudaSampler::neighbor)));
    properties(SHADOW, Build::Batching(|context| on_host(context, CudaSampler::shadow)));
    properties(WALK, Build::Batching(|context| on_host(context, CudaSampler::walk)));
}

#[test]
fn conforms_with_some_rows_cached() {
    properties(NEIGHBOR, Build::Batching(|context| cached(context, CudaSampler::neighbor)));
    properties(SHADOW, Build::Batching(|context| cached(context, CudaSampler::shadow)));
    properties(WALK, Build::Batching(|context| cached(context, CudaSampler::walk)));
}
