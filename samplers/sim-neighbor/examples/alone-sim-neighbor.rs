//! Batches a ring on the simulated accelerator. Run: `cargo run -p morphgl-batching-sim-neighbor --example alone-sim-neighbor`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_batching_sim_neighbor::SimNeighbor;
use morphgl_conformance::batching::graphs;
use morphgl_registry::{BatchId, Batching, BatchingContext, Fanouts, MiniBatch, Result, SamplerSettings, SeedSet};
use morphgl_sim::Device;

fn main() -> Result<()> {
    let device = Device::new("sim:0".parse()?, "batching-device=8ms,memory=2".parse()?);
    let seeds: Vec<u32> = (0..100).collect();
    let fanouts: Fanouts = "2,2".parse()?;
    let sampler = SimNeighbor::new(
        &BatchingContext {
            dataset: Arc::new(graphs::cycle(100)),
            seeds: SeedSet::new("all nodes", &seeds, 100)?,
            settings: SamplerSettings { batch_size: 40, ..fanouts.into() },
            gather: false,
            place: "sim:0".parse()?,
            options: Default::default(),
        },
        &device,
    )?;
    let mut worker = sampler.worker(1)?;
    for index in 0..sampler.num_batches() as u32 {
        let (batch, took) = worker.prepare(BatchId { epoch: 0, index }, None)?.wait()?;
        let MiniBatch::Device(batch) = batch else { unreachable!("it lies on the device") };
        let host = batch.to_host()?;
        println!(
            "{}: {} input nodes, {} edges at {}, in {took:?}",
            host.id,
            host.input_nodes.len(),
            host.num_edges(),
            batch.place()
        );
    }
    Ok(())
}
