//! Helpers of the tests.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use morphgl_batching_cuda_neighbor::{CudaSampler, NEIGHBOR};
use morphgl_conformance::batching::{Case, GivenSet, graphs, reference};
use morphgl_registry::{BatchId, Batching, BatchingContext, GivenNodes, HostBatch, MiniBatch, Sampling};
use serde_json::Value;

/// Whether there is a device; without one, prints a notice.
pub(crate) fn available() -> bool {
    morphgl_conformance::available(&NEIGHBOR)
}

pub(crate) fn context(case: &Case, options: Value) -> BatchingContext {
    case.context("cuda:0".parse().expect("a place"), options)
}

#[track_caller]
pub(crate) fn sampler(case: &Case, options: Value) -> CudaSampler {
    CudaSampler::new(&context(case, options)).expect("the case is valid")
}

/// The reference's mini-batch, without features, which are left to transferring.
pub(crate) fn expected(case: &Case, id: BatchId) -> HostBatch {
    reference::sample(&Case { gather: false, ..case.clone() }, id)
}

pub(crate) fn host(batch: &MiniBatch) -> HostBatch {
    match batch {
        MiniBatch::Host(batch) => batch.clone(),
        MiniBatch::Device(batch) => batch.to_host().expect("a copy"),
    }
}

/// Mini-batches of two epochs, each epoch's in flight at the same time, equal the reference's.
#[track_caller]
pub(crate) fn check(case: &Case, options: Value) {
    let sampler = sampler(case, options.clone());
    let mut worker = sampler.worker(1).expect("a worker");
    for epoch in [0, 7] {
        let ids = (0..sampler.num_batches() as u32).map(|index| BatchId { epoch, index });
        let handles: Vec<_> = ids.map(|id| (id, worker.prepare(id, None).expect("queued"))).collect();
        for (id, handle) in handles {
            let (batch, _) = handle.wait().expect("a mini-batch");
            let (made, expected) = (host(&batch), expected(case, id));
            assert_eq!(made.input_nodes, expected.input_nodes, "{id}, {options}, {:?}", case.settings);
            assert_eq!(made, expected, "{id}, {options}, {:?}", case.settings);
        }
    }
}

/// Mini-batches that leave the nodes unexpanded for which `given` is true, each epoch's in flight at the same time, equal the
/// reference's; ShaDow subgraphs and walks leave none out.
#[track_caller]
pub(crate) fn check_given(case: &Case, options: Value, given: impl Fn(u32) -> bool) {
    let sampler = sampler(case, options.clone());
    let set: Arc<dyn GivenNodes> = Arc::new(GivenSet::new(case.dataset.num_nodes(), &given));
    let worker = sampler.worker_with_given(1, &set);
    let Sampling::Neighbor(_) = &case.settings.sampling else { return assert!(worker.is_none(), "{options}") };
    let mut worker = worker.expect("neighbour sampling").expect("a worker");
    for epoch in [0, 7] {
        let ids = (0..sampler.num_batches() as u32).map(|index| BatchId { epoch, index });
        let handles: Vec<_> = ids.map(|id| (id, worker.prepare(id, None).expect("queued"))).collect();
        for (id, handle) in handles {
            let made = host(&handle.wait().expect("a mini-batch").0);
            let expected = reference::sample_with_given(&Case { gather: false, ..case.clone() }, id, &given);
            assert_eq!(made, expected, "{id}, {options}, {:?}", case.settings);
        }
    }
}

/// The case on the graph in another order, with draw keys: the same mini-batches but for the numbers of the nodes.
pub(crate) fn reordered(case: &Case) -> Case {
    let (dataset, new_of_old) = graphs::reordered(&case.dataset);
    let reordered = Case { dataset: Arc::new(dataset), ..case.clone() };
    let new = |&v: &u32| new_of_old[v as usize];
    match case.seeds.pairs() {
        None => reordered.of(&case.seeds.nodes().iter().map(new).collect::<Vec<_>>()),
        Some(pairs) => {
            let ends: Vec<[u32; 2]> = pairs.ends().iter().map(|[a, b]| [new(a), new(b)]).collect();
            let given: Vec<u32> = pairs.given().iter().map(new).collect();
            reordered.of_pairs_against(&ends, &given, *pairs.settings())
        }
    }
}

/// Options of all placements of the topology, for the graph of `case`, and both orders of lists on the host, where the kind has them.
pub(crate) fn placements(case: &Case) -> [Value; 5] {
    let topology = &case.dataset.topology;
    let (node, edge) = if topology.weights().is_some() { (16, 8) } else { (12, 4) };
    let node = if topology.draw_keys().is_some() { node + 4 } else { node };
    // About a third of the rows' bytes, and at least one row.
    let largest = (0..topology.num_nodes() as u32).map(|v| topology.degree(v)).max().unwrap_or(0);
    let rows = edge * (topology.num_edges() / 3).max(largest);
    let budget = node * topology.num_nodes() as u64 + rows;
    let by_page = |mut options: Value| {
        if !matches!(case.settings.sampling, Sampling::Walk(_)) {
            options["order"] = "pages".into();
        }
        options
    };
    [
        serde_json::json!({"topology": "device"}),
        serde_json::json!({"topology": "host", "in_flight": 1}),
        serde_json::json!({"topology": "cached", "topology_bytes": budget, "in_flight": 3}),
        by_page(serde_json::json!({"topology": "host", "lines": 1})),
        by_page(serde_json::json!({"topology": "cached", "topology_bytes": budget})),
    ]
}

/// Options by which the host queries the size of every hop, or of those with many edges.
pub(crate) fn queries() -> [Value; 2] {
    [
        serde_json::json!({"topology": "host", "hop_bytes": 0, "in_flight": 2}),
        serde_json::json!({"topology": "device", "hop_bytes": 2000}),
    ]
}

/// Checks the mini-batches of a case and of its reordered graph: in every placement of the topology, where the host queries the size
/// of every hop, and with little memory for hops.
pub(crate) fn check_everywhere(case: &Case) {
    for case in [&reordered(case), case] {
        for options in placements(case) {
            check(case, options);
        }
        queries().into_iter().for_each(|options| check(case, options));
    }
}
