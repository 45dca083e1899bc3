//! Lists read in the order of their pages are those read in the order of the nodes, and warps come to a page once.
#![cfg(feature = "emulate")]

mod common;

use common::{check, host, sampler};
use morphgl_batching_cuda_neighbor::{CudaSampler, NEIGHBOR};
use morphgl_conformance::batching::{Case, graphs};
use morphgl_cuda::{Device, emulation, statistics};
use morphgl_graph_store::{Array, Dataset, Topology};
use morphgl_platform::{Pages, splitmix64};
use morphgl_registry::{BatchId, Batching, Expansion, Pick, Place};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Threads of a block and of a warp.
const THREADS: usize = 128;
const WARP: usize = 32;

/// A graph whose nodes have `degree` neighbours each, in memory that begins with a page.
fn regular(num_nodes: usize, degree: usize) -> Dataset {
    let mut pages = Pages::zeroed(num_nodes * degree * size_of::<u32>()).expect("memory");
    (0u64..).zip(pages.chunks_mut(4)).for_each(|(i, bytes)| {
        bytes.copy_from_slice(&((splitmix64(i) % num_nodes as u64) as u32).to_ne_bytes());
    });
    let indices: Array<u32> = Array::from_pages(pages).expect("pages are aligned");
    let indptr: Vec<u64> = (0..=num_nodes as u64).map(|node| node * degree as u64).collect();
    let topology = Topology::new(indptr, indices, None).expect("a graph");
    Dataset { topology, ..graphs::random(num_nodes, 1, false) }
}

/// How often warps come to pages of the neighbours while a mini-batch is sampled.
fn visits(case: &Case, options: Value) -> u64 {
    let mut worker = sampler(case, options).worker(1).expect("a worker");
    let lists = bytemuck::cast_slice(case.dataset.topology.indices());
    let sample = || worker.prepare(BatchId { epoch: 0, index: 0 }, None).and_then(|h| h.wait()).expect("a mini-batch");
    emulation::count_loads(lists, 4096, sample).1.visits
}

/// A warp handles as many rows at a time as groups of lanes that draw fit it, after those of all other warps. In the order of pages it
/// comes to a page once, whose rows it has one after the other.
#[test]
fn a_warp_comes_to_a_page_once() {
    for (num_nodes, degree, fanout, lines) in
        [(2000, 64, 8, 1), (3000, 32, 4, 1), (900, 256, 16, 200), (2000, 128, 32, 1), (3000, 64, 5, 300)]
    {
        let nodes: Vec<u32> = (0..1600).map(|i| (splitmix64(i) % num_nodes as u64) as u32).collect();
        let case = Case::new(regular(num_nodes, degree)).of(&nodes).with_fanouts(&fanout.to_string());
        let case = case.with(|s| (s.shuffle, s.batch_size) = (false, nodes.len()));
        // No list lies on two pages.
        let mut pages: Vec<usize> = nodes.iter().map(|&node| node as usize * degree * 4 / 4096).collect();
        pages.sort_unstable();
        let width = (fanout as usize).next_power_of_two();
        // As many blocks as have the lines in flight, of a line per pick; fewer where they have no rows.
        let blocks = (lines as usize).div_ceil(THREADS / width * fanout as usize);
        let warps = blocks.min((nodes.len() * width).div_ceil(THREADS)) * THREADS / WARP;
        let chunks = || pages.chunks(WARP / width);
        let of_warp = |warp: usize| chunks().skip(warp).step_by(warps).flatten().collect::<BTreeSet<_>>();
        let expected: usize = (0..warps).map(|warp| of_warp(warp).len()).sum();
        let options = |order: &str| json!({"topology": "host", "order": order, "lines": lines});
        let what = format!("{fanout} of {degree} neighbours by {warps} warps");
        assert_eq!(visits(&case, options("pages")), expected as u64, "{what}");
        assert!(visits(&case, options("nodes")) > 3 * expected as u64 / 2, "{what}");
        check(&case, options("pages"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// For any expansion, cache, grid, and seeds that repeat; and with weights, where picks are read by another kernel.
    #[test]
    fn mini_batches_do_not_depend_on_the_order(
        (num_nodes, seeds) in (1usize..500).prop_flat_map(|num_nodes| {
            (Just(num_nodes), prop::collection::vec(0..num_nodes as u32, 1..300))
        }),
        (degree, weighted, pick) in (0usize..40, any::<bool>(), prop::sample::select(vec![Pick::Uniform, Pick::Weighted])),
        fanouts in prop::sample::select(vec!["1", "3,2", "32,1", "33,4", "-1,5", "5,-1,2"]),
        expansion in prop::sample::select(vec![Expansion::All, Expansion::New]),
        lines in prop::sample::select(vec![1, 100, 4000]),
        cached in 0u64..100,
        hop_bytes in prop::sample::select(vec![0u64, 3000, 1 << 26]),
    ) {
        let case = Case::new(graphs::random(num_nodes, degree, weighted)).of(&seeds).with_fanouts(fanouts);
        let case = case.with_hops(|h| (h.expansion, h.pick) = (expansion, if weighted { pick } else { Pick::Uniform })).with(|s| s.batch_size = 120);
        let edges = case.dataset.topology.num_edges();
        let budget = 16 * num_nodes as u64 + (4 + 4 * u64::from(weighted)) * edges * cached / 100;
        for placement in [json!({"topology": "host"}), json!({"topology": "cached", "topology_bytes": budget, "cache": "in-degree"})] {
            let mut options = placement;
            options["order"] = "pages".into();
            options["lines"] = lines.into();
            options["hop_bytes"] = hop_bytes.into();
            check(&case, options);
        }
    }
}

/// With auto, neighbours of 64 MiB are measured, once for all samplers of the graph, whatever was chosen; fewer are not.
#[test]
fn auto_measures_large_tables_alone() {
    // A device of its own: launches are counted.
    let place: Place = "cuda:64".parse().expect("a place");
    let device = Device::open(&place, &NEIGHBOR.key).expect("it is emulated");
    for (num_nodes, measured) in [(1 << 16, true), ((1 << 16) - 1, false)] {
        let seeds: Vec<u32> = (0..64).collect();
        let case = Case::new(regular(num_nodes, 256)).of(&seeds).with_fanouts("3,2");
        let options = json!({"topology": "host"});
        let launches = || {
            let before = statistics(&device).launches;
            let made = CudaSampler::new(&case.context(place.clone(), options.clone())).expect("the case is valid");
            (statistics(&device).launches > before, made)
        };
        let (first, sampler) = launches();
        assert_eq!((first, launches().0), (measured, false), "{num_nodes} nodes");
        let mut worker = sampler.worker(1).expect("a worker");
        let batch =
            worker.prepare(BatchId { epoch: 0, index: 0 }, None).and_then(|h| h.wait()).expect("a mini-batch").0;
        assert_eq!(host(&batch), common::expected(&case, BatchId { epoch: 0, index: 0 }));
    }
}
