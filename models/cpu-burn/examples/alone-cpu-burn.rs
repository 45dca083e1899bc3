//! Trains a two-layer GCN on a ring of twelve nodes, full batch. Run: `cargo run -p morphgl-training-cpu-burn --example alone-cpu-burn`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_graph_store::{Dataset, FeatureMatrix, Topology};
use morphgl_registry::{BatchFeatures, BatchId, Block, HostBatch, MiniBatch, Result, Training, TrainingContext};
use morphgl_training_cpu_burn::CpuBurn;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let n = 12u32;
    let features: Vec<f32> = (0..n).map(|v| if v < n / 2 { 1.0 } else { -1.0 }).collect();
    let labels: Vec<i32> = (0..n).map(|v| i32::from(v >= n / 2)).collect();
    let indices: Vec<u32> = (0..n).flat_map(|v| [(v + n - 1) % n, (v + 1) % n]).collect();
    let dataset = Arc::new(Dataset {
        features: Some(FeatureMatrix::F32 { data: features.clone().into(), dim: 1 }),
        labels: Some(labels.clone().into()),
        num_classes: 2,
        ..Dataset::new(
            "ring",
            Topology::new((0..=u64::from(n)).map(|v| 2 * v).collect::<Vec<u64>>(), indices.clone(), None)
                .expect("a ring is a graph"),
        )
    });
    let block = Block {
        num_dst: n as usize,
        num_src: n as usize,
        indptr: (0..=n).map(|v| 2 * v).collect(),
        indices,
        ..Block::default()
    };
    let matrix = dataset.features.as_ref().expect("features were given");
    let mut rows = BatchFeatures::like(matrix);
    rows.resize(n as usize, 1, matrix.dtype()).copy_from_slice(matrix.view().as_bytes());
    let mut batch = HostBatch {
        id: BatchId::default(),
        num_seeds: n as usize,
        input_nodes: (0..n).collect(),
        degrees: vec![2.0; n as usize],
        blocks: vec![block.clone(), block],
        features: Some(rows),
        given: None,
        labels,
        targets: Default::default(),
        pairs: None,
        features_by_type: Vec::new(),
        trees: None,
    };
    let spec = serde_json::json!({
        "model": {"kind": "gcn", "in_dim": 1, "num_classes": 2, "hidden": 8, "layers": 2},
        "optimizer": {"lr": 0.05}
    });
    let context = TrainingContext::new(dataset, spec);
    let mut trainer = CpuBurn::new(&context)?;
    for epoch in 0..40 {
        // Each epoch drops other elements: the mask is a function of the mini-batch's id.
        batch.id.epoch = epoch;
        let mini_batch = MiniBatch::Host(batch);
        let (score, _) = trainer.accumulate(&mini_batch)?.wait()?;
        trainer.step()?.wait()?;
        batch = mini_batch.into_host()?;
        if epoch % 10 == 9 {
            println!("epoch {epoch}: loss {:.3}", score.loss());
        }
    }
    let (score, _) = trainer.score(&MiniBatch::Host(batch))?.wait()?;
    println!("accuracy {:.2}", score.accuracy());
    Ok(())
}
