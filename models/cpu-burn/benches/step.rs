//! Time of a training step of three-layer GraphSAGE, 100 -> 256 -> 256 -> 47, on blocks of
//! 120k -> 40k -> 9k -> 1024 nodes with 200k, 90k and 15k edges, and of other kinds and features. Run: `cargo bench -p morphgl-training-cpu-burn`.
#![allow(clippy::print_stdout, reason = "a bench prints")]

use std::sync::Arc;

use morphgl_graph_store::{Dataset, Dtype, FeatureMatrix, Topology};
use morphgl_registry::{BatchFeatures, BatchId, Block, HostBatch, MiniBatch, Result, Training, TrainingContext};
use morphgl_training_cpu_burn::CpuBurn;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 9;
const SEEDS: usize = 1_024;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn block(num_src: usize, num_dst: usize, num_edges: usize, state: &mut u64) -> Block {
    let indptr = (0..=num_dst).map(|v| (v * num_edges / num_dst) as u32).collect();
    let indices = (0..num_edges).map(|_| (random(state) % num_src as u64) as u32).collect();
    Block { num_dst, num_src, indptr, indices, ..Block::default() }
}

struct Workload {
    kind: &'static str,
    dropout: f32,
    dtype: Dtype,
    dim: usize,
    /// Reciprocal of the share of nonzero elements.
    sparsity: u64,
    /// Nodes and edges of each block, the farthest first.
    blocks: [(usize, usize); 3],
}

const DENSE: Workload = Workload {
    kind: "sage",
    dropout: 0.5,
    dtype: Dtype::F32,
    dim: 100,
    sparsity: 1,
    blocks: [(120_000, 200_000), (40_000, 90_000), (9_000, 15_000)],
};

/// As wide and as sparse as Coauthor Physics.
const WORDS: Workload = Workload {
    dtype: Dtype::U8,
    dim: 8_415,
    sparsity: 255,
    blocks: [(30_000, 120_000), (15_000, 50_000), (5_000, 14_000)],
    ..DENSE
};

fn batch(load: &Workload) -> MiniBatch {
    let mut state = 1;
    let [(n0, e0), (n1, e1), (n2, e2)] = load.blocks;
    let blocks = vec![block(n0, n1, e0, &mut state), block(n1, n2, e1, &mut state), block(n2, SEEDS, e2, &mut state)];
    let empty = FeatureMatrix::F32 { data: Vec::new().into(), dim: load.dim };
    let mut features = BatchFeatures::like(&empty);
    let bytes = features.resize(n0, load.dim, load.dtype);
    for word in bytes.chunks_exact_mut(load.dtype.size()) {
        let bits = random(&mut state);
        if bits.is_multiple_of(load.sparsity) {
            let value = bits as f32 / (1u64 << 30) as f32 - 1.0;
            match load.dtype {
                Dtype::U8 => word.copy_from_slice(&[1]),
                // The upper half of an f32 is a bf16.
                Dtype::Bf16 => word.copy_from_slice(&value.to_le_bytes()[2..]),
                _ => word.copy_from_slice(&value.to_le_bytes()),
            }
        }
    }
    MiniBatch::Host(HostBatch {
        id: BatchId::default(),
        num_seeds: SEEDS,
        input_nodes: (0..n0 as u32).collect(),
        degrees: vec![5.0; n0],
        blocks,
        features: Some(features),
        given: None,
        labels: (0..SEEDS as i32).map(|i| i % 47).collect(),
        targets: Default::default(),
        pairs: None,
        features_by_type: Vec::new(),
        trees: None,
    })
}

fn dataset(dim: usize) -> Arc<Dataset> {
    Arc::new(Dataset {
        features: Some(FeatureMatrix::F32 { data: Vec::new().into(), dim }),
        num_classes: 47,
        ..Dataset::new("none", Topology::new(vec![0u64], Vec::new(), None).expect("a graph without nodes"))
    })
}

fn main() -> Result<()> {
    println!("kind  dropout   dim dtype threads      min   median      max   milliseconds per step of {ROUNDS}");
    let kinds = ["gcn", "gat", "gin"].map(|kind| Workload { kind, ..DENSE });
    let sage = [Workload { dropout: 0.0, ..DENSE }, DENSE, Workload { dtype: Dtype::Bf16, ..DENSE }, WORDS];
    for load in sage.into_iter().chain(kinds) {
        let batch = batch(&load);
        let Workload { kind, dropout, dtype, dim, .. } = load;
        for threads in [1, 4] {
            let mut trainer = CpuBurn::new(&TrainingContext {
                threads,
                ..TrainingContext::new(
                    dataset(dim),
                    serde_json::json!({
                        "model": {"kind": kind, "in_dim": dim, "num_classes": 47, "dropout": dropout}
                    }),
                )
            })?;
            let mut times = Vec::new();
            for _ in 0..=ROUNDS {
                times.push(trainer.train(&batch)?.wait()?.1.as_secs_f64() * 1e3);
            }
            times.remove(0);
            times.sort_by(f64::total_cmp);
            let (min, median, max) = (times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
            println!(
                "{kind:5} {dropout:>7} {dim:>5} {:>5} {threads:>7} {min:>8.0} {median:>8.0} {max:>8.0}",
                dtype.to_string()
            );
        }
    }
    Ok(())
}
