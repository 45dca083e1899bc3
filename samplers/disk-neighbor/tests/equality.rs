//! Mini-batches from disk equal those of `Batching_CPU_Neighbor`, with any budget and options.

mod support;

use std::sync::Arc;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_batching_disk_neighbor::Options;
use morphgl_conformance::batching::{graphs, hops, strategy};
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::{Dataset, Dtype};
use morphgl_hotness::{CachePolicy, PolicyKind};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, CACHE_HITS, CACHE_REQUESTS, Counters, HostBatch, MiniBatch, Pick, Place,
    SamplerSettings, SeedSet,
};
use proptest::prelude::*;
use support::caches::{build, options, policies};

fn context(dataset: Dataset, settings: SamplerSettings, options: &Options) -> BatchingContext {
    let seeds: Vec<u32> = (0..dataset.num_nodes() as u32).step_by(3).collect();
    BatchingContext {
        seeds: SeedSet::new("seeds", &seeds, dataset.num_nodes()).expect("each node once"),
        dataset: Arc::new(dataset),
        settings,
        gather: true,
        place: Place::Host,
        options: serde_json::to_value(options).expect("plain data"),
    }
}

fn batches(operator: &dyn Batching, epoch: u32) -> Vec<HostBatch> {
    let (mut worker, mut recycled) = (operator.worker(1).expect("a worker"), None);
    let prepare = |index| {
        let batch = worker.prepare(BatchId { epoch, index }, recycled.take()).and_then(|h| h.wait());
        let batch = batch.expect("a mini-batch").0.into_host().expect("in host memory");
        recycled = Some(MiniBatch::Host(batch.clone()));
        batch
    };
    (0..operator.num_batches() as u32).map(prepare).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..Default::default() })]

    #[test]
    fn batches_equal_those_of_the_sampler_in_memory(
        num_nodes in 1usize..1500, degree in 0usize..40, weights: bool, settings in strategy::settings(1..40), options in options(),
        epoch: u32,
    ) {
        let mut settings = settings;
        if !weights {
            hops(&mut settings).pick = Pick::Uniform;
        }
        let mut options = options;
        let mut context = context(graphs::random(num_nodes, degree, weights), settings, &options);
        let disk = build(&mut context, &mut options);
        let memory = CpuNeighbor::new(&BatchingContext { options: Default::default(), ..context.clone() });
        let expected = batches(&memory.expect("a sampler in memory"), epoch);
        prop_assert_eq!(batches(&disk, epoch), expected);
        // Minimum memory: two orders, the labels and two targets per seed.
        let min_bytes = 24 * context.seeds.nodes().len() as u64 + if weights { 4 * num_nodes as u64 } else { 0 };
        prop_assert!(disk.num_bytes() <= options.memory_bytes.max(min_bytes), "{} bytes: {:?}", disk.num_bytes(), disk);
        let offsets = 4 * (num_nodes as u64 + 1) + 8 * (num_nodes as u64 + 1).div_ceil(64);
        let limit = options.cache_bytes.map_or(u64::MAX, |bytes| min_bytes + offsets + bytes);
        prop_assert!(disk.num_bytes() <= limit, "{} bytes, {limit} allowed: {:?}", disk.num_bytes(), disk);
    }
}

/// Every policy: the same mini-batches, the memory it is given and no more, hits and misses of every row that was asked for.
#[test]
fn every_policy_makes_the_same_mini_batches_within_its_memory() {
    let settings = SamplerSettings { batch_size: 50, ..SamplerSettings::default() };
    let made = graphs::random(4000, 12, false);
    let given = context(made, settings, &Options::default());
    let memory = CpuNeighbor::new(&BatchingContext { options: Default::default(), ..given.clone() });
    let expected = batches(&memory.expect("a sampler in memory"), 3);
    let requests: u64 = expected.iter().map(|batch| batch.input_nodes.len() as u64).sum();
    let mut with_features = 0;
    for cache in policies() {
        let options = Options { memory_bytes: 201_000, cache, cache_bytes: Some(80_000), ..Options::default() };
        let context = BatchingContext { options: serde_json::to_value(&options).expect("data"), ..given.clone() };
        let disk = support::build(&context).expect("a sampler on disk");
        assert!(batches(&disk, 3) == expected, "{cache}");
        let offsets = 4 * 4001 + 8 * 4001u64.div_ceil(64);
        let beside = disk.num_bytes() - offsets - 24 * context.seeds.nodes().len() as u64;
        assert!(beside <= 80_000, "{cache}: {beside} bytes of caches");
        let (hits, shown) = (disk.counts().feature_hits, format!("{disk:?}"));
        if cache == CachePolicy::None {
            assert_eq!((beside, hits.hits + hits.misses), (0, 0), "{shown}");
            assert!(shown.contains("cached by nothing"), "{shown}");
            continue;
        }
        let name = match cache {
            CachePolicy::By(kind) => kind.name(),
            CachePolicy::Lru => "lru",
            CachePolicy::Sieve => "sieve",
            CachePolicy::Auto | CachePolicy::None => "inclusion",
        };
        let dynamic = matches!(cache, CachePolicy::Lru | CachePolicy::Sieve);
        assert!(shown.contains(&format!("cached by {name}")), "{shown}");
        assert!(beside > 72_000, "{cache}: {beside} bytes: {shown}");
        if shown.contains("features of 0.0% of the nodes") {
            // On a busy machine a list may be measured to save so much more that it gets all of the memory.
            assert_eq!(hits.hits + hits.misses, 0, "{cache}: {shown}");
            continue;
        }
        with_features += 1;
        assert!(hits.hits > 0, "{cache}: {hits:?}: {shown}");
        assert_eq!(hits.hits + hits.misses, requests, "{cache}: {hits:?}");
        let (mut worker, mut counted) = (disk.worker(1).expect("a worker"), Counters::NONE);
        for index in 0..expected.len() as u32 {
            let made = worker.prepare(BatchId { epoch: 3, index }, None).and_then(|handle| handle.measured());
            counted += made.expect("a mini-batch").1.counters;
        }
        let again = counted.get(&CACHE_HITS).expect("hits are counted");
        assert_eq!(counted.get(&CACHE_REQUESTS), Some(requests));
        // A cache that is filled by the first epoch begins the second one with its rows.
        assert!(if dynamic { again > hits.hits } else { again == hits.hits }, "{cache}: {hits:?}, then {again}");
    }
    assert!(with_features > 0, "no policy caches features");
}

#[test]
fn a_changing_cache_with_room_for_all_rows_reads_each_of_them_once() {
    let settings = SamplerSettings { batch_size: 50, ..SamplerSettings::default() };
    for cache in [CachePolicy::Lru, CachePolicy::Sieve] {
        let options = Options { memory_bytes: 50_000_000, cache, ..Options::default() };
        let disk = support::build(&context(graphs::random(4000, 12, false), settings.clone(), &options));
        let disk = disk.expect("a sampler on disk");
        let made = batches(&disk, 0);
        let nodes: std::collections::HashSet<u32> = made.iter().flat_map(|b| b.input_nodes.iter().copied()).collect();
        assert!(batches(&disk, 0) == made, "{cache}");
        assert_eq!(disk.counts().feature_hits.misses, nodes.len() as u64, "{cache}");
        assert!(disk.num_bytes() < 5_000_000, "no more memory than all rows need: {disk:?}");
    }
}

#[test]
fn more_memory_is_used_and_saves_reads() {
    let settings = SamplerSettings { batch_size: 50, ..SamplerSettings::default() };
    let run = |memory_bytes, cache| {
        let options = Options { memory_bytes, cache, ..Options::default() };
        let disk = support::build(&context(graphs::random(20_000, 15, false), settings.clone(), &options));
        let disk = disk.expect("a sampler on disk");
        let made = batches(&disk, 0);
        assert!(disk.num_bytes() <= memory_bytes, "{} of {memory_bytes} bytes", disk.num_bytes());
        (made, disk.counts(), disk.num_bytes())
    };
    let (expected, nothing, _) = run(170_000, CachePolicy::Auto);
    assert_eq!((nothing.row_hits.hits, nothing.feature_hits.hits), (0, 0), "only labels, targets and orders fit");
    assert!(nothing.offsets.reads > 0, "offsets that do not fit are read");
    let mut before = nothing.reads().wanted;
    for memory_bytes in [600_000, 900_000, 1_200_000] {
        let (made, counts, bytes) = run(memory_bytes, CachePolicy::Auto);
        assert!(made == expected, "the same mini-batches with {memory_bytes} bytes");
        assert!(bytes > memory_bytes / 10 * 9, "{bytes} of {memory_bytes} bytes are used");
        assert_eq!(counts.offsets.reads, 0, "offsets in memory");
        assert!(counts.reads().wanted < before, "{counts:?} reads less than {before} bytes");
        before = counts.reads().wanted;
    }
    let (made, counts, _) = run(900_000, CachePolicy::By(PolicyKind::InDegree));
    assert!(made == expected && counts.reads().wanted < nothing.reads().wanted, "by degree: {counts:?}");
    let (made, counts, _) = run(50_000_000, CachePolicy::Auto);
    assert!(made == expected);
    assert_eq!(counts.reads().reads, 0, "everything fits, nothing is read: {counts:?}");
}

#[test]
fn a_graph_longer_than_one_pass_of_each_kind() {
    let config = SbmConfig { nodes: 700_000, degree: 5.0, dim: 8, dtype: Dtype::F16, ..SbmConfig::default() };
    let dataset = sbm(&config).expect("a graph");
    let settings = SamplerSettings { batch_size: 1024, ..SamplerSettings::default() };
    let options = Options { memory_bytes: 16 << 20, ..Options::default() };
    let context = context(dataset, settings, &options);
    let disk = support::build(&context).expect("a sampler on disk");
    let memory = CpuNeighbor::new(&BatchingContext { options: Default::default(), ..context.clone() });
    let memory = memory.expect("a sampler in memory");
    let (mut disk_worker, mut worker) = (disk.worker(1).expect("a worker"), memory.worker(1).expect("a worker"));
    for index in [0, 100, 227] {
        let id = BatchId { epoch: 1, index };
        let made = disk_worker.prepare(id, None).and_then(|h| h.wait()).expect("a mini-batch").0;
        let expected = worker.prepare(id, None).and_then(|h| h.wait()).expect("a mini-batch").0;
        assert!(made.host().expect("in memory") == expected.host().expect("in memory"), "{id} differs");
    }
    let counts = disk.counts();
    assert!(counts.feature_hits.hits > 0 && counts.row_hits.hits > 0, "both caches are used: {counts:?}");
}
