//! Builds a CSC graph from a million pseudo-random edges within 1 MiB. Run: `cargo run -p morphgl-ingest --example alone-ingest`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_graph_store::{Dataset, DatasetWriter};
use morphgl_ingest::{CscBuilder, DuplicateWeights, EdgeOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("morphgl-alone-ingest-{}", std::process::id()));
    let mut writer = DatasetWriter::create(&dir, true)?;
    let options = EdgeOptions {
        num_nodes: Some(10_000),
        weighted: false,
        numbered: false,
        drop_weights: false,
        symmetrise: false,
        reverse: false,
        drop_self_loops: true,
        drop_duplicates: true,
        duplicate_weights: DuplicateWeights::First,
        add_self_loops: false,
        memory: 1 << 20,
    };
    let mut edges = CscBuilder::new("edges".as_ref(), writer.dir().join("edges.spill"), options)?;
    let ids =
        |factor: u64| (0..1_000_000u64).map(move |i| (i * i % 65_537 * factor % 10_000) as u32).collect::<Vec<_>>();
    edges.push(&ids(7919), &ids(104_729), None)?;
    let dropped = edges.finish(10_000, &mut writer, |_| ())?;
    let dataset = Dataset::open(writer.finish("alone", 0, Default::default())?, Default::default())?;
    println!(
        "{} edges; {} self-loops and {} duplicates dropped",
        dataset.topology.num_edges(),
        dropped.self_loops,
        dropped.duplicates
    );
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
