//! Every SIMD level samples the same mini-batches: this program runs itself once per level.
#![allow(clippy::print_stdout, reason = "the processes that it runs print what is compared")]

use std::process::Command;
use std::sync::Arc;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_graph_store::{Dataset, FeatureMatrix, Topology};
use morphgl_platform::{ISA_VARIABLE, SimdLevel};
use morphgl_registry::{BatchId, Batching, BatchingContext, Fanouts, PairSettings, SamplerSettings, SeedSet};
use xxhash_rust::xxh3::xxh3_64;

const NODES: u32 = 20_000;
/// Set in the processes that print digests.
const CHILD: &str = "MORPHGL_TEST_PRINTS_DIGESTS";

/// A graph with in-degrees from 0 to 99, weights, and features of 100 columns.
fn dataset() -> Dataset {
    let degree = |v: u32| v * 7 % 100;
    let mut indptr = vec![0u64];
    (0..NODES).for_each(|v| indptr.push(indptr[v as usize] + u64::from(degree(v))));
    let edges = indptr[NODES as usize] as u32;
    let indices: Vec<u32> = (0..edges).map(|e| (e.wrapping_mul(2_654_435_761) >> 8) % NODES).collect();
    let weights: Vec<f32> = (0..edges).map(|e| 0.5 + (e % 17) as f32).collect();
    let features: Vec<f32> = (0..NODES * 100).map(|i| i as f32).collect();
    Dataset {
        features: Some(FeatureMatrix::F32 { data: features.into(), dim: 100 }),
        ..Dataset::new("degrees", Topology::new(indptr, indices, Some(weights.into())).expect("a graph"))
    }
}

/// Digests of mini-batches by several settings, one per line.
fn digests() -> String {
    let dataset = Arc::new(dataset());
    let seeds: Vec<u32> = (0..NODES).step_by(3).collect();
    let seeds = SeedSet::new("seeds", &seeds, NODES as usize).expect("seeds");
    let pairs: Vec<[u32; 2]> =
        (0..NODES).flat_map(|v| dataset.topology.neighbors(v).iter().take(2).map(move |&u| [u, v])).collect();
    let settings = PairSettings { negatives: 3, ..PairSettings::default() };
    let pairs = SeedSet::of_pairs("pairs", &pairs, NODES as usize, settings).expect("edges");
    let mut lines = String::new();
    for (fanouts, weighted, seeds) in [
        ("15,10,5", false, &seeds),
        ("15,10,5", true, &seeds),
        ("-1,3", false, &seeds),
        ("40,20", false, &seeds),
        ("15,10,5", false, &pairs),
        ("15,10,5", true, &pairs),
    ] {
        let mut settings: SamplerSettings = fanouts.parse::<Fanouts>().expect("fanouts").into();
        if weighted {
            settings.sampling.hops_mut().expect("fanouts").pick = morphgl_registry::Pick::Weighted;
        }
        let sampler = CpuNeighbor::new(&BatchingContext::new(Arc::clone(&dataset), seeds.clone(), settings));
        let mut worker = sampler.expect("a sampler").worker(1).expect("a worker");
        for index in 0..3 {
            let handle = worker.prepare(BatchId { epoch: 2, index }, None).expect("a mini-batch");
            let (batch, _) = handle.wait().expect("a mini-batch");
            let text = format!("{:?}", batch.host().expect("on the host"));
            lines += &format!("{fanouts} {weighted} {index}: {:x}\n", xxh3_64(text.as_bytes()));
        }
    }
    lines
}

#[test]
fn every_level_gives_the_same_mini_batches() {
    let own = digests();
    if std::env::var_os(CHILD).is_some() {
        println!("level {}\n{own}end", SimdLevel::current());
        return;
    }
    let program = std::env::current_exe().expect("this program");
    for level in SimdLevel::available() {
        let mut command = Command::new(&program);
        command.args(["every_level_gives_the_same_mini_batches", "--exact", "--nocapture"]);
        let output = command.env(ISA_VARIABLE, level.name()).env(CHILD, "1").output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(
            text.contains(&format!("level {level}\n{own}end")),
            "{level} gives other mini-batches than {own}:\n{text}"
        );
    }
}
