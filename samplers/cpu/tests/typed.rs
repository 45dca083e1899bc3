//! Sampling by edge type: any graph, settings and number of threads against the reference; and the distribution of picks, by chi-square
//! tests over fixed seeds at p = 1e-3.

use std::collections::HashMap;

use morphgl_batching_cpu::CpuTyped;
use morphgl_conformance::batching::{Case, graphs, reference};
use morphgl_graph_store::{Dataset, EdgeType, NodeType, Topology, Types};
use morphgl_registry::{
    BatchId, Batching, CustomSettings, Expansion, Fanouts, HostBatch, NeighborSettings, Pick, Place, Sampling,
};
use morphgl_sampler_core::{MAX_TYPED_EPOCHS, TYPED};
use proptest::prelude::*;
use serde_json::Value;

fn typed(hops: NeighborSettings, by_type: &str) -> Sampling {
    let settings = [("fanouts_by_type".to_string(), by_type.into())].into_iter().collect();
    let layers = hops.fanouts.0.len();
    Sampling::Custom(CustomSettings { kind: TYPED.name.into(), layers, hops: Some(hops), settings })
}

fn sampler(case: &Case) -> CpuTyped {
    CpuTyped::new(&case.context(Place::Host, Value::Null)).expect("the case is valid")
}

fn fanout() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 1i64..9, 1 => 60i64..70, 1 => Just(-1)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..Default::default() })]

    #[test]
    fn batches_are_the_reference_s(
        (num_nodes, degree, weights) in (4usize..200, 0usize..40, any::<bool>()),
        hops in prop::collection::vec((fanout(), prop_oneof![1 => Just(0), 3 => fanout()]), 1..4),
        (new, weighted, seed) in (any::<bool>(), any::<bool>(), any::<u64>()),
        (epoch, threads) in (0..MAX_TYPED_EPOCHS, 1usize..4),
    ) {
        let list = |fanouts: Vec<i64>| fanouts.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let (all, own): (Vec<i64>, Vec<i64>) = hops.into_iter().unzip();
        let settings = NeighborSettings {
            fanouts: list(all).parse().expect("fanouts"),
            expansion: if new { Expansion::New } else { Expansion::All },
            pick: if weights && weighted { Pick::Weighted } else { Pick::Uniform },
        };
        let case = Case::new(graphs::typed(num_nodes, degree, weights));
        let case = case.with(|s| (s.seed, s.sampling) = (seed, typed(settings, &format!("big-a-big={}", list(own)))));
        let sampler = sampler(&case);
        let mut worker = sampler.worker(threads).expect("a worker");
        let mut recycled = None;
        for index in 0..sampler.num_batches() as u32 {
            let id = BatchId { epoch, index };
            let (batch, _) = worker.prepare(id, recycled.take()).and_then(|h| h.wait()).expect("a mini-batch");
            prop_assert_eq!(batch.host().expect("in host memory"), &reference::sample(&case, id));
            recycled = Some(batch);
        }
    }
}

/// Node 0 with edges of two types: six from nodes 1 to 6, and five from nodes 7 to 11.
fn star() -> Dataset {
    let node = |name: &str, count| NodeType { name: name.into(), count };
    let edge = |source: &str| EdgeType { source: source.into(), name: "to".into(), target: "center".into() };
    let nodes = vec![node("center", 1), node("left", 6), node("right", 5)];
    let types = Types::new(nodes, vec![edge("left"), edge("right")]).expect("sound");
    let indptr: Vec<u64> = std::iter::once(0).chain([11; 12]).collect();
    let topology = Topology::new(indptr, (1..12).collect::<Vec<u32>>(), None).expect("a graph");
    Dataset::new("star", topology.with_types(types, vec![0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1]).expect("sorted"))
}

fn first_batch(case: &Case, epoch: u32) -> HostBatch {
    let mut worker = sampler(case).worker(1).expect("a worker");
    let handle = worker.prepare(BatchId { epoch, index: 0 }, None).and_then(|handle| handle.wait());
    handle.and_then(|(batch, _)| batch.into_host()).expect("a mini-batch in host memory")
}

/// Two of six left and two of five right neighbours: each of the 15 x 10 pairs of subsets is equally likely, so that neighbours are
/// picked with probability fanout / degree within their type, independently of the other type.
#[test]
fn every_pair_of_subsets_is_equally_likely() {
    let case = Case::new(star()).of(&[0]);
    let two = "2".parse::<Fanouts>().expect("a fanout");
    let mut counts: HashMap<Vec<u32>, u32> = HashMap::new();
    let rounds = 12_000;
    for round in 0..rounds {
        let case = case.with(|s| (s.seed, s.sampling) = (round / 100, typed(two.clone().into(), "")));
        let batch = first_batch(&case, (round % 100) as u32);
        *counts.entry(batch.input_nodes[1..].to_vec()).or_default() += 1;
    }
    let mean = rounds as f64 / 150.0;
    assert!(counts.keys().all(|picked| picked[1] <= 6 && picked[2] > 6), "two of each type, in the order of the row");
    let seen: f64 = counts.values().map(|&count| (f64::from(count) - mean).powi(2) / mean).sum();
    let statistic = seen + (150 - counts.len()) as f64 * mean;
    // 149 degrees of freedom.
    assert!(statistic < 208.1, "chi-square {statistic:.1}");
}

#[test]
fn epochs_beyond_the_counter_are_refused() {
    let case = Case::new(star()).of(&[0]);
    let case = case.with(|s| s.sampling = typed("2".parse::<Fanouts>().expect("a fanout").into(), ""));
    let mut worker = sampler(&case).worker(1).expect("a worker");
    let id = BatchId { epoch: MAX_TYPED_EPOCHS, index: 0 };
    let error = worker.prepare(id, None).and_then(|handle| handle.wait()).expect_err("refused").to_string();
    assert!(error.contains("65536 epochs at most"), "{error}");
}
