//! Samples a mini-batch of a generated graph without the runner. Run: `cargo run -p morphgl-batching-cpu-shadow --example alone-cpu-shadow`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_batching_cpu_shadow::CpuShadow;
use morphgl_generate::{SbmConfig, sbm};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanouts, Place, Result, SamplerSettings, Sampling, SeedSet, ShadowSettings,
};

fn main() -> Result<()> {
    let dataset = Arc::new(sbm(&SbmConfig { nodes: 10_000, ..SbmConfig::default() }).expect("a graph"));
    let seeds = SeedSet::new("training nodes", &dataset.splits.train, dataset.num_nodes())?;
    let hops: Fanouts = "10,5".parse()?;
    let sampling = Sampling::Shadow(ShadowSettings { hops: hops.into(), layers: 5 });
    let (settings, options) = (SamplerSettings::from(sampling), Default::default());
    let sampler =
        CpuShadow::new(&BatchingContext { dataset, seeds, settings, gather: true, place: Place::Host, options })?;
    let (batch, took) = sampler.worker(1)?.prepare(BatchId { epoch: 0, index: 0 }, None)?.wait()?;
    let host = batch.host()?;
    let (seeds, nodes, edges) = (host.num_seeds, host.input_nodes.len(), host.blocks[0].num_edges());
    println!("{}: {seeds} seeds, {nodes} nodes, {edges} edges in the first block, in {took:?}", host.id);
    Ok(())
}
