//! Time of a training step of typed models, on a mini-batch that is written to files so that peers take the same.
//!
//! Run: `cargo bench -p morphgl-training-cpu-native --bench typed -- DATASET FOLDER --threads N`, as `docs/benchmarks/typed/step.py` does.
//! `DATASET` is a typed dataset with training nodes, such as `docs/benchmarks/typed/sampling.py data` writes. The mini-batch, of 1,024 of
//! these by `Batching_CPU_Typed` with 15 and 10 neighbours per edge type, has random features of 128 columns and 349 classes. Then every
//! line of standard input, a model's fields as JSON, is answered by a line: the least and the median milliseconds of `--steps` steps.
#![allow(clippy::print_stdout, reason = "a bench prints")]

use std::fs;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use morphgl_batching_cpu::CpuTyped;
use morphgl_graph_store::{Dataset, Dtype, FeatureMatrix, OpenOptions};
use morphgl_platform::SimdLevel;
use morphgl_registry::{
    BatchFeatures, BatchId, Batching, BatchingContext, CustomSettings, Fanouts, HostBatch, MiniBatch, SamplerSettings,
    Sampling, SeedSet, Training, TrainingContext,
};
use morphgl_training_cpu_native::CpuNative;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DIM: usize = 128;
const CLASSES: usize = 349;

fn mini_batch(dataset: &Arc<Dataset>, seeds: &[u32]) -> anyhow::Result<HostBatch> {
    let hops = Some("15,10".parse::<Fanouts>()?.into());
    let sampling =
        Sampling::Custom(CustomSettings { kind: "typed".into(), layers: 2, hops, settings: Default::default() });
    let settings = SamplerSettings { sampling, ..SamplerSettings::default() };
    let seeds = SeedSet::new("seeds", seeds, dataset.num_nodes())?;
    let sampler = CpuTyped::new(&BatchingContext::new(Arc::clone(dataset), seeds, settings))?;
    let mut batch = sampler.worker(1)?.prepare(BatchId { epoch: 0, index: 0 }, None)?.wait()?.0.into_host()?;
    let mut features = BatchFeatures::like(&FeatureMatrix::F32 { data: Vec::new().into(), dim: DIM });
    let mut state = 1u64;
    for value in features.resize(batch.input_nodes.len(), DIM, Dtype::F32).chunks_exact_mut(4) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value.copy_from_slice(&((state >> 40) as f32 / (1 << 23) as f32 - 1.0).to_ne_bytes());
    }
    batch.features = Some(features);
    batch.labels = (0..batch.num_seeds).map(|seed| (seed * 7 % CLASSES) as i32).collect();
    Ok(batch)
}

/// Writes the arrays of a mini-batch, and its sizes and types as JSON.
fn write(batch: &HostBatch, dataset: &Dataset, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let bytes = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    fs::write(folder.join("input_nodes"), bytes(&batch.input_nodes))?;
    for (layer, block) in batch.blocks.iter().enumerate() {
        fs::write(folder.join(format!("indptr{layer}")), bytes(&block.indptr))?;
        fs::write(folder.join(format!("indices{layer}")), bytes(&block.indices))?;
        let edge_types: Vec<u32> = block.edge_types.iter().flatten().map(|&edge_type| edge_type.into()).collect();
        fs::write(folder.join(format!("edge_types{layer}")), bytes(&edge_types))?;
    }
    let blocks: Vec<_> = batch.blocks.iter().map(|b| json!([b.num_src, b.num_dst, b.num_edges()])).collect();
    let sizes =
        json!({"blocks": blocks, "dim": DIM, "classes": CLASSES, "types": dataset.topology.types().map(|t| &**t)});
    Ok(fs::write(folder.join("batch.json"), sizes.to_string())?)
}

fn main() -> anyhow::Result<()> {
    let all: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [path, folder, ..] = &all[..] else { anyhow::bail!("give a dataset and a folder") };
    let after = |name: &str| all.iter().position(|a| a == name).and_then(|i| all.get(i + 1)).map(|s| s.parse());
    let (threads, steps) = (after("--threads").unwrap_or(Ok(1))?, after("--steps").unwrap_or(Ok(5))?);
    let mut dataset = Dataset::open(path, OpenOptions { verify: false, ..OpenOptions::default() })?;
    dataset.labels = Some(vec![0; dataset.num_nodes()].into());
    let seeds = dataset.splits.train.iter().take(1024).copied().collect::<Vec<u32>>();
    let dataset = Arc::new(dataset);
    let batch = mini_batch(&dataset, &seeds)?;
    write(&batch, &dataset, Path::new(folder))?;
    let batch = MiniBatch::Host(batch);
    // Of the graph, only types are read; features come with the mini-batch.
    let mut of_types = Dataset::clone(&dataset);
    of_types.features = Some(FeatureMatrix::F32 { data: Vec::new().into(), dim: DIM });
    let of_types = Arc::new(of_types);
    println!("{}", json!({"isa": SimdLevel::current().name()}));
    for line in std::io::stdin().lock().lines() {
        let mut model: Value = serde_json::from_str(&line?)?;
        let types = of_types.topology.types().map(|types| &**types);
        for (name, value) in [("types", json!(types)), ("in_dim", json!(DIM)), ("num_classes", json!(CLASSES))] {
            model[name] = value;
        }
        let context = TrainingContext::new(Arc::clone(&of_types), json!({"model": model}));
        let mut trainer = CpuNative::new(&TrainingContext { threads, ..context })?;
        let mut times: Vec<f64> = Vec::new();
        for _ in 0..=steps {
            times.push(1e3 * trainer.train(&batch)?.wait()?.1.as_secs_f64());
        }
        // The first step grows the buffers.
        times.remove(0);
        times.sort_by(f64::total_cmp);
        let phases = trainer.times();
        let phases = json!({"prepare": phases.prepare, "forward": phases.forward, "loss": phases.loss, "backward": phases.backward});
        println!("{}", json!({"least": times[0], "median": times[times.len() / 2], "phases": phases}));
    }
    Ok(())
}
