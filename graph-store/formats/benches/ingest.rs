//! Import speed per format, from files in the page cache to the finished, synced dataset.
//!
//! Run: `cargo bench -p morphgl-formats --bench ingest -- [--edges 10000000] [--nodes EDGES/25] [--rounds 5]
//! [--formats csv,ogb,…] [--memory MIB] [--dir DIR] [--json]`.
//!
//! A figure "per core" divides by the CPU time of all threads, user and system, as `/proc/self/stat` counts it (ticks
//! of 10 ms): parsing, decompression, sort, checksums, page faults and copies into the page cache. The rounds of all
//! formats are interleaved. The limits are measured in the same run: the disk's reads past the page cache, its writes
//! with a sync, and reads from the page cache on all threads. "limit s" is what reading the source and writing the
//! dataset would take at these rates, one after the other and at the same time, and "share of it" that time by the import's.
//! A row "cold" starts with an emptied page cache, where the system permits that.
//!
//! Within five minutes: `-- --rounds 5`, then `-- --edges 124000000 --nodes 2400000 --rounds 3 --formats
//! "npy edge_index i64,npy csc i64,npy features f32,npy features f16"`.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "measure/mod.rs"]
mod measure;
#[path = "measure/sources.rs"]
mod sources;

use std::path::{Path, PathBuf};

use measure::{Arguments, COLD, Report, disk_limits, forget_files, measured};
use morphgl_formats::edge_list::{self, EdgeListOptions, Ids};
use morphgl_formats::numpy::{self, NumpyOptions};
use morphgl_formats::{Options, Progress, metis, mtx, ogb};
use morphgl_graph_store::Result;
use sources::Graph;

/// A format's name, and the source file or directory of that name in the bench's directory.
const FORMATS: [(&str, &str); 15] = [
    ("csv", "edges.csv"),
    ("csv weighted", "weighted.csv"),
    ("csv compact", "edges.csv"),
    ("tsv", "edges.tsv"),
    ("csv.gz", "edges.csv.gz"),
    ("csv.zst", "edges.csv.zst"),
    ("ogb csv.gz", "ogb"),
    ("mtx", "graph.mtx"),
    ("metis", "graph.metis"),
    ("npy edge_index i64", "edge_index"),
    ("npy csc i64", "csc_i64"),
    ("npy csc u32", "csc"),
    ("npy features f32", "features_f32"),
    ("npy features f16", "features_f16"),
    ("npz edge_index i64", "edge_index.npz"),
];

fn main() -> Result<()> {
    let arguments = Arguments::read();
    let dir = arguments.dir.join(format!("morphgl-ingest-{}", std::process::id()));
    let is_selected = |name: &str| arguments.formats.as_ref().is_none_or(|f| f.iter().any(|f| f == name));
    let formats: Vec<_> = FORMATS.into_iter().filter(|(name, _)| is_selected(name)).collect();
    sources::write_all(&dir, &Graph { nodes: arguments.nodes, edges: arguments.edges }, &formats);
    let mut report = Report::new(&arguments);
    let options = Options { memory: arguments.memory, ..Options::default() };
    // One unmeasured round: the pool's threads and the page cache.
    for round in 0..=arguments.rounds {
        let limits = disk_limits(&dir);
        for (name, file) in &formats {
            let source = dir.join(file);
            let import = |progress: &dyn Progress| import(name, &source, &dir.join("dataset"), &options, progress);
            // Removing an old dataset takes time, too, and is no part of an import.
            let measured = || {
                let _ = std::fs::remove_dir_all(dir.join("dataset"));
                measured(import)
            };
            let run = measured()?;
            if round > 0 {
                report.add(name, &source, run);
                // Plain arrays are compared with the disk: once more, with an empty page cache.
                if name.starts_with("npy") && forget_files() {
                    report.add(&format!("{name}{COLD}"), &source, measured()?);
                }
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

fn import(format: &str, source: &Path, target: &Path, options: &Options, progress: &dyn Progress) -> Result<PathBuf> {
    match format {
        "ogb csv.gz" => ogb::import(source, target, options, progress),
        "mtx" => mtx::import(source, target, options, progress),
        "metis" => metis::import(source, target, options, progress),
        "csv compact" => {
            let format = EdgeListOptions { ids: Ids::Compact, ..EdgeListOptions::default() };
            edge_list::import(source, target, &format, options, progress)
        }
        name if name.starts_with("np") => numpy::import(source, target, NumpyOptions::default(), options, progress),
        _ => edge_list::import(source, target, &EdgeListOptions::default(), options, progress),
    }
}
