//! Sampling by edge type from disk makes the mini-batches of `Batching_CPU_Typed`, with any settings, budget and options.

mod support;

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;

use half::f16;
use morphgl_batching_cpu::{CpuNeighbor, CpuTyped};
use morphgl_batching_disk_neighbor::DiskNeighbor;
use morphgl_conformance::batching::{Case, graphs};
use morphgl_conformance::training::features_by_type;
use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_hotness::CachePolicy;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, CustomSettings, Expansion, HostBatch, MiniBatch, NeighborSettings,
    PairSettings, Pick, Place, Sampling,
};
use morphgl_sampler_core::TYPED;
use proptest::prelude::*;
use serde_json::{Value, json};
use support::caches::{build, options};

fn typed(hops: NeighborSettings, by_type: &str, (disjoint, temporal): (bool, &str)) -> Sampling {
    let settings = [("fanouts_by_type", by_type.into()), ("disjoint", disjoint.into()), ("temporal", temporal.into())];
    let settings = settings.map(|(name, value): (&str, Value)| (name.to_string(), value)).into_iter().collect();
    let layers = hops.fanouts.0.len();
    Sampling::Custom(CustomSettings { kind: TYPED.name.into(), layers, hops: Some(hops), settings })
}

fn batches(operator: &dyn Batching, epoch: u32) -> Vec<HostBatch> {
    let (mut worker, mut recycled) = (operator.worker(1).expect("a worker"), None);
    let prepare = |index| {
        let batch = worker.prepare(BatchId { epoch, index }, recycled.take()).and_then(|handle| handle.wait());
        let batch = batch.expect("a mini-batch").0.into_host().expect("in host memory");
        recycled = Some(MiniBatch::Host(batch.clone()));
        batch
    };
    (0..operator.num_batches() as u32).map(prepare).collect()
}

/// The graph with features per node type, in rows of different length and element type, and none of one type.
fn with_features_by_type(dataset: Dataset) -> Dataset {
    let types = dataset.topology.types().expect("a typed graph");
    let [big, small] = [0, 2].map(|number| types.range(number).len());
    let of_big = FeatureMatrix::F16 {
        data: (0..big * 40).map(|i| f16::from_f32((i % 512) as f32)).collect::<Vec<_>>().into(),
        dim: 40,
    };
    let of_small = FeatureMatrix::F32 { data: (0..small * 3).map(|i| i as f32).collect::<Vec<_>>().into(), dim: 3 };
    Dataset { features: None, features_by_type: vec![Some(of_big), None, Some(of_small)], ..dataset }
}

/// The graph with features of edges: each edge has a row of those of its type, which one type does not have.
fn with_edge_features(dataset: Dataset) -> Dataset {
    let count = dataset.topology.num_edges();
    let types = dataset.topology.types().map_or(1, |types| types.edge_types().len());
    let of_type = |number: usize| {
        let values: Vec<f32> = (0..EDGE_ROWS * 2).map(|i| i as f32).collect();
        (types == 1 || number != 3).then(|| FeatureMatrix::F32 { data: values.into(), dim: 2 })
    };
    let ids: Vec<u32> = (0..count as u32).map(|edge| edge.wrapping_mul(0x9E37_79B9) % EDGE_ROWS as u32).collect();
    dataset.with_edge_features(ids, (0..types).map(of_type).collect()).expect("a row per edge")
}

/// Rows of the features of an edge type.
const EDGE_ROWS: usize = 1000;

/// Adds the features that a sampler in memory leaves to training.
fn gather_by_type(dataset: &Dataset, batch: &mut HostBatch) {
    if !dataset.features_by_type.is_empty() {
        batch.features_by_type = features_by_type(dataset, &batch.input_nodes);
    }
}

fn fanout() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 1i64..9, 1 => 60i64..70, 1 => Just(-1)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..Default::default() })]

    #[test]
    fn batches_equal_those_of_the_sampler_in_memory(
        (num_nodes, degree, weights) in (4usize..900, 0usize..40, any::<bool>()),
        hops in prop::collection::vec((fanout(), prop_oneof![1 => Just(0), 3 => fanout()]), 1..4),
        (new, weighted, seed, epoch) in (any::<bool>(), any::<bool>(), any::<u64>(), 0u32..60_000),
        (disjoint, temporal, ascends, of_edges) in (any::<bool>(), 0usize..4, any::<bool>(), any::<bool>()),
        (pairs, negatives, reordered, by_type) in (any::<bool>(), 0u32..4, any::<bool>(), any::<bool>()),
        has_edge_features in any::<bool>(),
        options in options(),
    ) {
        let temporal = ["no", "no", "uniform", if weights && weighted { "uniform" } else { "last" }][temporal];
        let list = |fanouts: Vec<i64>| fanouts.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let (all, own): (Vec<i64>, Vec<i64>) = hops.into_iter().unzip();
        let hops = NeighborSettings {
            fanouts: list(all).parse().expect("fanouts"),
            expansion: if new { Expansion::New } else { Expansion::All },
            pick: if weights && weighted { Pick::Weighted } else { Pick::Uniform },
        };
        let dataset = graphs::timed(&graphs::typed(num_nodes, degree, weights), ascends, of_edges);
        let dataset = if reordered { graphs::reordered(&dataset).0 } else { dataset };
        let dataset = if has_edge_features { with_edge_features(dataset) } else { dataset };
        let case = Case::new(if by_type { with_features_by_type(dataset) } else { dataset });
        let sampling = typed(hops, &format!("big-a-big={}", list(own)), (disjoint, temporal));
        let case = case.with(|s| (s.seed, s.sampling) = (seed, sampling));
        let drawn = PairSettings { negatives, ..PairSettings::default() };
        let case = if pairs { case.of_edges(drawn) } else { case };
        let mut options = options;
        if by_type && matches!(options.cache, CachePolicy::Lru | CachePolicy::Sieve) {
            options.cache = CachePolicy::Auto;
        }
        let memory = CpuTyped::new(&case.context(Place::Host, Value::Null)).expect("the case is valid");
        let mut expected = batches(&memory, epoch);
        expected.iter_mut().for_each(|batch| gather_by_type(&case.dataset, batch));
        let mut context = case.context(Place::Host, serde_json::to_value(&options).expect("plain data"));
        let disk = build(&mut context, &mut options);
        prop_assert_eq!(batches(&disk, epoch), expected);
        // Minimum memory: two orders, the labels and two targets per seed or the pairs, and the times of nodes.
        let of_seeds = if pairs { 8 } else { 24 } * context.seeds.num_examples() as u64;
        let of_nodes = u64::from(weights) * 4 + u64::from(temporal != "no") * 8 + u64::from(reordered) * 8;
        let least = of_seeds + of_nodes * num_nodes as u64;
        prop_assert!(disk.num_bytes() <= options.memory_bytes.max(least), "{} bytes: {:?}", disk.num_bytes(), disk);
    }
}

fn case(trees: (bool, &str)) -> Case {
    let dataset = graphs::timed(&graphs::typed(6000, 20, false), false, true);
    let hops = "5,4".parse::<morphgl_registry::Fanouts>().expect("fanouts").into();
    Case::new(dataset).with(|s| (s.batch_size, s.sampling) = (50, typed(hops, "", trees)))
}

/// With more memory the types of edges are kept, less is read, and at last nothing.
#[test]
fn more_memory_is_used_and_saves_reads() {
    for trees in [(false, "no"), (true, "no"), (false, "uniform")] {
        let run = |memory_bytes| {
            let options = json!({ "memory_bytes": memory_bytes });
            let disk = support::build(&case(trees).context(Place::Host, options)).expect("a sampler on disk");
            let made = batches(&disk, 0);
            (made, disk.counts(), format!("{disk:?}"))
        };
        let (expected, nothing, shown) = run(60_000);
        assert!(nothing.offsets.reads > 0 && nothing.edge_types.reads > 0, "{shown}: {nothing:?}");
        assert!(shown.contains("edge types on disk"), "{shown}");
        let mut before = nothing.reads().wanted;
        for memory_bytes in [320_000, 500_000] {
            let (made, counts, shown) = run(memory_bytes);
            assert!(made == expected, "{trees:?}: the same mini-batches with {memory_bytes} bytes");
            assert_eq!(counts.offsets.reads, 0, "{shown}");
            assert!(counts.reads().wanted < before, "{trees:?}, {shown}: {counts:?} reads less than {before} bytes");
            before = counts.reads().wanted;
        }
        let (made, counts, shown) = run(50_000_000);
        assert!(made == expected && shown.contains("edge types in memory"), "{shown}");
        assert_eq!(counts.reads().reads, counts.edge_types.reads, "{trees:?}: everything else fits: {counts:?}");
        // Times of edges are always read.
        assert_eq!(counts.edge_types.reads > 0, trees.1 != "no", "{trees:?}: {counts:?}");
    }
}

/// Rows of node types that differ in length: every policy makes the same mini-batches and counts every row, and with memory for all of
/// them nothing is read.
#[test]
fn rows_of_node_types_are_cached() {
    let case = case((false, "no"));
    let case = Case { dataset: Arc::new(with_features_by_type(Dataset::clone(&case.dataset))), ..case };
    let memory = CpuTyped::new(&case.context(Place::Host, Value::Null)).expect("the case is valid");
    let mut expected = batches(&memory, 1);
    expected.iter_mut().for_each(|batch| gather_by_type(&case.dataset, batch));
    let rows = |batch: &HostBatch| -> u64 {
        batch.features_by_type.iter().flatten().map(|features| features.num_rows() as u64).sum()
    };
    let requests: u64 = expected.iter().map(rows).sum();
    let run = |options: Value| {
        let disk = support::build(&case.context(Place::Host, options)).expect("a sampler on disk");
        assert!(batches(&disk, 1) == expected, "{disk:?}");
        (disk.counts(), format!("{disk:?}"))
    };
    let mut all = 0;
    for cache in ["in-degree", "inclusion", "presample:1", "smoothed:1", "random"] {
        let (counts, shown) = run(json!({ "memory_bytes": 450_000, "cache": cache }));
        let hits = counts.feature_hits;
        assert_eq!(hits.hits + hits.misses, requests, "{shown}");
        let name = cache.split(':').next().expect("a name");
        assert!(hits.misses > 0 && shown.contains(name), "{shown}: {hits:?}");
        all += hits.hits;
        assert!(shown.contains("per feature row of 12 bytes, "), "{shown}");
    }
    // A busy machine may measure that lists save more than rows, for one policy or another.
    assert!(all > requests / 2, "{all} hits of {requests} requests per policy");
    let (counts, shown) = run(json!({ "memory_bytes": 50_000_000 }));
    assert_eq!(counts.reads().reads, 0, "{shown}: {counts:?}");
    let refused = support::build(&case.context(Place::Host, json!({ "cache": "lru" }))).expect_err("refused");
    assert!(refused.to_string().contains("cache=lru holds rows of one length"), "{refused}");
}

/// Rows of the edges' features are read of the edges sampled, of cached CSR rows too, from a graph with and without types; one that does not
/// exist is an error with file and byte.
#[test]
fn rows_of_edge_features_are_read() {
    let hops = || "5,4".parse::<morphgl_registry::Fanouts>().expect("fanouts").into();
    let untyped = Case::new(with_edge_features(graphs::random(600, 9, false)));
    let cases = [(false, "no"), (true, "no"), (false, "last")].map(|trees| {
        let dataset = graphs::timed(&graphs::typed(600, 9, false), false, true);
        Case::new(with_edge_features(dataset)).with(|s| s.sampling = typed(hops(), "", trees))
    });
    for case in cases.into_iter().chain([untyped.with(|s| s.sampling = Sampling::Neighbor(hops()))]) {
        let context = case.context(Place::Host, Value::Null);
        let memory: Box<dyn Batching> = match case.dataset.topology.types() {
            Some(_) => Box::new(CpuTyped::new(&context).expect("the case is valid")),
            None => Box::new(CpuNeighbor::new(&context).expect("the case is valid")),
        };
        let expected = batches(&*memory, 0);
        assert!(expected.iter().flat_map(|batch| &batch.blocks).all(|block| block.edge_ids.is_some()));
        for memory_bytes in [30_000, 50_000_000] {
            let context = case.context(Place::Host, json!({ "memory_bytes": memory_bytes }));
            let disk = support::build(&context).expect("a sampler on disk");
            assert!(batches(&disk, 0) == expected, "{disk:?}");
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        support::write(&case.dataset, dir.path());
        let file = dir.path().join("set/edge_ids.npy");
        let (header, len) = (128, fs::metadata(&file).expect("it was written").len());
        let ids = vec![0xffu8; (len - header) as usize];
        let mut open = fs::File::options().write(true).open(&file).expect("it was written");
        open.seek(SeekFrom::Start(header)).and_then(|_| open.write_all(&ids)).expect("room");
        drop(open);
        let dataset = Arc::new(support::open(dir.path(), &case.dataset));
        let context = BatchingContext { dataset, ..case.context(Place::Host, Value::Null) };
        let disk = match case.dataset.topology.types() {
            Some(_) => DiskNeighbor::typed(&context),
            None => DiskNeighbor::new(&context),
        };
        let disk = disk.expect("edges are read for mini-batches");
        let first = disk.worker(1).and_then(|mut w| w.prepare(BatchId::default(), None)).and_then(|h| h.wait());
        let error = first.expect_err("rows that are not there").to_string();
        assert!(error.contains("edge_ids.npy, byte ") && error.contains("row 4294967295 of the edge's"), "{error}");
        assert!(error.contains("which have 1000") && error.contains("import it again"), "{error}");
    }
}

/// Types of edges that do not exist, lead to another node type or are out of order: an error with file and byte, whether they are read
/// when the operator is built or for a mini-batch.
#[test]
fn damaged_types_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let case = case((false, "no")).of(&[0]);
    support::write(&case.dataset, dir.path());
    let file = dir.path().join("set/edge_types.npy");
    let header = 128;
    for (at, edge_type) in [(7u64, 99u16), (7, 4), (3000, 0)] {
        let before = fs::read(&file).expect("it was written");
        let mut open = fs::File::options().write(true).open(&file).expect("it was written");
        open.seek(SeekFrom::Start(header + 2 * at))
            .and_then(|_| open.write_all(&edge_type.to_le_bytes()))
            .expect("room");
        drop(open);
        for memory_bytes in [100_000, 50_000_000] {
            let dataset = Arc::new(support::open(dir.path(), &case.dataset));
            let context = case.context(Place::Host, json!({ "memory_bytes": memory_bytes, "cache": "none" }));
            let built = DiskNeighbor::typed(&BatchingContext { dataset, ..context });
            let first = built.and_then(|disk| disk.worker(1)?.prepare(BatchId::default(), None)?.wait().map(|_| ()));
            let error = first.expect_err("damaged").to_string();
            let byte = header + 2 * if (at, edge_type) == (3000, 0) { 3000 } else { at };
            assert!(error.contains(&format!("edge_types.npy, byte {byte}")), "{error}");
            assert!(error.contains(&format!("the type {edge_type}")) && error.contains("import it again"), "{error}");
        }
        fs::write(&file, before).expect("room");
    }
}

#[test]
fn settings_of_another_kind_and_unknown_options_are_refused() {
    let refused = |case: &Case, options: Value| {
        support::build(&case.context(Place::Host, options)).expect_err("refused").to_string()
    };
    let error = refused(&case((false, "no")), json!({ "memory": 3 }));
    assert!(error.contains("Batching_CPU+Disk_Typed has memory_bytes"), "{error}");
    let timeless = Case::new(graphs::typed(60, 4, false));
    let hops = NeighborSettings { fanouts: "2".parse().expect("a fanout"), ..NeighborSettings::default() };
    let error = refused(&timeless.with(|s| s.sampling = typed(hops, "", (false, "last"))), Value::Null);
    assert!(error.contains("the nodes have no times"), "{error}");
    let memory = Arc::clone(&timeless.dataset);
    let context = BatchingContext { dataset: memory, ..case((false, "no")).context(Place::Host, Value::Null) };
    let error = DiskNeighbor::new(&context).expect_err("refused").to_string();
    assert!(error.contains("neighbor"), "{error}");
}
