//! Edge lists as text: SNAP, csv, tsv, blanks; plain, gzip or zstd; with or without weights.
//!
//! A line is a source id, a target id and perhaps a weight, separated by blanks, tabs, commas or semicolons. Lines
//! that begin with `#` or `%` are comments; the first other line may name the columns. The first edge decides whether
//! there are weights.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Position, Result};

use crate::text::{Chunks, Pairs, PairsFormat, parse};
use crate::{Ingest, Options, Progress, compact};

/// How an edge list is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EdgeListOptions {
    /// What becomes of the node ids. Default: they are kept.
    pub ids: Ids,
    /// The id of the first node, taken off every id that is kept: 1 for lists that count from 1. Default 0.
    pub first_id: u64,
    /// Number of nodes, for a graph whose last nodes have no edges. Default: the highest id plus one.
    pub num_nodes: Option<u64>,
}

/// What becomes of the node ids of an edge list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ids {
    /// They are kept, so that features and labels in id order fit. Ids that leave most nodes without an edge, or pass
    /// 32 bits, are refused.
    #[default]
    Keep,
    /// Nodes are numbered anew without gaps, in ascending order of their ids, which are stored as `node_ids`.
    Compact,
}

/// Nodes without edges that kept ids may leave: so many for every edge, and so many in any case.
const GAPS_PER_EDGE: u64 = 64;
const GAPS: u64 = 1 << 20;

/// Imports the edge list `source` into a dataset at `target`.
///
/// # Errors
///
/// A line that is no edge, with its number; ids that do not fit; and whatever the disk refuses.
///
/// # Complexity
///
/// O(E log E) time, `options.memory` bytes; the text is parsed on all threads of rayon's pool.
pub fn import(
    source: &Path,
    target: &Path,
    format: EdgeListOptions,
    options: &Options,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let mut chunks = Chunks::open(source, options.memory, progress)?;
    let mut ingest = Ingest::new(source, target, options, progress)?;
    ingest.provenance("format", "edges");
    let weighted = weighted(&mut chunks)? && !options.drop_weights;
    let more_columns = options.drop_weights;
    let lines = PairsFormat { weighted, more_columns, first_id: format.first_id, num_nodes: format.num_nodes };
    match format.ids {
        Ids::Compact => {
            let lines = PairsFormat { first_id: 0, num_nodes: None, ..lines };
            compact::edges(&mut ingest, source, &mut chunks, lines)?;
        }
        Ids::Keep => keep(&mut ingest, source, &mut chunks, lines)?,
    }
    ingest.finish()
}

fn keep(ingest: &mut Ingest<'_>, source: &Path, chunks: &mut Chunks<'_>, lines: PairsFormat) -> Result<()> {
    let mut edges = ingest.edges(source, lines.num_nodes, lines.weighted)?;
    let blocks = edges.blocks();
    while let Some(chunk) = chunks.next()? {
        let block = |text: &[u8]| Ok(blocks.block(Pairs::<u32>::parse(text, lines)?.edges(lines.weighted), false));
        let parsed = parse(source, &chunk, block)?;
        edges.push_blocks(parsed)?;
    }
    let highest = edges.highest.map_or(0, u64::from);
    if lines.num_nodes.is_none() && highest > GAPS + GAPS_PER_EDGE * edges.len() {
        let what = format!("the ids reach {highest} with only {} edges", edges.len());
        return Err(Error::invalid(
            source,
            Position::File,
            what,
            "import with compact ids or give the number of nodes",
        ));
    }
    edges.finish()?;
    Ok(())
}

/// Passes over the comments and the names of the columns, and tells whether the first edge has a weight.
fn weighted(chunks: &mut Chunks<'_>) -> Result<bool> {
    let mut header_seen = false;
    let path = chunks.path().to_path_buf();
    while let Some((line, _)) = chunks.peek_line()? {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") || line.starts_with(b"%") {
            chunks.skip_line();
            continue;
        }
        if !header_seen && (line[0].is_ascii_alphabetic() || matches!(line[0], b'"' | b'_')) {
            header_seen = true;
            chunks.skip_line();
            continue;
        }
        let fields = line.split(|b| matches!(b, b' ' | b'\t' | b',' | b';')).filter(|f| !f.is_empty()).count();
        return Ok(fields >= 3);
    }
    Err(Error::invalid(path, Position::File, "there is no edge", "check that this is the right file and format"))
}
