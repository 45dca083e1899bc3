//! METIS graph files, of any `fmt` (vertex sizes, vertex weights, edge weights) and `ncon`.
//!
//! Line `v` lists the neighbours of node `v`, from 1; every edge is on the lines of both its ends and becomes two edges.
//! Vertex sizes and vertex weights are skipped: they guide a partitioner, and a dataset does not store them.
//! Plain, gzip or zstd.

use std::path::{Path, PathBuf};

use morphgl_graph_store::Result;

use crate::text::Chunks;
use crate::{Format, Ingest, Options, Progress};

pub(crate) mod lines;

use lines::{header, rows};

/// Imports the METIS graph `source` into a dataset at `target`.
///
/// # Errors
///
/// A line that cannot be read, with its number; other numbers of nodes and edges than the first line promises; an edge
/// that only one of its ends lists; an IO error.
///
/// # Complexity
///
/// O(E log E) time, `options.memory` bytes.
pub fn import(source: &Path, target: &Path, options: &Options, progress: &dyn Progress) -> Result<PathBuf> {
    Format::Metis.refuse_others(source)?;
    let mut chunks = Chunks::open(source, "read", options.memory, progress)?;
    let header = header(&mut chunks, source)?;
    let mut ingest = Ingest::new(source, target, options, progress)?;
    ingest.provenance("format", "metis");
    let mut edges = ingest.edges(source, Some(header.num_nodes), header.weighted)?;
    rows(&mut chunks, source, header, |sources, targets, weights| {
        edges.push(sources, targets, header.weighted.then_some(weights))
    })?;
    edges.finish()?;
    ingest.finish()
}
