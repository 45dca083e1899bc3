//! Copies one mini-batch to a CUDA device, without the runner.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_graph_store::{Dataset, Topology};
use morphgl_registry::{HostBatch, Machine, MiniBatch, Place, Transferring, TransferringContext};
use morphgl_transferring_cuda::{DMA, PcieDma};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Err(unavailable) = (DMA.probe)(&Machine::probe()) {
        println!("{} cannot run here: {}", DMA.key, unavailable.reason);
        return Ok(());
    }
    let dataset = Arc::new(Dataset::new("two nodes", Topology::new(vec![0, 0, 0], vec![], None)?));
    let (from, to) = (Place::Host, "cuda:0".parse()?);
    let mut dma = PcieDma::new(&TransferringContext::new(dataset, from, to))?;
    let batch = HostBatch { num_seeds: 1, input_nodes: vec![1, 0], ..Default::default() };
    let (batch, took) = dma.transfer(MiniBatch::Host(batch))?.wait()?;
    println!("{} is at {} after {took:?}", batch.id(), batch.place());
    Ok(())
}
