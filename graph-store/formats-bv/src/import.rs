//! Sequential decoding of a graph into the ingest.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use dsi_bitstream::traits::{BE, LE};
use lender::prelude::*;
use morphgl_formats::{EdgeSink, Ingest, Options, Progress, RowContent};
use morphgl_graph_store::{Error, Position, Result};
use morphgl_platform::open_regular;
use webgraph::prelude::*;

use crate::checked::{Bounds, CheckedFactory, Refused};
use crate::properties::Properties;

/// Maximum number of lists before a node's that it may refer to; WebGraph's default is 7.
const MAX_WINDOW: usize = 1 << 16;

const DOWNLOAD: &str = "the file is damaged or of another graph: download it again";

/// Imports the BV graph with the basename `source` (the path without `.graph`, or with it) into a dataset at `target`.
///
/// # Errors
///
/// Missing or cut files, properties that do not fit, successors that do not exist, another number of arcs than
/// promised, an IO error.
///
/// # Complexity
///
/// O(V + E log E) time, `options.memory` bytes.
pub fn import(
    source: &Path,
    target: &Path,
    rows: RowContent,
    options: &Options,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    morphgl_formats::Format::Bv.refuse_others(source)?;
    let graph = existing(graph_file(source))?;
    let properties = Properties::read(&existing(graph.with_extension("properties"))?)?;
    let bytes = fs::metadata(&graph).map_err(|e| Error::io(&graph, e))?.len();
    if let Some(bits) = properties.bits.filter(|&bits| bits.div_ceil(8) > bytes) {
        let what = format!("the file has {bytes} bytes, its properties promise {}", bits.div_ceil(8));
        return Err(Error::invalid(&graph, Position::Byte(bytes), what, DOWNLOAD));
    }
    let mut ingest = Ingest::new(&graph, target, options, progress)?;
    ingest.provenance("format", "bv");
    if rows == RowContent::Sources {
        ingest.provenance("rows", "sources");
    }
    progress.stage("decode", Some(properties.num_arcs));
    let sink = ingest.edges(&graph, Some(properties.num_nodes), false)?;
    let num_arcs = properties.num_arcs;
    let bounds = Bounds { num_nodes: properties.num_nodes, num_arcs: properties.num_arcs, memory: options.memory };
    let mut arcs = ArcSink { sink, graph: &graph, num_arcs, rows, nodes: vec![], successors: vec![], progress };
    let unreadable = |e: anyhow::Error| damaged(&graph, format!("not a readable BV graph ({e})"));
    // The decoder has no errors: what it refuses, and the end of the bits, unwind; its state is dropped with it.
    let decoded = catch_unwind(AssertUnwindSafe(|| {
        let load = BvGraphSeq::with_basename(&graph);
        if properties.little_endian {
            let factory = load.endianness::<LE>().load().map_err(unreadable)?.into_inner();
            arcs.push_all(factory.get_compression_flags(), factory, bounds)
        } else {
            let factory = load.endianness::<BE>().load().map_err(unreadable)?.into_inner();
            arcs.push_all(factory.get_compression_flags(), factory, bounds)
        }
    }));
    decoded.unwrap_or_else(|payload| {
        Err(damaged(&graph, payload.downcast::<Refused>().map_or("the bits cannot be decoded".to_string(), |r| r.0)))
    })?;
    let decoded_arcs = arcs.sink.num_edges();
    if decoded_arcs != num_arcs {
        return Err(damaged(&graph, format!("{decoded_arcs} arcs, but the properties promise {num_arcs}")));
    }
    arcs.sink.finish()?;
    ingest.finish()
}

fn damaged(graph: &Path, what: impl Into<String>) -> Error {
    Error::invalid(graph, Position::File, what, DOWNLOAD)
}

/// The graph file of a basename, which may have dots of its own (`uk-2007-05.05`). Other endings replace that of this file, here
/// and in the `webgraph` crate.
fn graph_file(source: &Path) -> PathBuf {
    if source.extension().is_some_and(|ending| ending == "graph") {
        return source.to_path_buf();
    }
    let mut file = source.as_os_str().to_os_string();
    file.push(".graph");
    file.into()
}

fn existing(path: PathBuf) -> Result<PathBuf> {
    match open_regular(&path) {
        Ok(_) => Ok(path),
        Err(e) if e.kind() == io::ErrorKind::NotSeekable => Err(Error::io(path, e)),
        Err(_) => {
            let cure = "name the graph by its path without an ending, beside which .graph and .properties lie";
            Err(Error::invalid(path, Position::File, "there is no such file", cure))
        }
    }
}

/// Collects the decoder's arcs and pushes them in blocks.
struct ArcSink<'s, 'a> {
    sink: EdgeSink<'s, 'a>,
    graph: &'s Path,
    /// Number of arcs that the properties promise.
    num_arcs: u64,
    rows: RowContent,
    nodes: Vec<u32>,
    successors: Vec<u32>,
    progress: &'a dyn Progress,
}

impl ArcSink<'_, '_> {
    fn push_all<F: SequentialDecoderFactory>(&mut self, flags: CompFlags, factory: F, bounds: Bounds) -> Result<()> {
        const BLOCK: usize = 1 << 20;
        let (window, min_interval) = (flags.compression_window, flags.min_interval_length);
        if window > MAX_WINDOW {
            return Err(damaged(
                self.graph,
                format!("lists refer to the {window} before them; at most {MAX_WINDOW} can be"),
            ));
        }
        let factory = CheckedFactory { factory, bounds, window, min_interval };
        let graph = BvGraphSeq::new(factory, bounds.num_nodes as usize, Some(bounds.num_arcs), window, min_interval);
        let mut iter = graph.iter();
        while let Some((node, successors)) = iter.next() {
            for successor in successors {
                // A successor beyond 32 bits does not exist, and the sink refuses it.
                self.successors.push(u32::try_from(successor).unwrap_or(u32::MAX));
                self.nodes.push(node as u32);
                // Within a list, too: damaged bits can announce one that never ends.
                if self.nodes.len() == BLOCK {
                    self.flush()?;
                }
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        let (sources, targets) = match self.rows {
            RowContent::Targets => (&self.nodes, &self.successors),
            RowContent::Sources => (&self.successors, &self.nodes),
        };
        self.sink.push(sources, targets, None)?;
        if self.sink.num_edges() > self.num_arcs {
            let what = format!("more arcs than the {} that the properties promise", self.num_arcs);
            return Err(damaged(self.graph, what));
        }
        self.progress.advance(self.nodes.len() as u64);
        self.nodes.clear();
        self.successors.clear();
        Ok(())
    }
}
