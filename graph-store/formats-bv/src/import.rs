//! Decoding, one node after another, into the ingest.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use dsi_bitstream::traits::{BE, LE};
use lender::prelude::*;
use morphgl_formats::{EdgeSink, Ingest, Options, Progress, Rows};
use morphgl_graph_store::{Error, Position, Result};
use webgraph::prelude::*;

use crate::properties::Properties;

const DOWNLOAD: &str = "the file is damaged or of another graph: download it again";

/// Imports the BV graph with the basename `source` (the path without `.graph`) into a dataset at `target`.
///
/// # Errors
///
/// Missing or cut files, properties that do not fit, successors that do not exist, another number of arcs than
/// promised, and whatever the disk refuses.
///
/// # Complexity
///
/// O(V + E log E) time, `options.memory` bytes.
pub fn import(source: &Path, target: &Path, rows: Rows, options: &Options, progress: &dyn Progress) -> Result<PathBuf> {
    let graph = with_ending(source, "graph")?;
    let properties = Properties::read(&with_ending(source, "properties")?)?;
    let bytes = fs::metadata(&graph).map_err(|e| Error::io(&graph, e))?.len();
    if let Some(bits) = properties.bits.filter(|&bits| bits.div_ceil(8) > bytes) {
        let what = format!("the file has {bytes} bytes, its properties promise {}", bits.div_ceil(8));
        return Err(Error::invalid(&graph, Position::Byte(bytes), what, DOWNLOAD));
    }
    let mut ingest = Ingest::new(source, target, options, progress)?;
    ingest.provenance("format", "bv");
    if rows == Rows::Sources {
        ingest.provenance("rows", "sources");
    }
    progress.stage("decode", Some(properties.num_arcs));
    let sink = ingest.edges(&graph, Some(properties.num_nodes), false)?;
    let mut stream = Stream { sink, rows, nodes: Vec::new(), successors: Vec::new(), progress };
    let unreadable =
        |e: anyhow::Error| Error::invalid(&graph, Position::File, format!("not a readable BV graph ({e})"), DOWNLOAD);
    // The decoder panics on bits that no BV graph has; what it leaves behind is dropped with it.
    let decoded = catch_unwind(AssertUnwindSafe(|| {
        if properties.little_endian {
            stream.all(&BvGraphSeq::with_basename(source).endianness::<LE>().load().map_err(unreadable)?)
        } else {
            stream.all(&BvGraphSeq::with_basename(source).endianness::<BE>().load().map_err(unreadable)?)
        }
    }));
    decoded.unwrap_or_else(|_| Err(Error::invalid(&graph, Position::File, "the bits cannot be decoded", DOWNLOAD)))?;
    if stream.sink.len() != properties.num_arcs {
        let what = format!("{} arcs, but the properties promise {}", stream.sink.len(), properties.num_arcs);
        return Err(Error::invalid(&graph, Position::File, what, DOWNLOAD));
    }
    stream.sink.finish()?;
    ingest.finish()
}

fn with_ending(source: &Path, ending: &str) -> Result<PathBuf> {
    let path = source.with_extension(ending);
    if path.is_file() {
        return Ok(path);
    }
    let cure = "name the graph by its path without an ending, beside which .graph and .properties lie";
    Err(Error::invalid(path, Position::File, "there is no such file", cure))
}

/// Edges on their way from the decoder to the sink.
struct Stream<'s, 'a> {
    sink: EdgeSink<'s, 'a>,
    rows: Rows,
    nodes: Vec<u32>,
    successors: Vec<u32>,
    progress: &'a dyn Progress,
}

impl Stream<'_, '_> {
    fn all<G: SequentialGraph>(&mut self, graph: &G) -> Result<()> {
        const BLOCK: usize = 1 << 16;
        let mut iter = graph.iter();
        while let Some((node, successors)) = iter.next() {
            for successor in successors {
                // What does not fit 32 bits does not exist, and the sink says so.
                self.successors.push(u32::try_from(successor).unwrap_or(u32::MAX));
                self.nodes.push(node as u32);
            }
            if self.nodes.len() >= BLOCK {
                self.flush()?;
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        let (sources, targets) = match self.rows {
            Rows::Targets => (&self.nodes, &self.successors),
            Rows::Sources => (&self.successors, &self.nodes),
        };
        self.sink.push(sources, targets, None)?;
        self.progress.advance(self.nodes.len() as u64);
        self.nodes.clear();
        self.successors.clear();
        Ok(())
    }
}
