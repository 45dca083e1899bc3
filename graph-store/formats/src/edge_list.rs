//! Edge lists as text: SNAP, csv, tsv, blanks; plain, gzip or zstd; with or without weights.
//!
//! A line is a source id, a target id and perhaps a weight, separated by blanks, tabs, commas or semicolons. Lines
//! that begin with `#` or `%` are comments. Where the first other line names the columns, they are read by their names;
//! else its number of fields decides whether there are weights. [`Columns`] overrides both.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use morphgl_graph_store::{Error, Position, Result};

use crate::files::{invalid, magic};
use crate::tabular::columnar;
use crate::text::{Chunks, FirstLine, Pairs, PairsFormat, first_line, parse_next};
use crate::{EdgeSink, Ingest, Options, Progress, compact};

mod table;

pub use crate::text::{Column, Columns};

/// Options of an edge list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EdgeListOptions {
    /// The columns that are read.
    pub columns: Columns,
    /// The treatment of node ids. Default: they are kept.
    pub ids: Ids,
    /// The id of the first node, subtracted from every id that is kept: 1 for lists that count from 1. Default 0.
    pub first_id: u64,
    /// Number of nodes, for a graph whose last nodes have no edges. Default: the highest id plus one.
    pub num_nodes: Option<u64>,
}

/// Treatment of the node ids of an edge list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ids {
    /// They are kept, so that features and labels in id order fit. Ids that leave most nodes without an edge, or pass
    /// 32 bits, are refused.
    #[default]
    Keep,
    /// Nodes are renumbered without gaps, in ascending order of their ids, which are stored as `node_ids`.
    Compact,
    /// Ids are text. Nodes are numbered in ascending order of their names, which are stored as `node_names`.
    Strings,
}

/// Maximum number of nodes without edges that kept ids may leave: for every edge, and in any case.
const GAPS_PER_EDGE: u64 = 64;
const GAPS: u64 = 1 << 20;

/// Imports the edge list `source` into a dataset at `target`.
///
/// # Errors
///
/// A line that is no edge, with its number; ids that do not fit; an IO error.
///
/// # Complexity
///
/// O(E log E) time, `options.memory` bytes; the text is parsed on all threads of rayon's pool.
pub fn import(
    source: &Path,
    target: &Path,
    format: &EdgeListOptions,
    options: &Options,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let mut ingest = Ingest::new(source, target, options, progress)?;
    ingest.provenance("format", "edges");
    ingest.read_nodes(format.ids == Ids::Strings)?;
    if format.ids == Ids::Strings || columnar(&magic(source)?).is_some() {
        table::edges(&mut ingest, source, format)?;
    } else {
        text(&mut ingest, source, format)?;
    }
    if format.ids == Ids::Keep && format.first_id > 0 {
        let ids: Vec<u64> = (format.first_id..).take(ingest.num_nodes.unwrap_or(0) as usize).collect();
        ingest.node_ids(source, &ids)?;
    }
    ingest.finish()
}

/// Reads lines of numbers.
fn text(ingest: &mut Ingest<'_>, source: &Path, format: &EdgeListOptions) -> Result<()> {
    let options = ingest.options();
    let mut chunks = Chunks::open(source, "read", options.memory, ingest.progress())?;
    let Some((line, number)) = chunks.peek_content(b"#%")? else {
        return invalid(source, "there is no edge", "check that this is the right file and format");
    };
    let FirstLine { layout, is_header, ignored } = first_line(line, &format.columns)
        .map_err(|(what, cure)| Error::invalid(source, Position::Line(number), what, cure))?;
    if is_header {
        chunks.skip_line();
    }
    if is_header || format.columns != Columns::default() || !ignored.is_empty() {
        ingest.note(layout.columns.note(layout.count, &ignored, |column| (column + 1).to_string()));
    }
    let weighted = layout.columns.weight.is_some() && !options.drop_weights;
    let more_columns = options.drop_weights && layout.is_plain();
    let lines = PairsFormat { layout, weighted, more_columns, first_id: format.first_id, num_nodes: format.num_nodes };
    let rounded = match format.ids {
        Ids::Compact => {
            let lines = PairsFormat { first_id: 0, num_nodes: None, ..lines };
            compact::edges(ingest, source, &mut chunks, lines)?
        }
        _ => keep(ingest, source, &mut chunks, lines)?,
    };
    note_rounded(ingest, rounded);
    Ok(())
}

fn note_rounded(ingest: &mut Ingest<'_>, rounded: u64) {
    if rounded > 0 {
        let what = "weights are whole numbers that f32 does not hold, and were rounded";
        ingest.note(format!("{rounded} {what}; if they are times, import with --drop-weights"));
    }
}

fn keep(ingest: &mut Ingest<'_>, source: &Path, chunks: &mut Chunks<'_>, lines: PairsFormat) -> Result<u64> {
    ingest.keep_ids(lines.first_id);
    let mut edges = ingest.edges(source, lines.num_nodes, lines.weighted)?;
    let blocks = edges.csc.block_maker();
    let (rounded, lowest) = (AtomicU64::new(0), AtomicU32::new(u32::MAX));
    let block = |text: &[u8]| {
        let pairs = Pairs::<u32>::parse(text, lines)?;
        rounded.fetch_add(pairs.rounded, Ordering::Relaxed);
        // Nothing is lower than node 0, which most files name early.
        if lowest.load(Ordering::Relaxed) > 0 {
            let min = pairs.sources.iter().chain(&pairs.targets).fold(u32::MAX, |min, &id| min.min(id));
            lowest.fetch_min(min, Ordering::Relaxed);
        }
        Ok(blocks.block(pairs.edges(lines.weighted), false))
    };
    while let Some(parsed) = parse_next(chunks, block)? {
        edges.csc.push_blocks(parsed)?;
    }
    finish_kept(edges, lines.num_nodes, (lines.first_id, lowest.into_inner()))?;
    Ok(rounded.into_inner())
}

/// Finishes edges whose ids are kept. `first` was subtracted from every id, and `lowest` is the lowest result.
fn finish_kept(edges: EdgeSink<'_, '_>, num_nodes: Option<u64>, (first, lowest): (u64, u32)) -> Result<()> {
    let highest = edges.csc.highest().map_or(0, u64::from).max(edges.ingest.min_nodes.saturating_sub(1));
    if num_nodes.is_none() && highest > GAPS + GAPS_PER_EDGE * edges.num_edges() {
        let what = format!("the ids reach {highest} with only {} edges", edges.num_edges());
        return invalid(edges.csc.source(), what, "import with compact ids or give the number of nodes");
    }
    if first == 0 && lowest > 0 {
        let what = format!("the lowest node id is {lowest}: nodes below it have no edges");
        edges.ingest.note(format!("{what}; for ids that count from 1 import with --first-id 1"));
    }
    edges.finish().map(|_| ())
}
