//! Published outputs of pyg-lib and GraphBolt.

use std::sync::Arc;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_conformance::batching::graphs;
use morphgl_graph_store::{Array, Dataset, Topology};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Expansion, Fanouts, HostBatch, NeighborSettings, Pick, SamplerSettings, SeedSet,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

fn list<T: DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).expect("a list of numbers")
}

/// The one mini-batch of all seeds, as pyg expands and in the order given.
fn sample(topology: Topology, seeds: &[u32], fanouts: &str, pick: Pick) -> HostBatch {
    let dataset = Dataset { topology, ..graphs::bare(&graphs::cycle(1)) };
    let seeds = SeedSet::new("seeds", seeds, dataset.num_nodes()).expect("seeds");
    let fanouts: Fanouts = fanouts.parse().expect("fanouts");
    let hops = NeighborSettings { fanouts, expansion: Expansion::New, pick };
    let settings = SamplerSettings { shuffle: false, ..hops.into() };
    let context = BatchingContext::new(Arc::new(dataset), seeds, settings);
    let mut worker = CpuNeighbor::new(&context).and_then(|s| s.worker(1)).expect("a worker");
    let handle = worker.prepare(BatchId::default(), None).expect("the mini-batch");
    handle.wait().and_then(|(batch, _)| batch.into_host()).expect("the mini-batch")
}

/// Calls `test` with the reference output `name`.
#[track_caller]
fn check(name: &str, test: impl Fn(&Value)) {
    let path = morphgl_testdata::path("reference-outputs/reference.json");
    let text = std::fs::read_to_string(path).expect("the reference outputs can be read");
    let all: Value = serde_json::from_str(&text).expect("the reference outputs are JSON");
    assert!(all[name].is_object(), "there is no reference output {name}");
    test(&all[name]);
}

/// pyg lists edges hop after hop; `row` is the destination node's local id, `col` the source node's.
fn check_pyg(name: &str, pick: Pick) {
    check(name, |case| {
        let weights = case.get("edge_weight").map(|w| Array::from(list::<f32>(w)));
        let (indptr, indices): (Vec<u64>, Vec<u32>) = (list(&case["graph"]["rowptr"]), list(&case["graph"]["col"]));
        let topology = Topology::new(indptr, indices, weights).expect("the reference's graph");
        let fanouts: Vec<String> = list::<i64>(&case["fanouts"]).iter().map(i64::to_string).collect();
        let batch = sample(topology, &list::<u32>(&case["seeds"]), &fanouts.join(","), pick);
        let expect = &case["expect"];
        assert_eq!(batch.input_nodes, list::<u32>(&expect["nodes"]));
        let (mut row, mut col, mut edges) = (Vec::new(), Vec::<u32>::new(), Vec::new());
        for block in batch.blocks.iter().rev() {
            edges.push(block.num_edges());
            for dst in 0..block.num_dst {
                row.extend(block.row(dst).iter().map(|_| dst as u32));
                col.extend(block.row(dst));
            }
        }
        assert_eq!((row, col), (list(&expect["row"]), list(&expect["col"])));
        if expect.get("edges_per_hop").is_some() {
            assert_eq!(edges, list::<usize>(&expect["edges_per_hop"]));
            let mut nodes = vec![batch.num_seeds];
            nodes.extend(batch.blocks.iter().rev().map(|b| b.num_src - b.num_dst));
            assert_eq!(nodes, list::<usize>(&expect["nodes_per_hop"]));
        }
    });
}

#[test]
fn pyg_neighbor_full_2hop() {
    check_pyg("pyg_neighbor_full_2hop", Pick::Uniform);
}

#[test]
fn pyg_neighbor_zero() {
    check_pyg("pyg_neighbor_zero", Pick::Uniform);
}

#[test]
fn pyg_neighbor_biased_even_edges() {
    check_pyg("pyg_neighbor_biased_even_edges", Pick::Weighted);
}

#[test]
fn gb_in_subgraph_homo() {
    check("gb_in_subgraph_homo", |case| {
        let indices = list::<u32>(&case["csc"]["indices"]);
        // The weight of an edge is its id, so that ids can be compared too.
        let ids = Array::from((0..indices.len()).map(|e| e as f32).collect::<Vec<_>>());
        let topology = Topology::new(list::<u64>(&case["csc"]["indptr"]), indices, Some(ids));
        let batch = sample(topology.expect("the reference's graph"), &list::<u32>(&case["nodes"]), "-1", Pick::Uniform);
        let (block, expect) = (&batch.blocks[0], &case["expect"]);
        assert_eq!(block.indptr, list::<u32>(&expect["indptr"]));
        let global: Vec<u32> = block.indices.iter().map(|&i| batch.input_nodes[i as usize]).collect();
        assert_eq!(global, list::<u32>(&expect["indices"]));
        assert_eq!(block.weights.as_deref(), Some(&list::<f32>(&expect["edge_ids"])[..]));
    });
}

/// Whole rows of the given graph: GraphBolt's relabelling seen through the sampler.
#[test]
fn gb_unique_and_compact_csc_homo() {
    check("gb_unique_and_compact_csc_homo", |case| {
        let (seeds, indices) = (list::<u32>(&case["seeds"]), list::<u32>(&case["indices"]));
        let indptr = list::<usize>(&case["indptr"]);
        let mut rows = vec![Vec::new(); 7];
        for (i, &seed) in seeds.iter().enumerate() {
            rows[seed as usize] = indices[indptr[i]..indptr[i + 1]].to_vec();
        }
        let batch = sample(graphs::dataset(&rows, None).topology, &seeds, "-1", Pick::Uniform);
        assert_eq!(batch.blocks[0].indices, list::<u32>(&case["expect"]["indices"]));
        assert_eq!(batch.input_nodes, list::<u32>(&case["expect"]["unique"]));
    });
}
