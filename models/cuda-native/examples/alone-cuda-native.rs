//! Trains a two-layer GCN on a ring of twelve nodes, full batch, on the first CUDA device, without the runner.
//! Run: `cargo run -p morphgl-training-cuda-native --example alone-cuda-native`, or with `--features emulate` on a machine
//! without a device.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_cuda::{CudaBatch, Device, Stream};
use morphgl_graph_store::{Dataset, FeatureMatrix, Topology};
use morphgl_registry::{BatchFeatures, BatchId, Block, HostBatch, Machine, Place, Result, Training, TrainingContext};
use morphgl_training_cuda_native::{CudaNative, KEY};

fn main() -> Result<()> {
    if let Err(unavailable) = morphgl_cuda::probe(&Machine::probe()) {
        println!("{KEY} cannot run here: {}", unavailable.reason);
        return Ok(());
    }
    let n = 12u32;
    let features: Vec<f32> = (0..n).map(|v| if v < n / 2 { 1.0 } else { -1.0 }).collect();
    let labels: Vec<i32> = (0..n).map(|v| i32::from(v >= n / 2)).collect();
    let indices: Vec<u32> = (0..n).flat_map(|v| [(v + n - 1) % n, (v + 1) % n]).collect();
    let dataset = Arc::new(Dataset {
        features: Some(FeatureMatrix::F32 { data: features.into(), dim: 1 }),
        labels: Some(labels.clone().into()),
        num_classes: 2,
        ..Dataset::new(
            "ring",
            Topology::new((0..=u64::from(n)).map(|v| 2 * v).collect::<Vec<u64>>(), indices.clone(), None)
                .expect("a ring is a graph"),
        )
    });
    let indptr = (0..=n).map(|v| 2 * v).collect();
    let block = Block { num_dst: n as usize, num_src: n as usize, indptr, indices, ..Block::default() };
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
    let place: Place = "cuda:0".parse()?;
    let context = TrainingContext { place: place.clone(), ..TrainingContext::new(dataset, spec) };
    let mut trainer = CudaNative::new(&context)?;
    let stream = Stream::new(&Device::open(&place, &KEY)?, false)?;
    for epoch in 0..40 {
        // Each epoch drops other elements: the mask is a function of the mini-batch's id.
        batch.id.epoch = epoch;
        let mini_batch = CudaBatch::upload(&stream, &batch)?.into_batch();
        let score = trainer.accumulate(&mini_batch)?;
        let step = trainer.step()?;
        // Both are queued by now; nothing was waited for.
        let (score, _) = score.wait()?;
        step.wait()?;
        if epoch % 10 == 9 {
            println!("epoch {epoch}: loss {:.3}", score.loss());
        }
    }
    let nodes: Vec<u32> = (0..n).collect();
    let right =
        trainer.infer(&nodes)?.chunks_exact(2).zip(&nodes).filter(|(l, v)| (l[1] > l[0]) == (**v >= n / 2)).count();
    println!("{right} of {n} nodes are right");
    Ok(())
}
