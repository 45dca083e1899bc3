//! Copies mini-batches until the memory is full. Run: `cargo run -p morphgl-transferring-sim-copy --example alone-sim-copy`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_conformance::batching::graphs;
use morphgl_registry::{BatchId, HostBatch, MiniBatch, Place, Result, Transferring, TransferringContext};
use morphgl_sim::Device;
use morphgl_transferring_sim_copy::SimDma;

fn main() -> Result<()> {
    let device = Device::new("sim:0".parse()?, "transferring-pcie=3ms,memory=2".parse()?);
    let (dataset, options) = (Arc::new(graphs::cycle(6)), Default::default());
    let context = TransferringContext { options, ..TransferringContext::new(dataset, Place::Host, "sim:0".parse()?) };
    let mut dma = SimDma::new(&context, &device)?;
    let mut batches = Vec::new();
    for index in 0..3 {
        let id = BatchId { epoch: 0, index };
        let batch = HostBatch { id, num_seeds: 1, input_nodes: vec![index], ..Default::default() };
        match dma.transfer(MiniBatch::Host(batch))?.wait() {
            Ok((batch, took)) => {
                println!("{id} is at {} after {took:?}", batch.place());
                batches.push(batch);
            }
            Err(error) => println!("{error}"),
        }
    }
    Ok(())
}
