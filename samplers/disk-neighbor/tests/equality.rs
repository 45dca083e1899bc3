//! Mini-batches from disk equal those of `Batching_CPU_Neighbor`, with any budget and options.

mod support;

use std::sync::Arc;

use morphgl_batching_cpu_neighbor::CpuNeighbor;
use morphgl_batching_disk_neighbor::{HotnessPolicy, Options};
use morphgl_conformance::batching::{graphs, hops};
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::{Dataset, Dtype};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Expansion, Fanout, Fanouts, HostBatch, MiniBatch, NeighborSettings, Pick,
    Place, SamplerSettings, SeedSet,
};
use proptest::prelude::*;

fn settings() -> impl Strategy<Value = SamplerSettings> {
    let fanout = (0u32..7).prop_map(|k| std::num::NonZeroU32::new(k).map_or(Fanout::All, Fanout::AtMost));
    let choices = (any::<bool>(), any::<bool>(), any::<bool>());
    (prop::collection::vec(fanout, 1..5), 1usize..40, any::<u64>(), choices).prop_map(
        |(fanouts, batch_size, seed, (new, weighted, shuffle))| {
            let hops = NeighborSettings {
                fanouts: Fanouts(fanouts),
                expansion: if new { Expansion::New } else { Expansion::All },
                pick: if weighted { Pick::Weighted } else { Pick::Uniform },
            };
            SamplerSettings { batch_size, seed, shuffle, ..hops.into() }
        },
    )
}

fn options() -> impl Strategy<Value = Options> {
    let policy = prop::sample::select(vec![HotnessPolicy::Inclusion, HotnessPolicy::Degree, HotnessPolicy::None]);
    let reads = (1usize..9, prop::sample::select(vec![512usize, 1024, 4096]), 0usize..20_000);
    (0u64..60_000, policy, reads, any::<bool>()).prop_map(|(memory_bytes, hotness, (depth, block, gap), threads)| {
        Options { memory_bytes, hotness, depth, block, gap, threads }
    })
}

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
        num_nodes in 1usize..1500, degree in 0usize..40, weights: bool, settings in settings(), options in options(),
        epoch: u32,
    ) {
        let mut settings = settings;
        if !weights {
            hops(&mut settings).pick = Pick::Uniform;
        }
        let context = context(graphs::random(num_nodes, degree, weights), settings, &options);
        let disk = support::build(&context).expect("a sampler on disk");
        let memory = CpuNeighbor::new(&BatchingContext { options: Default::default(), ..context.clone() });
        let expected = batches(&memory.expect("a sampler in memory"), epoch);
        prop_assert_eq!(batches(&disk, epoch), expected);
        // Minimum memory: two orders and the labels.
        let min_bytes = 16 * context.seeds.nodes().len() as u64 + if weights { 4 * num_nodes as u64 } else { 0 };
        prop_assert!(disk.num_bytes() <= options.memory_bytes.max(min_bytes), "{} bytes: {:?}", disk.num_bytes(), disk);
    }
}

#[test]
fn more_memory_is_used_and_saves_reads() {
    let settings = SamplerSettings { batch_size: 50, ..SamplerSettings::default() };
    let run = |memory_bytes, hotness| {
        let options = Options { memory_bytes, hotness, ..Options::default() };
        let disk = support::build(&context(graphs::random(20_000, 15, false), settings.clone(), &options));
        let disk = disk.expect("a sampler on disk");
        let made = batches(&disk, 0);
        assert!(disk.num_bytes() <= memory_bytes, "{} of {memory_bytes} bytes", disk.num_bytes());
        (made, disk.counts(), disk.num_bytes())
    };
    let (expected, nothing, _) = run(120_000, HotnessPolicy::Inclusion);
    assert_eq!((nothing.row_hits.hits, nothing.feature_hits.hits), (0, 0), "only labels and orders fit");
    assert!(nothing.offsets.reads > 0, "offsets that do not fit are read");
    let mut before = nothing.reads().wanted;
    for memory_bytes in [600_000, 900_000, 1_200_000] {
        let (made, counts, bytes) = run(memory_bytes, HotnessPolicy::Inclusion);
        assert!(made == expected, "the same mini-batches with {memory_bytes} bytes");
        assert!(bytes > memory_bytes / 10 * 9, "{bytes} of {memory_bytes} bytes are used");
        assert_eq!(counts.offsets.reads, 0, "offsets in memory");
        assert!(counts.reads().wanted < before, "{counts:?} reads less than {before} bytes");
        before = counts.reads().wanted;
    }
    let (made, counts, _) = run(900_000, HotnessPolicy::Degree);
    assert!(made == expected && counts.reads().wanted < nothing.reads().wanted, "by degree: {counts:?}");
    let (made, counts, _) = run(50_000_000, HotnessPolicy::Inclusion);
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
