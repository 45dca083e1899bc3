//! Import speed of WebGraph's BV, from a file in the page cache to the finished, synced dataset.
//!
//! Run: `cargo bench -p morphgl-formats-bv --bench ingest_bv -- [--edges 10000000] [--nodes EDGES/25] [--rounds 5]
//! [--memory MIB] [--dir DIR] [--json] [--graph BASENAME]`. Without `--graph`, a graph is compressed with WebGraph's own
//! compressor: half of each node's successors lie near it, half anywhere.
//!
//! "bv targets" stores the transpose, which sorts all edges; "bv sources" stores the rows as they are. The bench of
//! `morphgl-formats` describes the figures.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../../formats/benches/measure/mod.rs"]
mod measure;

use std::path::{Path, PathBuf};

use dsi_bitstream::traits::BE;
use measure::{Arguments, Report, disk_limits, measured};
use morphgl_formats::{Options, RowContent};
use morphgl_graph_store::Result;
use webgraph::prelude::{BvComp, VecGraph};

fn main() -> Result<()> {
    let arguments = Arguments::read();
    let dir = arguments.dir.join(format!("morphgl-ingest-bv-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the disk takes the graph");
    let given = std::env::args().skip_while(|a| a != "--graph").nth(1).map(PathBuf::from);
    let graph = given.unwrap_or_else(|| compress(&dir.join("graph"), arguments.nodes, arguments.edges));
    let file = graph.with_extension("graph");
    let mut report = Report::new(&arguments);
    let options = Options { memory: arguments.memory, replace: true, ..Options::default() };
    // One unmeasured round: the pool's threads and the page cache.
    for round in 0..=arguments.rounds {
        let limits = disk_limits(&dir);
        for (name, rows) in [("bv targets", RowContent::Targets), ("bv sources", RowContent::Sources)] {
            let target = dir.join("dataset");
            let run = measured(|progress| morphgl_formats_bv::import(&graph, &target, rows, &options, progress))?;
            if round > 0 {
                report.add(name, &file, run);
            }
        }
        if round > 0 {
            report.disk(limits);
        }
    }
    report.print();
    // A remaining directory is among the system's temporary files.
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

fn compress(basename: &Path, nodes: u64, edges: u64) -> PathBuf {
    let degree = edges.div_ceil(nodes);
    let arcs = (0..nodes).flat_map(|u| {
        let near = (0..degree / 2).map(move |i| (u + 1 + i * i % 97) % nodes);
        let far = (degree / 2..degree).map(move |i| (u * degree + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) % nodes);
        near.chain(far).map(move |v| (u as usize, v as usize))
    });
    let graph = VecGraph::from_arcs(arcs);
    BvComp::with_basename(basename).comp_graph::<BE>(&graph).expect("the disk takes the graph");
    basename.to_path_buf()
}
