//! Properties of the device sampler: mini-batches in flight, budgets, refused settings.

mod common;

use std::sync::Arc;

use common::{available, check, context, expected, host, reordered, sampler};
use morphgl_batching_cuda_neighbor::{CudaSampler, NEIGHBOR, TopologyPlacement, select_rows};
use morphgl_conformance::batching::{Case, graphs, hops};
use morphgl_conformance::fake::Fake;
use morphgl_cuda::{CudaBatch, Device};
use morphgl_graph_store::Dataset;
use morphgl_hotness::{Policy, PolicyKind, PreSample};
use morphgl_registry::{BatchId, Batching, BatchingContext, Handle, MiniBatch, Pick, Place};
use serde_json::{Value, json};

fn id(epoch: u32, index: u32) -> BatchId {
    BatchId { epoch, index }
}

fn device() -> Device {
    Device::open(&"cuda:0".parse().expect("a place"), &NEIGHBOR.key).expect("the device is available")
}

/// Mini-batches in flight have memory of their own, and equal those made one at a time.
#[test]
fn several_mini_batches_are_in_flight() {
    if !available() {
        return;
    }
    let case = Case::new(graphs::random(400, 9, true)).with(|s| s.batch_size = 7);
    for in_flight in [1, 2, 5] {
        let sampler = sampler(&case, json!({"in_flight": in_flight}));
        let mut worker = sampler.worker(1).expect("a worker");
        let ids: Vec<BatchId> =
            (0..sampler.num_batches() as u32).flat_map(|i| [id(3, i), id(0, i), id(4, i)]).collect();
        let handles: Vec<Handle<MiniBatch>> = ids.iter().map(|&id| worker.prepare(id, None).expect("queued")).collect();
        let made: Vec<MiniBatch> = handles.into_iter().map(|handle| handle.wait().expect("a mini-batch").0).collect();
        for (id, batch) in ids.iter().zip(&made) {
            assert_eq!(host(batch), expected(&case, *id));
            let ours = CudaBatch::on(&device(), batch).expect("on the device");
            assert_eq!((ours.id, ours.features.is_none()), (*id, true), "features are left to transferring");
        }
    }
}

/// Access counts of the device equal those of the host for the same mini-batches.
#[test]
fn accesses_are_counted_as_on_the_host() {
    if !available() {
        return;
    }
    let case = Case::new(graphs::random(300, 6, false)).with_fanouts("3,2,2");
    for batches in [None, Some(2usize)] {
        let sampler = sampler(&case, json!({"presample_batches": batches}));
        let counted = sampler.presample(1).expect("counted");
        let mut on_host = Fake::new("Batching_CPU_Fake", &Arc::default());
        on_host.num_batches = sampler.num_batches();
        on_host.content = Arc::new(move |batch| {
            let mut worker = sampler.worker(1).expect("a worker");
            *batch = host(&worker.prepare(batch.id, None).and_then(Handle::wait).expect("a mini-batch").0);
        });
        let policy = PreSample { batching: &on_host, epochs: 1, batches, threads: 1 };
        let expected = policy.score(&case.dataset.topology, case.seeds.nodes(), &case.settings).expect("scored");
        assert_eq!(counted, expected);
    }
}

/// Rows are cached within the budget, the hottest first; a given hotness replaces pre-sampling.
#[test]
fn rows_are_cached_within_the_budget() {
    if !available() {
        return;
    }
    let case = Case::new(graphs::random(500, 8, false));
    let topology = &case.dataset.topology;
    let budget = 12 * 500 + 4 * topology.num_edges() / 4;
    let options = json!({"topology": "cached", "topology_bytes": budget});
    let sampler = sampler(&case, options.clone());
    assert_eq!(sampler.topology(), TopologyPlacement::Cached);
    assert!(sampler.topology_bytes() <= budget && sampler.topology_bytes() > 12 * 500, "{}", sampler.topology_bytes());
    let mut hotness = vec![0f32; 500];
    hotness[7] = 1.0;
    let with = CudaSampler::with_hotness(&context(&case, options), &hotness).expect("built");
    assert_eq!(with.topology_bytes(), 12 * 500 + 4 * topology.degree(7));
    let selected = select_rows(topology, &hotness, case.settings.neighbor().expect("fanouts"), budget).expect("a row");
    assert_eq!((selected.rows, selected.edges, selected.contains(7)), (1, topology.degree(7), true));
    let mut worker = with.worker(1).expect("a worker");
    let batch = worker.prepare(id(0, 0), None).and_then(|h| h.wait()).expect("a mini-batch").0;
    assert_eq!(host(&batch), expected(&case, id(0, 0)));
}

/// The policies of the run's caches rank the rows; mini-batches do not depend on them.
#[test]
fn rows_are_ranked_by_the_policy_that_is_named() {
    if !available() {
        return;
    }
    let case = Case::new(graphs::random(500, 8, true));
    let topology = &case.dataset.topology;
    let hops = case.settings.neighbor().expect("fanouts");
    // Tables of starts, lengths and sums of weights; a quarter of the rows.
    let budget = 16 * 500 + 8 * topology.num_edges() / 4;
    let held = |hotness: &[f32]| select_rows(topology, hotness, hops, budget).expect("room").bytes;
    let kinds = ["in-degree", "weighted-reverse-pagerank", "inclusion"]
        .map(|kind| kind.parse::<PolicyKind>().expect("a policy"));
    let scored = kinds.map(|kind| {
        let policy = kind.policy(case.settings.seed).expect("scored by the topology");
        let hotness = policy.score(topology, case.seeds.nodes(), &case.settings).expect("scored").rows;
        (kind.to_string(), held(&hotness))
    });
    let counted = sampler(&case, Value::Null).presample(2).expect("counted").rows;
    for (cache, bytes) in scored.into_iter().chain([("presample:2".to_string(), held(&counted))]) {
        for limit in ["topology_bytes", "cache_bytes"] {
            let options = json!({"cache": cache, "topology": "cached", limit: budget});
            assert_eq!(sampler(&case, options.clone()).topology_bytes(), bytes, "{options}");
            common::check(&case, options);
        }
    }
    // A policy that is named is not left out where `auto` would be, and `none` caches nothing.
    let little = |cache: &str| sampler(&case, json!({"cache": cache, "topology_bytes": 16 * 500 + 8 * 20})).topology();
    assert_eq!(
        ["auto", "none", "inclusion"].map(little),
        [TopologyPlacement::Host, TopologyPlacement::Host, TopologyPlacement::Cached]
    );
}

/// The budget decides the placement of the topology.
#[test]
fn placement_follows_the_budget() {
    if !available() {
        return;
    }
    let case = Case::new(graphs::random(500, 40, false));
    let edges = case.dataset.topology.num_edges();
    let whole = 8 * 501 + 4 * edges;
    let placement = |bytes: u64| sampler(&case, json!({"topology_bytes": bytes})).topology();
    assert_eq!(placement(whole), TopologyPlacement::Device);
    assert_eq!(placement(whole - 1), TopologyPlacement::Cached);
    assert_eq!(placement(12 * 500 + edges / 4), TopologyPlacement::Cached);
    assert_eq!(placement(12 * 500 + edges / 4 - 8), TopologyPlacement::Host);
    assert_eq!(placement(0), TopologyPlacement::Host);
}

/// The draw keys of a reordered graph lie beside the topology, within the same budget.
#[test]
fn draw_keys_are_charged_to_the_budget() {
    if !available() {
        return;
    }
    let case = reordered(&Case::new(graphs::random(500, 40, false)));
    let edges = case.dataset.topology.num_edges();
    let whole = 8 * 501 + 4 * edges + 4 * 500;
    let placed = |bytes: u64| {
        let sampler = sampler(&case, json!({"topology_bytes": bytes}));
        (sampler.topology(), sampler.topology_bytes())
    };
    assert_eq!(placed(whole), (TopologyPlacement::Device, whole));
    let (placement, bytes) = placed(whole - 1);
    assert!(placement == TopologyPlacement::Cached && bytes < whole, "{placement:?}, {bytes} bytes");
    let tables = 8 * 501 + 4 * 500;
    assert_eq!(placed(tables + edges / 4).0, TopologyPlacement::Cached);
    assert_eq!(placed(tables + edges / 4 - 8), (TopologyPlacement::Host, 0));
}

/// Of a graph reordered by hotness the rows of the first nodes are cached, and found without tables.
#[test]
fn rows_of_the_first_nodes_need_no_tables() {
    if !available() {
        return;
    }
    for weights in [false, true] {
        let case = reordered(&Case::new(graphs::random(500, 8, weights)));
        let topology = &case.dataset.topology;
        let hops = case.settings.neighbor().expect("fanouts");
        let edge = if weights { 8 } else { 4 };
        let tables = 8 * 501 + 4 * 500 + if weights { 4 * 500 } else { 0 };
        for rows in [0, 100, 500] {
            // Room for the rows that are accessed, but not for other tables.
            let edges = topology.indptr()[rows];
            let hotness: Vec<f32> = (0..500).map(|v| if v < rows { 1.0 } else { 0.0 }).collect();
            let budget = tables + edge * edges;
            let selected = select_rows(topology, &hotness, hops, budget).expect("room");
            assert_eq!((selected.edges, selected.bytes), (edges, budget));
            assert!((0..500).all(|v| selected.contains(v) == (u64::from(v) < selected.rows)));
            let options = json!({"topology": "cached", "topology_bytes": budget});
            let with = CudaSampler::with_hotness(&context(&case, options), &hotness).expect("built");
            assert_eq!((with.topology(), with.topology_bytes()), (TopologyPlacement::Cached, budget));
            let mut worker = with.worker(1).expect("a worker");
            for index in 0..with.num_batches() as u32 {
                let batch = worker.prepare(id(2, index), None).and_then(|h| h.wait()).expect("a mini-batch").0;
                assert_eq!(host(&batch), expected(&case, id(2, index)));
            }
        }
        // Where other rows save more, with their tables, these are cached.
        let last: Vec<f32> = (0..500).map(|v| if v < 400 { 0.0 } else { 1.0 }).collect();
        let budget = tables + 4 * 500 + edge * (topology.num_edges() - topology.indptr()[400]);
        let selected = select_rows(topology, &last, hops, budget).expect("room");
        assert!((0..500).all(|v| selected.contains(v) == (v >= 400 && topology.degree(v) > 0)));
        check(&case, json!({"topology": "cached", "topology_bytes": budget}));
    }
}

/// Graphs of the same arrays with other draw keys are not shared.
#[test]
fn draw_keys_tell_graphs_apart() {
    if !available() {
        return;
    }
    let case = reordered(&Case::new(graphs::random(300, 9, false)));
    let mut other = Dataset::clone(&case.dataset);
    let keys: Vec<u32> = (0..300).rev().collect();
    other.topology = other.topology.with_draw_keys(keys).expect("a permutation");
    let other = Case { dataset: Arc::new(other), ..case.clone() };
    let first = sampler(&case, Value::Null);
    check(&other, Value::Null);
    check(&case, Value::Null);
    drop(first);
}

#[track_caller]
fn refused(change: impl FnOnce(&mut BatchingContext), message: &str) {
    let mut context = context(&Case::new(graphs::random(120, 7, false)), Value::Null);
    change(&mut context);
    let error = CudaSampler::new(&context).expect_err("refused").to_string();
    assert!(error.contains(message), "{error}");
    assert!(!error.contains('\n') && !error.ends_with('.'), "{error}");
}

#[test]
fn invalid_settings_are_refused_with_cures() {
    if !available() {
        return;
    }
    refused(
        |c| c.place = Place::Host,
        "Batching_CUDA+PCIe_Neighbor: it runs on CUDA devices, not at host; give cuda:0",
    );
    refused(|c| hops(&mut c.settings).fanouts.0.clear(), "fanouts: there is none; give one per hop");
    refused(|c| c.settings.batch_size = 0, "batch size: a mini-batch needs at least one seed");
    refused(|c| hops(&mut c.settings).pick = Pick::Weighted, "weighted pick: the graph has no edge weights");
    refused(|c| c.options = json!({"topologies": "host"}), "Batching_CUDA+PCIe_Neighbor: options: unknown field");
    refused(|c| c.options = json!({"in_flight": 0}), "options: in_flight is 0; give 1 to 16");
    refused(|c| c.options = json!({"presample_epochs": 0}), "give at least 1");
    refused(|c| c.options = json!({"topology": "device", "topology_bytes": 9}), "more than the 9 it may have");
    refused(
        |c| c.options = json!({"topology": "cached", "topology_bytes": 1439}),
        "1439 bytes of topology_bytes and cache_bytes have no room",
    );
    refused(|c| c.options = json!({"cache": "lru"}), "cache lru: CSR rows on a device stay");
    refused(|c| c.options = json!({"cache": "hindsight"}), "give another policy");
    refused(|c| c.options = json!({"topology": "cached", "cache": "none"}), "caches nothing; give topology host");
    refused(
        |c| c.options = json!({"topology": "cached", "cache": "smoothed:2"}),
        "it is not scored by the topology alone; give presample:K",
    );
    let sampler = sampler(&Case::new(graphs::cycle(6)), Value::Null);
    assert!(sampler.worker(0).err().expect("refused").to_string().contains("give at least 1"));
    assert!(sampler.presample(0).expect_err("refused").to_string().contains("give at least 1"));
    let error = sampler.worker(1).expect("a worker").prepare(id(0, 9), None).expect_err("refused").to_string();
    assert_eq!(error, "mini-batch 9 of epoch 0: an epoch has 1; ask for an index below that");
    let hotness = CudaSampler::with_hotness(&context(&Case::new(graphs::cycle(6)), Value::Null), &[1.0]);
    assert!(hotness.expect_err("refused").to_string().contains("hotness of 1 nodes"));
}

/// Bounds beyond the device's memory, of which the emulated device has little.
#[cfg(feature = "emulate")]
#[test]
fn a_mini_batch_beyond_device_memory_is_refused() {
    if !available() {
        return;
    }
    let case = Case::new(graphs::random(60_000, 30, false));
    let case = case.with(|s| s.batch_size = 20_000).with_fanouts(&["30"; 20].join(","));
    let error = CudaSampler::new(&context(&case, json!({"in_flight": 16, "hop_bytes": 1u64 << 40})));
    let error = error.expect_err("refused").to_string();
    assert!(error.contains("16 mini-batches under way take up to") && error.contains("; give a smaller"), "{error}");
    // Hops are not allocated by their bounds here: what is too much are the pairs, and the rows that lose edges.
    let pairs = case.of_edges(morphgl_registry::PairSettings { negatives: 900, ..Default::default() });
    let error = CudaSampler::new(&context(&pairs, json!({"in_flight": 16, "hop_bytes": 0, "topology": "host"})));
    let error = error.expect_err("refused").to_string();
    assert!(error.contains("rows of pairs' ends that lose edges") && error.contains("; give a smaller"), "{error}");
}

/// The registry finds the operator by its description.
#[test]
fn the_operator_is_registered() {
    if !available() {
        return;
    }
    let registry = morphgl_registry::Registry::collect().expect("no key twice");
    let context = context(&Case::new(graphs::cycle(6)), Value::Null);
    let operator = registry.batching(&NEIGHBOR.key, &context).expect("the device is available");
    assert_eq!(operator.num_batches(), 1);
}
