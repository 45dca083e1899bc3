//! Trains a two-layer GraphSAGE on a small graph by sampled mini-batches whose features stay in the store.
//! Run: `cargo run -p morphgl-training-cpu-native --example alone-cpu-native`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_conformance::training::tiny;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanouts, Place, Result, SamplerSettings, SeedSet, Training, TrainingContext,
};
use morphgl_training_cpu_native::CpuNative;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let dataset = Arc::new(tiny());
    let nodes: Vec<u32> = (0..dataset.num_nodes() as u32).collect();
    let fanouts: Fanouts = "3,2".parse()?;
    let sampler = CpuNeighbor::new(&BatchingContext {
        dataset: Arc::clone(&dataset),
        seeds: SeedSet::new("all nodes", &nodes, nodes.len())?,
        settings: SamplerSettings { batch_size: 4, ..fanouts.into() },
        // The training operator reads features from the store.
        gather: false,
        place: Place::Host,
        options: Value::Null,
    })?;
    let (dim, classes) = (dataset.feature_dim(), dataset.num_classes);
    let mut trainer = CpuNative::new(&TrainingContext::new(
        dataset,
        json!({
            "model": {"kind": "sage", "in_dim": dim, "num_classes": classes, "hidden": 8, "layers": 2, "dropout": 0.1},
            "optimizer": {"lr": 0.02}
        }),
    ))?;
    let mut worker = sampler.worker(1)?;
    let mut recycled = None;
    for epoch in 0..40 {
        let mut loss = 0.0;
        for index in 0..sampler.num_batches() as u32 {
            let (batch, _) = worker.prepare(BatchId { epoch, index }, recycled)?.wait()?;
            loss += trainer.accumulate(&batch)?.wait()?.0.loss_sum;
            trainer.step()?.wait()?;
            recycled = Some(batch);
        }
        if epoch % 10 == 9 {
            println!("epoch {epoch}: loss {:.3}", loss / nodes.len() as f64);
        }
    }
    let logits = trainer.infer(&nodes)?;
    println!("logits of node 0 with all its neighbours: {:?}", &logits[..classes]);
    Ok(())
}
