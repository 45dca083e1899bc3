//! Mini-batches equal the reference's on any graph, with any settings and placement of the topology.

mod common;

use common::{available, check, check_everywhere, check_given, host, placements, queries, reordered, sampler};
use morphgl_conformance::batching::{Case, graphs, strategy};
use morphgl_registry::{BatchId, Batching, Expansion, HostBatch, Pick};
use proptest::prelude::*;
use serde_json::json;

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..Default::default() })]

    #[test]
    fn batches_are_the_reference_s(case in strategy::case()) {
        if !available() {
            return Ok(());
        }
        check_everywhere(&case);
    }

    #[test]
    fn batches_with_given_nodes_are_the_reference_s(case in strategy::case(), factor in any::<u32>(), share in 0u32..=8) {
        if !available() {
            return Ok(());
        }
        let given = |node: u32| node.wrapping_mul(factor | 1) >> 3 & 7 < share;
        for case in [&reordered(&case), &case] {
            for options in placements(case).into_iter().chain(queries()) {
                check_given(case, options, given);
            }
        }
    }
}

/// Rows longer than one warp handles; uniform and weighted picks of more edges than a warp has lanes, and than fit shared
/// memory.
#[test]
fn long_rows_and_large_picks() {
    if !available() {
        return;
    }
    for weights in [false, true] {
        let case = Case::new(graphs::random(5000, 3, weights)).of(&[5, 0, 9]);
        for fanouts in ["32", "33", "100,3", "2000", "4000", "4999", "5000", "5001", "-1"] {
            for pick in [Pick::Uniform, Pick::Weighted] {
                if pick == Pick::Weighted && !weights {
                    continue;
                }
                let case = case.with_fanouts(fanouts).with_hops(|h| h.pick = pick);
                for case in [reordered(&case), case] {
                    placements(&case).into_iter().for_each(|options| check(&case, options));
                }
            }
        }
    }
}

/// Mini-batches of a reordered graph are those of the original but for the numbers of the nodes: with seeds that repeat, both
/// picks and expansions, all of the topology on the device, and cached rows.
#[test]
fn a_reordered_graph_gives_the_same_mini_batches() {
    if !available() {
        return;
    }
    for (pick, expansion) in [
        (Pick::Uniform, Expansion::All),
        (Pick::Uniform, Expansion::New),
        (Pick::Weighted, Expansion::All),
        (Pick::Weighted, Expansion::New),
    ] {
        let seeds: Vec<u32> = (0..120).map(|i| i * 7 % 90).collect();
        let original = Case::new(graphs::random(400, 9, true)).of(&seeds).with_fanouts("4,40,3");
        let original = original.with_hops(|h| (h.pick, h.expansion) = (pick, expansion)).with(|s| s.batch_size = 50);
        let case = reordered(&original);
        let keys = case.dataset.topology.draw_keys().expect("a reordered graph");
        let budget = 20 * 400 + 8 * case.dataset.topology.num_edges() / 3;
        for options in [json!({}), json!({"cache": "in-degree", "topology": "cached", "topology_bytes": budget})] {
            let batches = |case: &Case| {
                let mut worker = sampler(case, options.clone()).worker(1).expect("a worker");
                let ids = (0..3).map(|index| BatchId { epoch: 4, index });
                ids.map(|id| host(&worker.prepare(id, None).and_then(|h| h.wait()).expect("a mini-batch").0))
                    .collect::<Vec<_>>()
            };
            for (batch, expected) in batches(&case).into_iter().zip(batches(&original)) {
                let named = batch.input_nodes.iter().map(|&v| keys[v as usize]).collect();
                assert_eq!(HostBatch { input_nodes: named, ..batch }, expected, "{pick:?} {expansion:?} {options}");
            }
            check(&case, options);
        }
    }
}

/// Mini-batches of tens of thousands of edges: several blocks, and several tiles per block.
#[test]
fn large_mini_batches_use_several_blocks() {
    if !available() {
        return;
    }
    let case = Case::new(graphs::random(3000, 12, true)).with_fanouts("10,-1,5");
    let case = case.with(|s| s.batch_size = 1000);
    for options in placements(&case) {
        check(&case, options);
    }
}

/// Thousands of nodes found by the last hop but one, which several blocks divide.
#[test]
fn large_mini_batches_with_given_nodes() {
    if !available() {
        return;
    }
    let seeds: Vec<u32> = (0..600).collect();
    let case = Case::new(graphs::random(9000, 15, true)).of(&seeds).with_fanouts("-1,2").with(|s| s.batch_size = 500);
    for given in [|v: u32| !v.is_multiple_of(3), |v: u32| v.is_multiple_of(100), |_: u32| true] {
        for expansion in [Expansion::All, Expansion::New] {
            check_given(&case.with_hops(|h| h.expansion = expansion), json!({"topology": "device"}), given);
        }
    }
}

/// Weights from the smallest to the largest f32, in any ratio.
#[test]
fn weights_of_all_sizes() {
    if !available() {
        return;
    }
    let rows: Vec<Vec<u32>> = (0..40u32).map(|v| (0..v * 9).map(|i| (i * 7 + v) % 40).collect()).collect();
    let num_edges = rows.iter().map(Vec::len).sum::<usize>() as u32;
    let weights = (0..num_edges).map(|e| match e % 11 {
        0 => f32::from_bits(1 + e),
        1 => f32::MIN_POSITIVE,
        2 => f32::MAX,
        3 => 0.0,
        _ => f32::from_bits(0x3000_0000 + e.wrapping_mul(0x9E37_79B9) % 0x1800_0000),
    });
    let case = Case::new(graphs::dataset(&rows, Some(weights.collect())));
    for fanouts in ["3,2", "32", "60,40", "-1"] {
        let case = case.with_fanouts(fanouts).with_hops(|h| h.pick = Pick::Weighted);
        for options in placements(&case) {
            check(&case, options);
        }
    }
}
