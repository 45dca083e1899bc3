//! Imports an edge list without the runner and shows the progress.
//! Run: `cargo run --release -p morphgl-formats --example alone-formats -- [EDGES OUTPUT [MEMORY_IN_MIB]]`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use morphgl_formats::edge_list::{self, EdgeListOptions};
use morphgl_formats::{Options, Progress};
use morphgl_graph_store::{Dataset, Result};

/// Prints each stage as it begins, and counts what is done.
#[derive(Default)]
struct Stages(AtomicU64);

impl Progress for Stages {
    fn stage(&self, name: &str, total: Option<u64>) {
        println!("{name}: {}", total.map_or_else(|| "unknown size".into(), |n| n.to_string()));
    }

    fn advance(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (source, target) = match arguments.as_slice() {
        [source, target, ..] => (PathBuf::from(source), PathBuf::from(target)),
        _ => {
            let source = std::env::temp_dir().join("morphgl-formats-alone.txt");
            // A cycle of six nodes, one way.
            let text: String = (0..6).map(|v| format!("{v} {}\n", (v + 1) % 6)).collect();
            std::fs::write(&source, text).map_err(|e| morphgl_graph_store::Error::io(&source, e))?;
            (source, std::env::temp_dir().join("morphgl-formats-alone"))
        }
    };
    let memory = arguments.get(2).and_then(|m| m.parse().ok()).unwrap_or(2048) << 20;
    let options = Options { symmetrise: true, memory, replace: true, ..Options::default() };
    let (stages, start) = (Stages::default(), Instant::now());
    let path = edge_list::import(&source, &target, &EdgeListOptions::default(), &options, &stages)?;
    let seconds = start.elapsed().as_secs_f64();
    let dataset = Dataset::open(path, Default::default())?;
    let (nodes, edges) = (dataset.num_nodes(), dataset.topology.num_edges());
    println!("{}: {nodes} nodes, {edges} edges in {seconds:.2} s", dataset.name);
    println!("neighbours of 0: {:?}", &dataset.topology.neighbors(0)[..dataset.topology.neighbors(0).len().min(8)]);
    Ok(())
}
