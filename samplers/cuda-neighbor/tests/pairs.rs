//! Mini-batches of pairs equal the reference's on any graph, with any settings and placement of the topology; and what pairs are
//! refused.

mod common;

use std::sync::Arc;

use common::{available, check, check_everywhere, placements, queries, reordered, sampler};
use morphgl_conformance::batching::{Case, GivenSet, graphs, strategy};
use morphgl_registry::{
    Batching, GivenNodes, NegativeDistribution, PairSettings, Pick, Sampling, ShadowSettings, WalkSettings,
};
use proptest::prelude::*;
use serde_json::Value;

fn shadow(case: &Case) -> Case {
    let hops = case.settings.sampling.hops().expect("fanouts").clone();
    case.with(|s| s.sampling = Sampling::Shadow(ShadowSettings { hops, layers: 2 }))
}

fn walks(case: &Case, steps: WalkSettings) -> Case {
    case.with(|s| s.sampling = Sampling::Walk(steps))
}

/// Steps whose visits are compared with each other.
fn few_steps() -> WalkSettings {
    WalkSettings { walks: 6, length: 3, neighbors: 4, ..WalkSettings::of_layers(2) }
}

/// Steps whose visits are sorted.
fn many_steps() -> WalkSettings {
    WalkSettings { walks: 9, length: 20, neighbors: 7, ..WalkSettings::of_layers(2) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..Default::default() })]

    #[test]
    fn batches_are_the_reference_s(case in strategy::case_of_pairs()) {
        if !available() {
            return Ok(());
        }
        check_everywhere(&case);
        check_everywhere(&shadow(&case));
        [few_steps(), many_steps()].into_iter().for_each(|steps| check_everywhere(&walks(&case, steps)));
    }
}

/// Hubs that lose many edges, of which few, many and all neighbours are drawn; and single edges of many rows.
#[test]
fn hubs_and_single_edges() {
    if !available() {
        return;
    }
    let settings = PairSettings { negatives: 2, distribution: NegativeDistribution::Degree, ..PairSettings::default() };
    let hub: Vec<[u32; 2]> = (0..90).map(|v| [3 * v % 300, v % 2]).collect();
    for (i, (weights, pick)) in
        [(false, Pick::Uniform), (true, Pick::Uniform), (true, Pick::Weighted)].into_iter().enumerate()
    {
        let graph = Case::new(graphs::random(300, 12, weights)).with(|s| s.batch_size = 50);
        let hubs = |fanouts| graph.with_fanouts(fanouts).with_hops(|hops| hops.pick = pick).of_pairs(&hub, settings);
        let few = hubs("4,3");
        let single = few.of_edges(PairSettings { negatives: 1, ..settings });
        let walks = [few_steps(), many_steps()].map(|steps| walks(&few, steps));
        let cases = [few.clone(), hubs("50,2"), hubs("-1"), shadow(&few), single].into_iter().chain(walks);
        for (j, case) in cases.enumerate() {
            for case in [reordered(&case), case] {
                check(&case, placements(&case)[(i + j) % 5].take());
                check(&case, queries()[j % 2].take());
            }
        }
    }
}

#[test]
fn what_pairs_are_refused() {
    if !available() {
        return;
    }
    let case = Case::new(graphs::random(120, 7, false)).of_edges(PairSettings::default());
    let given: Arc<dyn GivenNodes> = Arc::new(GivenSet::new(case.dataset.num_nodes(), |v| v < 9));
    let worker = sampler(&case, Value::Null).worker_with_given(1, &given).expect("neighbour sampling");
    let error = worker.map(drop).expect_err("given nodes beside pairs").to_string();
    assert!(error.contains("layer split"), "{error}");
}
