//! Time of a training step of three-layer GraphSAGE, 100 -> 256 -> 256 -> 47, on blocks of
//! 120k -> 40k -> 9k -> 1024 nodes with 200k, 90k and 15k edges. Run: `cargo bench -p morphgl-training-cpu-burn`.
#![allow(clippy::print_stdout, reason = "a bench prints")]

use std::path::PathBuf;
use std::sync::Arc;

use morphgl_graph_store::{Dataset, Dtype, FeatureMatrix, Splits, Topology};
use morphgl_registry::{BatchFeatures, BatchId, Block, HostBatch, MiniBatch, Place, Result, Training, TrainingContext};
use morphgl_training_cpu_burn::CpuBurn;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 9;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn block(num_src: usize, num_dst: usize, num_edges: usize, state: &mut u64) -> Block {
    let indptr = (0..=num_dst).map(|v| (v * num_edges / num_dst) as u32).collect();
    let indices = (0..num_edges).map(|_| (random(state) % num_src as u64) as u32).collect();
    Block { num_dst, num_src, indptr, indices, weights: None }
}

fn batch(dtype: Dtype) -> MiniBatch {
    let mut state = 1;
    let blocks = vec![
        block(120_000, 40_000, 200_000, &mut state),
        block(40_000, 9_000, 90_000, &mut state),
        block(9_000, 1_024, 15_000, &mut state),
    ];
    let empty = FeatureMatrix::F32 { data: Vec::new().into(), dim: 100 };
    let mut features = BatchFeatures::like(&empty);
    let bytes = features.resize(120_000, 100, dtype);
    for word in bytes.chunks_exact_mut(dtype.size()) {
        let value = random(&mut state) as f32 / (1u64 << 30) as f32 - 1.0;
        match dtype {
            // The upper half of an f32 is a bf16.
            Dtype::Bf16 => word.copy_from_slice(&value.to_le_bytes()[2..]),
            _ => word.copy_from_slice(&value.to_le_bytes()),
        }
    }
    MiniBatch::Host(HostBatch {
        id: BatchId::default(),
        num_seeds: 1_024,
        input_nodes: (0..120_000).collect(),
        degrees: vec![5.0; 120_000],
        blocks,
        features: Some(features),
        labels: (0..1_024).map(|i| i % 47).collect(),
    })
}

fn main() -> Result<()> {
    let dataset = Arc::new(Dataset {
        path: PathBuf::new(),
        name: "none".to_string(),
        topology: Topology::new(vec![0u64], Vec::new(), None).expect("a graph without nodes"),
        features: Some(FeatureMatrix::F32 { data: Vec::new().into(), dim: 100 }),
        labels: None,
        num_classes: 47,
        splits: Splits { train: Vec::new().into(), valid: Vec::new().into(), test: Vec::new().into() },
        node_ids: None,
    });
    println!(
        "{:8} {:>8} {:>8} {:>8} {:>8} {:>8}   milliseconds a step of {ROUNDS}",
        "model", "dropout", "threads", "min", "median", "max"
    );
    for (kind, dropout, dtype) in [
        ("sage", 0.0, Dtype::F32),
        ("sage", 0.5, Dtype::F32),
        ("sage", 0.5, Dtype::Bf16),
        ("gcn", 0.5, Dtype::F32),
        ("gat", 0.5, Dtype::F32),
        ("gin", 0.5, Dtype::F32),
    ] {
        let batch = batch(dtype);
        for threads in [1, 4] {
            let mut trainer = CpuBurn::new(&TrainingContext {
                dataset: Arc::clone(&dataset),
                spec: serde_json::json!({
                    "model": {"kind": kind, "in_dim": 100, "num_classes": 47, "dropout": dropout}
                }),
                seed: 0,
                threads,
                place: Place::Host,
                options: serde_json::Value::Null,
            })?;
            let mut times = Vec::new();
            for _ in 0..=ROUNDS {
                let (_, forward_backward) = trainer.accumulate(&batch)?.wait()?;
                let (_, step) = trainer.step()?.wait()?;
                times.push((forward_backward + step).as_secs_f64() * 1e3);
            }
            times.remove(0);
            times.sort_by(f64::total_cmp);
            let (min, median, max) = (times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
            println!("{kind:8} {dropout:>8} {threads:>8} {min:>8.0} {median:>8.0} {max:>8.0}   {dtype} features");
        }
    }
    Ok(())
}
