//! Samples a mini-batch of a generated graph without the runner. Run: `cargo run -p morphgl-batching-cpu-walk --example alone-cpu-walk`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_batching_cpu_walk::CpuWalk;
use morphgl_generate::{SbmConfig, sbm};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Place, Result, SamplerSettings, Sampling, SeedSet, WalkSettings,
};

fn main() -> Result<()> {
    let dataset = Arc::new(sbm(&SbmConfig { nodes: 10_000, ..SbmConfig::default() }).expect("a graph"));
    let seeds = SeedSet::new("training nodes", &dataset.splits.train, dataset.num_nodes())?;
    let sampling = Sampling::Walk(WalkSettings::of_layers(2));
    let (settings, options) = (SamplerSettings::from(sampling), Default::default());
    let sampler =
        CpuWalk::new(&BatchingContext { dataset, seeds, settings, gather: true, place: Place::Host, options })?;
    let (batch, took) = sampler.worker(1)?.prepare(BatchId { epoch: 0, index: 0 }, None)?.wait()?;
    let host = batch.host()?;
    let (seeds, nodes, edges) = (host.num_seeds, host.input_nodes.len(), host.blocks[0].num_edges());
    println!("{}: {seeds} seeds, {nodes} nodes, {edges} edges in the first block, in {took:?}", host.id);
    Ok(())
}
