//! Generates a graph in memory and the same one on disk. Run: `cargo run -p morphgl-generate --example alone-generate`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_generate::{DEFAULT_MEMORY, Result, SbmConfig, sbm, sbm_to_disk};
use morphgl_graph_store::{Dataset, OpenOptions};

fn main() -> Result<()> {
    let config = SbmConfig { nodes: 10_000, ..SbmConfig::default() };
    let dataset = sbm(&config)?;
    println!("{}: {} nodes, {} edges", dataset.name, dataset.num_nodes(), dataset.topology.num_edges());
    let target = std::env::temp_dir().join("morphgl-generate-alone");
    let path = sbm_to_disk(&config, &target, DEFAULT_MEMORY, true, &|_, _, _| {})?;
    let stored = Dataset::open(&path, OpenOptions::default())?;
    println!("on disk the same: {}", stored.topology == dataset.topology && stored.features == dataset.features);
    Ok(())
}
