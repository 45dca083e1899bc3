//! Sampling by edge type from disk makes the mini-batches of `Batching_CPU_Typed`, with any settings, budget and options.

mod support;

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;

use morphgl_batching_cpu::CpuTyped;
use morphgl_batching_disk_neighbor::DiskNeighbor;
use morphgl_conformance::batching::{Case, graphs};
use morphgl_hotness::{CachePolicy, PolicyKind};
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
        (pairs, negatives, reordered) in (any::<bool>(), 0u32..4, any::<bool>()),
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
        let case = Case::new(if reordered { graphs::reordered(&dataset).0 } else { dataset });
        let sampling = typed(hops, &format!("big-a-big={}", list(own)), (disjoint, temporal));
        let case = case.with(|s| (s.seed, s.sampling) = (seed, sampling));
        let drawn = PairSettings { negatives, ..PairSettings::default() };
        let case = if pairs { case.of_edges(drawn) } else { case };
        let mut options = options;
        // Inclusion probabilities by edge type are not known.
        if options.cache == CachePolicy::By(PolicyKind::Inclusion) {
            options.cache = CachePolicy::By(PolicyKind::InDegree);
        }
        let memory = CpuTyped::new(&case.context(Place::Host, Value::Null)).expect("the case is valid");
        let expected = batches(&memory, epoch);
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
        assert_eq!((counts.offsets.reads, counts.neighbors.reads), (0, 0), "{trees:?}: rows fit: {counts:?}");
        // Times of edges are always read.
        assert_eq!(counts.edge_types.reads > 0, trees.1 != "no", "{trees:?}: {counts:?}");
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
