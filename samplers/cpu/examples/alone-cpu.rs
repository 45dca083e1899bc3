//! Samples mini-batches of a ring without the runner. Run: `cargo run -p morphgl-batching-cpu --example alone-cpu`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_batching_cpu::graph_store::{Dataset, Topology};
use morphgl_batching_cpu::registry::{BatchId, Batching, BatchingContext, Fanouts, Result, SamplerSettings, SeedSet};

fn main() -> Result<()> {
    // Node v of the ring has the four in-neighbours within two steps.
    let n = 1000u32;
    let indices: Vec<u32> = (0..n).flat_map(|v| [n - 2, n - 1, 1, 2].map(|step| (v + step) % n)).collect();
    let topology = Topology::new((0..=u64::from(n)).map(|v| 4 * v).collect::<Vec<_>>(), indices, None);
    let dataset = Dataset::new("ring", topology.expect("the ring is a graph"));
    let seeds: Vec<u32> = (0..n).collect();
    let fanouts: Fanouts = "3,2".parse()?;
    let sampler = CpuNeighbor::new(&BatchingContext::new(
        Arc::new(dataset),
        SeedSet::new("all nodes", &seeds, n as usize)?,
        SamplerSettings { batch_size: 400, ..fanouts.into() },
    ))?;
    let mut worker = sampler.worker(1)?;
    let mut recycled = None;
    for index in 0..sampler.num_batches() as u32 {
        let (batch, took) = worker.prepare(BatchId { epoch: 0, index }, recycled)?.wait()?;
        let host = batch.host()?;
        let (seeds, nodes, edges) = (host.num_seeds, host.input_nodes.len(), host.num_edges());
        println!("{}: {seeds} seeds, {nodes} input nodes, {edges} edges in {took:?}", host.id);
        recycled = Some(batch);
    }
    Ok(())
}
