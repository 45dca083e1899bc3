//! GEMMs large enough to run on several threads.
//!
//! The only test of its file, since it measures all threads of its process.
#![allow(clippy::print_stderr, reason = "a test says that it could not watch")]

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use morphgl_graph_store::{Dataset, Dtype, FeatureMatrix, Topology};
use morphgl_registry::{
    BatchFeatures, BatchId, Block, HostBatch, MiniBatch, ModelState, NamedTensor, Place, Training, TrainingContext,
};
use morphgl_training_cpu_burn::CpuBurn;
use serde_json::json;

const NODES: usize = 3000;
const DIM: usize = 100;

fn dataset() -> Arc<Dataset> {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let indptr: Vec<u64> = (0..=NODES as u64).map(|v| 6 * v).collect();
    let indices: Vec<u32> = (0..6 * NODES).map(|_| random() % NODES as u32).collect();
    let features: Vec<f32> = (0..NODES * DIM).map(|_| random() as f32 / (1u64 << 30) as f32 - 1.0).collect();
    Arc::new(Dataset {
        features: Some(FeatureMatrix::F32 { data: features.into(), dim: DIM }),
        labels: Some((0..NODES as i32).map(|v| v % 5).collect::<Vec<_>>().into()),
        num_classes: 5,
        ..Dataset::new("random", Topology::new(indptr, indices, None).expect("a valid graph"))
    })
}

/// The whole graph as a mini-batch.
fn whole(dataset: &Dataset, epoch: u32) -> MiniBatch {
    let topology = &dataset.topology;
    let block = Block {
        num_dst: NODES,
        num_src: NODES,
        indptr: topology.indptr().iter().map(|&p| p as u32).collect(),
        indices: topology.indices().to_vec(),
        ..Block::default()
    };
    let matrix = dataset.features.as_ref().expect("features");
    let mut features = BatchFeatures::like(matrix);
    features.resize(NODES, DIM, Dtype::F32).copy_from_slice(matrix.view().as_bytes());
    MiniBatch::Host(HostBatch {
        id: BatchId { epoch, index: 0 },
        num_seeds: NODES,
        input_nodes: (0..NODES as u32).collect(),
        degrees: vec![6.0; NODES],
        blocks: vec![block.clone(), block],
        features: Some(features),
        given: None,
        labels: dataset.labels.as_ref().expect("labels").to_vec(),
        targets: Default::default(),
        pairs: None,
        features_by_type: Vec::new(),
        trees: None,
    })
}

fn trainer(dataset: &Arc<Dataset>, kind: &str, threads: usize) -> CpuBurn {
    CpuBurn::new(&TrainingContext {
        dataset: Arc::clone(dataset),
        spec: json!({"model": {"kind": kind, "in_dim": DIM, "num_classes": 5, "layers": 2, "hidden": 96}}),
        seed: 3,
        threads,
        place: Place::Host,
        options: json!(null),
    })
    .expect("the operator is built")
}

/// flex splits a GEMM among threads by rows and columns, never along the sum, so the bits are the same on any number of
/// threads. All work runs in the operator's pool: threads that existed before stay idle.
#[test]
fn bits_are_independent_of_threads_and_work_runs_in_the_pool() {
    let dataset = dataset();
    // They include rayon's global pool, which the check of the graph has started.
    let bystanders = ticks_of_threads();
    let start = Instant::now();
    for kind in ["sage", "gcn", "gat", "gin", "mlp"] {
        let run = |threads| -> Vec<NamedTensor> {
            let mut trainer = trainer(&dataset, kind, threads);
            for epoch in 0..2 {
                trainer.accumulate(&whole(&dataset, epoch)).expect("accumulated");
                trainer.step().expect("a step");
            }
            trainer.infer(&[0, 1, 2]).expect("logits");
            trainer.parameters().expect("parameters")
        };
        let one = run(1);
        for threads in [2, 3, 4] {
            assert!(run(threads) == one, "{kind}: {threads} threads give other bits than one");
        }
    }
    let took = start.elapsed();
    let this =
        std::fs::read_link("/proc/thread-self").ok().and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()));
    let this = this.unwrap_or_default();
    let after = ticks_of_threads();
    if bystanders.is_empty() || took < Duration::from_millis(200) {
        eprintln!("{} threads watched for {took:?}: too little to say that they were idle", bystanders.len());
        return;
    }
    for (thread, before) in bystanders {
        let spent = after.get(&thread).map_or(0, |after| after - before);
        // A tick is 10 milliseconds; this thread builds the mini-batches.
        assert!(
            thread == this || spent <= 2,
            "thread {thread} is not the operator's and spent {spent} ticks in {took:?}"
        );
    }
}

/// Clock ticks spent so far by each thread of this process, by its id.
fn ticks_of_threads() -> HashMap<String, u64> {
    let ticks = |path: PathBuf| -> Option<(String, u64)> {
        let stat = std::fs::read_to_string(path.join("stat")).ok()?;
        // The name is in brackets and may contain blanks; user and system time are the 12th and 13th field after it.
        let (before, after) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let spent = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        Some((before.split_once(' ')?.0.to_string(), spent))
    };
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return HashMap::new() };
    tasks.filter_map(|t| ticks(t.ok()?.path())).collect()
}
