//! Samples mini-batches of a ring on a CUDA device, without the runner.
//! Run: `cargo run -p morphgl-batching-cuda-neighbor --example alone-cuda-neighbor`, without a device with `--features emulate`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_batching_cuda_neighbor::CudaSampler;
use morphgl_graph_store::{Dataset, Topology};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanouts, Machine, MiniBatch, Result, SamplerSettings, SeedSet,
};

fn main() -> Result<()> {
    if let Err(unavailable) = morphgl_cuda::probe(&Machine::probe()) {
        println!("not available: {}", unavailable.reason);
        return Ok(());
    }
    // Node v of the ring has the four in-neighbours within two steps.
    let n = 1000u32;
    let indices: Vec<u32> = (0..n).flat_map(|v| [n - 2, n - 1, 1, 2].map(|step| (v + step) % n)).collect();
    let topology = Topology::new((0..=u64::from(n)).map(|v| 4 * v).collect::<Vec<_>>(), indices, None);
    let dataset = Dataset::new("ring", topology.expect("a valid graph"));
    let seeds: Vec<u32> = (0..n).collect();
    let fanouts: Fanouts = "3,2".parse()?;
    let sampler = CudaSampler::new(&BatchingContext {
        dataset: Arc::new(dataset),
        seeds: SeedSet::new("all nodes", &seeds, n as usize)?,
        settings: SamplerSettings { batch_size: 400, ..fanouts.into() },
        gather: false,
        place: "cuda:0".parse()?,
        options: Default::default(),
    })?;
    println!(
        "placement of the topology: {:?}, {} bytes of device memory",
        sampler.topology(),
        sampler.topology_bytes()
    );
    let mut worker = sampler.worker(1)?;
    // All mini-batches of the epoch are in flight before the first wait.
    let ids = (0..sampler.num_batches() as u32).map(|index| BatchId { epoch: 0, index });
    let handles: Vec<_> = ids.map(|id| worker.prepare(id, None)).collect::<Result<_>>()?;
    for handle in handles {
        let (batch, took) = handle.wait()?;
        let MiniBatch::Device(batch) = batch else { unreachable!("the mini-batch is on the device") };
        let host = batch.to_host()?;
        let (seeds, nodes, edges) = (host.num_seeds, host.input_nodes.len(), host.num_edges());
        println!("{}: {seeds} seeds, {nodes} input nodes, {edges} edges in {took:?}", host.id);
    }
    Ok(())
}
