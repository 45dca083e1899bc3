//! Samples a graph on disk without the runner. Run: `cargo run -p morphgl-batching-disk-neighbor --example alone-disk-neighbor [DATASET]`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::PathBuf;
use std::sync::Arc;

use morphgl_batching_disk_neighbor::DiskNeighbor;
use morphgl_generate::{SbmConfig, sbm_to_disk};
use morphgl_graph_store::{Dataset, Load, OpenOptions};
use morphgl_registry::{BatchId, Batching, BatchingContext, Fanouts, Place, SeedSet};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let own = std::env::temp_dir().join(format!("morphgl-alone-disk-{}", std::process::id()));
    let given = std::env::args().nth(1).map(PathBuf::from);
    if given.is_none() {
        sbm_to_disk(&SbmConfig::default(), &own, 64 << 20, true, &|_, _, _| ())?;
    }
    let path = given.as_ref().unwrap_or(&own);
    let dataset = Dataset::open(path, OpenOptions { load: Load::Disk, verify: false })?;
    let sampler = DiskNeighbor::new(&BatchingContext {
        seeds: SeedSet::new("train split", &dataset.splits.train, dataset.num_nodes())?,
        dataset: Arc::new(dataset),
        settings: "10,5".parse::<Fanouts>()?.into(),
        gather: true,
        place: Place::Host,
        options: serde_json::json!({ "memory_bytes": 8 << 20 }),
    })?;
    println!("{sampler:?}");
    let (mut worker, mut recycled) = (sampler.worker(1)?, None);
    for index in 0..sampler.num_batches().min(5) as u32 {
        let (batch, took) = worker.prepare(BatchId { epoch: 0, index }, recycled)?.wait()?;
        let host = batch.host()?;
        println!("{}: {} input nodes, {} edges in {took:?}", host.id, host.input_nodes.len(), host.num_edges());
        recycled = Some(batch);
    }
    println!("{:?}", sampler.counts());
    if given.is_none() {
        std::fs::remove_dir_all(own)?;
    }
    Ok(())
}
