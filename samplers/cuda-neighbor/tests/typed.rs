//! Mini-batches by edge type equal the reference's with any settings and placement of the topology; and what is refused.

mod common;

use std::sync::Arc;

use common::{available, check, context, queries, reordered, sampler};
use morphgl_batching_cuda_neighbor::CudaSampler;
use morphgl_conformance::batching::{Case, GivenSet, graphs};
use morphgl_graph_store::{Dataset, EdgeType, NodeType, Topology, Types};
use morphgl_registry::{
    BatchId, Batching, CustomSettings, Expansion, Fanouts, GivenNodes, NeighborSettings, PairSettings, Pick, Sampling,
};
use morphgl_sampler_core::{SubRowEnds, TYPED};
use serde_json::{Value, json};

/// The case by edge type, with these settings.
fn typed(case: &Case, fanouts: &str, (expansion, pick): (Expansion, Pick), settings: Value) -> Case {
    let fanouts: Fanouts = fanouts.parse().expect("fanouts");
    let Value::Object(settings) = settings else { panic!("{settings} has no names") };
    let layers = fanouts.0.len();
    let hops = Some(NeighborSettings { fanouts, expansion, pick });
    case.with(|s| {
        s.sampling = Sampling::Custom(CustomSettings { kind: TYPED.name.to_string(), layers, hops, settings })
    })
}

/// Options of all placements of the topology; about a third of the rows are cached.
fn placements(case: &Case) -> [Value; 3] {
    let topology = &case.dataset.topology;
    let Sampling::Custom(custom) = &case.settings.sampling else { panic!("by edge type") };
    let is_timed = custom.settings.get("temporal").is_some_and(|times| times != "no");
    let nodes = topology.num_nodes() as u64;
    let [weights, keys, times, edge_times] = [
        topology.weights().is_some(),
        topology.draw_keys().is_some(),
        is_timed,
        is_timed && topology.edge_times().is_some(),
    ]
    .map(u64::from);
    let ends = topology.types().map_or(0, |types| SubRowEnds::num_bytes_of(types));
    let tables = (12 + 4 * weights + 4 * keys + 8 * times) * nodes + ends;
    let rows = (4 + 4 * weights + 8 * edge_times) * topology.num_edges() / 3;
    [
        json!({"topology": "device"}),
        json!({"topology": "host", "in_flight": 1}),
        json!({"topology": "cached", "topology_bytes": tables + rows.max(2000), "in_flight": 3}),
    ]
}

/// Checks a case and its reordered graph in every placement, and where the host queries sizes.
#[track_caller]
fn check_everywhere(case: &Case) {
    for case in [&reordered(case), case] {
        placements(case).into_iter().chain(queries()).for_each(|options| check(case, options));
    }
}

#[test]
fn batches_are_the_reference_s_in_every_placement() {
    if !available() {
        return;
    }
    let (all, new) = (Expansion::All, Expansion::New);
    for weights in [false, true] {
        let dataset = graphs::typed(130, 8, weights);
        let timed = Case::new(graphs::timed(&dataset, false, true)).of(&[7, 129, 0, 31, 7, 64, 99, 118, 2]);
        let plain = Case::new(dataset).of(&[7, 129, 0, 31, 7, 64, 99, 118, 2]);
        let by_type = "big-a-big=2,-1;c=0,3";
        check_everywhere(&typed(&plain, "3,2", (all, Pick::Uniform), json!({"fanouts_by_type": by_type})));
        check_everywhere(&typed(&plain, "3,2", (new, Pick::Uniform), json!({"disjoint": true})));
        check_everywhere(&typed(&timed, "3,40", (all, Pick::Uniform), json!({"temporal": "uniform"})));
        check_everywhere(&typed(&timed, "3,2", (new, Pick::Uniform), json!({"temporal": "last"})));
        if weights {
            let by_weight = (all, Pick::Weighted);
            check_everywhere(&typed(&plain, "3,40", by_weight, json!({"fanouts_by_type": by_type})));
            check_everywhere(&typed(&timed, "4,2", by_weight, json!({"temporal": "uniform"})));
        }
        let pairs = PairSettings { negatives: 1, ..PairSettings::default() };
        let pairs = timed.with(|s| s.batch_size = 30).of_edges(pairs);
        for settings in [json!({"fanouts_by_type": by_type}), json!({"temporal": "last"})] {
            check_everywhere(&typed(&pairs, "3,2", (all, Pick::Uniform), settings));
        }
    }
}

/// Many draws of long sub-rows, within times and not; of one the draws exceed shared memory.
#[test]
fn batches_of_hubs_are_the_reference_s() {
    if !available() {
        return;
    }
    let uniform = (Expansion::All, Pick::Uniform);
    let hub = Case::new(graphs::timed(&graphs::typed(900, 5, false), false, true)).of(&[0, 1, 0]);
    for settings in [json!({"temporal": "uniform"}), json!({"temporal": "last"}), json!({"disjoint": true})] {
        check(&typed(&hub, "200,40", uniform, settings), json!({"topology": "device"}));
    }
    let long = Case::new(graphs::timed(&graphs::typed(9000, 1, false), false, false)).of(&[0]);
    for settings in [json!({}), json!({"temporal": "uniform"})] {
        check(&typed(&long, "3000", uniform, settings), json!({"topology": "host"}));
    }
}

/// As many epochs as the counter numbers; pre-sampling takes the last ones.
#[test]
fn epochs_end_with_the_counter() {
    if !available() {
        return;
    }
    let case = typed(&Case::new(graphs::typed(90, 5, false)), "3,2", (Expansion::All, Pick::Uniform), json!({}));
    let sampler = sampler(&case, json!({"topology": "device"}));
    assert_eq!(sampler.last_epoch(), u32::from(u16::MAX));
    let mut worker = sampler.worker(1).expect("a worker");
    let mut made = |epoch| worker.prepare(BatchId { epoch, index: 0 }, None).and_then(|handle| handle.wait());
    assert!(made(65_535).is_ok(), "the last epoch");
    let error = made(65_536).expect_err("no such epoch").to_string();
    assert!(error.contains("65536 epochs at most"), "{error}");
    let hotness = sampler.presample(2).expect("two epochs");
    assert!(hotness.rows.iter().any(|&accesses| accesses > 0.0), "rows are read");
    let error = sampler.presample(70_000).expect_err("more epochs than there are").to_string();
    assert!(error.contains("give fewer"), "{error}");
    let given: Arc<dyn GivenNodes> = Arc::new(GivenSet::new(90, |_| true));
    assert!(sampler.worker_with_given(1, &given).is_none(), "no given nodes by edge type");
}

#[test]
fn what_has_no_place_is_refused() {
    if !available() {
        return;
    }
    let refused = |case: &Case, options: Value, why: &str| {
        let error = CudaSampler::new(&context(case, options)).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    };
    let uniform = (Expansion::All, Pick::Uniform);
    let case = Case::new(graphs::typed(90, 5, false));
    refused(&typed(&case, "3", uniform, json!({})), json!({"order": "pages"}), "leave it out");
    refused(&typed(&case, "3", uniform, json!({"temporal": "last"})), Value::Null, "the nodes have no times");
    refused(&typed(&case, "3", (uniform.0, Pick::Weighted), json!({})), Value::Null, "no edge weights");
    // A ring of 3,000 nodes, one of whose 100 edge types has edges.
    let ring: Dataset = graphs::cycle(3000);
    let nodes = vec![NodeType { name: "node".into(), count: 3000 }];
    let edge = |number| EdgeType { source: "node".into(), name: format!("e{number}"), target: "node".into() };
    let types = Types::new(nodes, (0..100).map(edge).collect()).expect("sound");
    let topology: Topology = ring.topology.clone().with_types(types, vec![0u16; 6000]).expect("sorted by type");
    let many = Case::new(Dataset { topology, ..ring });
    refused(&typed(&many, "3", uniform, json!({})), Value::Null, "Batching_CPU_Typed");
}
