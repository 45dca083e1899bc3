//! Gathers the features of one mini-batch on a CUDA device, without the runner.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_cuda::{CudaBatch, Device, Stream};
use morphgl_graph_store::{Dataset, FeatureMatrix, Splits, Topology};
use morphgl_registry::{HostBatch, Machine, MiniBatch, Transferring, TransferringContext};
use morphgl_transferring_cuda_zero_copy::{DESCRIPTION, KEY, ZeroCopy};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Err(unavailable) = (DESCRIPTION.probe)(&Machine::probe()) {
        println!("{KEY} cannot run here: {}", unavailable.reason);
        return Ok(());
    }
    let none = || Vec::new().into();
    let dataset = Arc::new(Dataset {
        path: Default::default(),
        name: "three nodes".into(),
        topology: Topology::new(vec![0; 4], vec![], None)?,
        features: Some(FeatureMatrix::F32 { data: vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5].into(), dim: 2 }),
        labels: None,
        num_classes: 0,
        splits: Splits { train: none(), valid: none(), test: none() },
        node_ids: None,
    });
    let (from, to): (morphgl_registry::Place, _) = ("cuda:0".parse()?, "cuda:0".parse()?);
    let stream = Stream::new(&Device::open(&to, &KEY)?, false)?;
    let mut gather =
        ZeroCopy::new(&TransferringContext { dataset, from, to, gather: true, options: Default::default() })?;

    let batch = HostBatch { num_seeds: 1, input_nodes: vec![2, 0], ..Default::default() };
    let batch = CudaBatch::upload(&stream, &batch)?.into_batch();
    let (batch, took) = gather.transfer(batch)?.wait()?;
    let MiniBatch::Device(batch) = batch else { unreachable!("it stays on the device") };
    println!("after {took:?}: {:?}", batch.to_host()?.features);
    Ok(())
}
