//! ShaDow subgraphs equal the reference's on any graph, with any settings and placement of the topology.

mod common;

use common::{available, check, check_everywhere, host, placements, reordered, sampler};
use morphgl_conformance::batching::{Case, graphs, strategy};
use morphgl_registry::{BatchId, Batching, Expansion, Pick, Sampling, ShadowSettings};
use proptest::prelude::*;
use serde_json::json;

/// The case with subgraphs of its hops in so many blocks.
fn subgraphs(case: &Case, layers: usize) -> Case {
    let hops = case.settings.sampling.hops().expect("fanouts").clone();
    case.with(|s| s.sampling = Sampling::Shadow(ShadowSettings { hops, layers }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..Default::default() })]

    #[test]
    fn batches_are_the_reference_s(case in strategy::case(), layers in 1usize..5) {
        if !available() {
            return Ok(());
        }
        check_everywhere(&subgraphs(&case, layers));
    }
}

/// Rows that a block reads, and rows of several lines; nodes of a table that is not direct; a single block, and many.
#[test]
fn long_rows_and_many_layers() {
    if !available() {
        return;
    }
    for weights in [false, true] {
        let case = Case::new(graphs::random(5000, 40, weights)).of(&[5, 0, 9, 0, 77]);
        for (i, (fanouts, layers)) in [("20", 2), ("300", 1), ("4,3", 6), ("-1", 3)].into_iter().enumerate() {
            let case = subgraphs(&case.with_fanouts(fanouts), layers);
            for (j, case) in [reordered(&case), case].into_iter().enumerate() {
                check(&case, placements(&case)[(i + j) % 5].take());
            }
        }
    }
}

/// Hops by weight, and of the new nodes alone.
#[test]
fn hops_of_every_kind() {
    if !available() {
        return;
    }
    for pick in [Pick::Uniform, Pick::Weighted] {
        for expansion in [Expansion::All, Expansion::New] {
            let case = Case::new(graphs::random(400, 9, true)).with_fanouts("4,40,3").with(|s| s.batch_size = 50);
            let case = subgraphs(&case.with_hops(|h| (h.pick, h.expansion) = (pick, expansion)), 3);
            let [device, .., cached_by_page] = placements(&case);
            [device, cached_by_page].into_iter().for_each(|options| check(&case, options));
        }
    }
}

/// Rows are counted once for each hop that expands their node, and once for the subgraph; features once for each mini-batch.
#[test]
fn accesses_are_counted() {
    if !available() {
        return;
    }
    let case = subgraphs(&Case::new(graphs::random(300, 6, false)).with_fanouts("3,2"), 4);
    let (sampler, hops) = (sampler(&case, json!({})), case.with(|s| s.sampling = hops_of(&case)));
    let counted = sampler.presample(1).expect("counted");
    let (mut features, mut rows) = (vec![0f32; 300], vec![0f32; 300]);
    let topology = &case.dataset.topology;
    for index in 0..sampler.num_batches() as u32 {
        let batch = common::expected(&hops, BatchId { epoch: u32::MAX, index });
        for &node in &batch.input_nodes {
            features[node as usize] += 1.0;
        }
        let expanded = batch.blocks.iter().map(|block| block.num_dst).chain([batch.input_nodes.len()]);
        for node in expanded.flat_map(|num| &batch.input_nodes[..num]).filter(|&&v| topology.degree(v) > 0) {
            rows[*node as usize] += 1.0;
        }
    }
    assert_eq!((&*counted.features, &*counted.rows), (&features[..], &rows[..]));
}

/// The hops alone, which find the same nodes.
fn hops_of(case: &Case) -> Sampling {
    Sampling::Neighbor(case.settings.sampling.hops().expect("fanouts").clone())
}

/// The nodes are those of the neighbour sampler with the same hops.
#[test]
fn nodes_are_those_of_the_hops() {
    if !available() {
        return;
    }
    let case = subgraphs(&Case::new(graphs::random(400, 9, false)), 2);
    let nodes = |case: &Case| {
        let mut worker = sampler(case, json!({})).worker(1).expect("a worker");
        host(&worker.prepare(BatchId { epoch: 2, index: 1 }, None).and_then(|h| h.wait()).expect("a mini-batch").0)
            .input_nodes
    };
    assert_eq!(nodes(&case), nodes(&case.with(|s| s.sampling = hops_of(&case))));
}
