//! Writes a graph, maps it back and prints a row. Run: `cargo run -p morphgl-graph-store --example alone-store`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_graph_store::{Dataset, DatasetWriter, Load, OpenOptions, Result};

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join("morphgl-store-alone");
    let mut writer = DatasetWriter::create(&dir, true)?;
    // A cycle of six nodes, each with one in-neighbour.
    writer.array("indptr", &(0u64..=6).collect::<Vec<_>>(), None)?;
    writer.array("indices", &(0u32..6).map(|v| (v + 5) % 6).collect::<Vec<_>>(), None)?;
    writer.finish("cycle", 0, Default::default())?;
    let dataset = Dataset::open(&dir, OpenOptions { load: Load::Mmap, verify: true })?;
    println!(
        "{}: {} nodes, in-neighbours of 0: {:?}",
        dataset.name,
        dataset.num_nodes(),
        dataset.topology.neighbors(0)
    );
    Ok(())
}
