//! Fills in the features of a mini-batch. Run: `cargo run -p morphgl-transferring-cpu-host --example alone-transfer-host`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_graph_store::{Dataset, FeatureMatrix, Topology};
use morphgl_registry::{HostBatch, MiniBatch, Place, Result, Transferring, TransferringContext};
use morphgl_transferring_cpu_host::CpuHost;

fn main() -> Result<()> {
    let dataset = Arc::new(Dataset {
        features: Some(FeatureMatrix::F32 { data: vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5].into(), dim: 2 }),
        ..Dataset::new("three nodes", Topology::new(vec![0u64; 4], Vec::<u32>::new(), None).expect("no edge at all"))
    });
    let context = TransferringContext::new(dataset, Place::Host, Place::Host);
    let batch = HostBatch { num_seeds: 1, input_nodes: vec![2, 0], ..Default::default() };
    let (batch, took) = CpuHost::new(&context)?.transfer(MiniBatch::Host(batch))?.wait()?;
    let features = batch.host()?.features.as_ref().expect("the transfer fills them in");
    println!("nodes {:?}: {:?}, in {took:?}", batch.host()?.input_nodes, features.view());
    Ok(())
}
