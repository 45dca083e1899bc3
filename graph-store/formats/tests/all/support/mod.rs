//! Helpers of the readers' tests.

use std::path::{Path, PathBuf};

use morphgl_formats::{Ingest, Options, Silent};
use morphgl_graph_store::{Dataset, OpenOptions, Result};
use tempfile::TempDir;

/// Imports by `import(target)` and opens the dataset.
#[track_caller]
pub(crate) fn open(import: impl FnOnce(&Path) -> Result<PathBuf>) -> Dataset {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("dataset");
    assert_eq!(import(&target).unwrap(), target);
    let dataset = Dataset::open(&target, OpenOptions::default()).unwrap();
    let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.retain(|name| name != "dataset");
    assert!(left.is_empty(), "left beside the dataset: {left:?}");
    let spilled = |e: &std::fs::DirEntry| !matches!(e.path().extension(), Some(x) if x == "npy" || x == "json");
    assert!(!std::fs::read_dir(&target).unwrap().any(|e| spilled(&e.unwrap())), "a file of the ingest is left");
    dataset
}

/// Imports by `import(source, target)` the text under `name`, expecting an error; its message without the directory.
#[track_caller]
pub(crate) fn refusal(name: &str, content: &[u8], import: impl FnOnce(&Path, &Path) -> Result<PathBuf>) -> String {
    let dir = tempfile::tempdir().unwrap();
    let source = write(&dir, name, content);
    let before = std::fs::read_dir(dir.path()).unwrap().count();
    let error = import(&source, &dir.path().join("dataset")).expect_err("the import refuses");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), before, "something is left behind");
    let message = error.to_string();
    assert!(!message.contains('\n'), "one line: {message}");
    message.replace(&format!("{}/", dir.path().display()), "")
}

/// Writes a file into a temporary directory.
pub(crate) fn write(dir: &TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// The graph of `edges` by the ingest.
pub(crate) fn ingest(edges: &[(u32, u32, f32)], num_nodes: Option<u64>, weighted: bool, options: &Options) -> Dataset {
    open(|target| {
        let mut ingest = Ingest::new(Path::new("memory"), target, options, &Silent)?;
        let mut sink = ingest.edges(Path::new("memory"), num_nodes, weighted)?;
        for chunk in edges.chunks(7) {
            let sources: Vec<u32> = chunk.iter().map(|e| e.0).collect();
            let targets: Vec<u32> = chunk.iter().map(|e| e.1).collect();
            let weights: Vec<f32> = chunk.iter().map(|e| e.2).collect();
            sink.push(&sources, &targets, weighted.then_some(&weights))?;
        }
        sink.finish()?;
        ingest.finish()
    })
}

/// Edges (source, target, weight) in the order of the rows.
pub(crate) fn edges(dataset: &Dataset) -> Vec<(u32, u32, f32)> {
    let topology = &dataset.topology;
    let mut edges = Vec::new();
    for v in 0..dataset.num_nodes() as u32 {
        for e in topology.edge_range(v) {
            edges.push((topology.indices()[e], v, topology.weights().map_or(1.0, |w| w[e])));
        }
    }
    edges
}
