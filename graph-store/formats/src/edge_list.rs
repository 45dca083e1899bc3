//! Edge lists as text: SNAP, csv, tsv, blanks; plain, gzip or zstd; with or without weights.
//!
//! A line is a source id, a target id and perhaps a weight, separated by blanks, tabs, commas or semicolons. Lines
//! that begin with `#` or `%` are comments. Where the first other line names the columns, they are read by their names;
//! else its number of fields decides whether there are weights. [`Columns`] overrides both.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use morphgl_graph_store::{Error, Position, Result};

use crate::files::{invalid, magic};
use crate::ingest::unlisted::{Listed, Unlisted};
use crate::tabular::{TableFile, columnar};
use crate::text::{Chunks, FirstLine, IdFormat, Pairs, PairsFormat, first_line, named_cure, parse_next};
use crate::{EdgeSink, Format, Ingest, Options, Progress, Silent, UnknownNodes, compact, metis};
use preface::Preface;

mod first_row;
mod preface;
mod table;
mod two_kinds;

pub use crate::text::{Column, Columns};

/// Options of an edge list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EdgeListOptions {
    /// The columns that are read. Features of edges are stored as f32 unless the options name another type, in the order of
    /// the columns; errors name the line of a field that is no number.
    pub columns: Columns,
    /// The treatment of node ids. Default: they are kept.
    pub ids: Ids,
    /// The id of the first node, subtracted from every id that is kept: 1 for lists that count from 1. Default 0, and 1 where
    /// the header is KONECT's.
    pub first_id: Option<u64>,
    /// Whether lines may have any number of fields beside those that are read. Default: as many as the first line.
    pub ignore_columns: bool,
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
/// Features of an edge are also those of the reverse that [`Options::symmetrise`] adds; of several edges between the same nodes, the
/// one that is kept, the first, has its own.
///
/// # Errors
///
/// A line that is no edge, with its number; ids that do not fit; a feature that is missing or no number; an IO error.
///
/// # Complexity
///
/// O(E log E) time, `options.memory` bytes; the text is parsed on all threads of rayon's pool, with features of edges on one. These
/// are written twice, 4 bytes per value to a temporary file.
pub fn import(
    source: &Path,
    target: &Path,
    format: &EdgeListOptions,
    options: &Options,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    // Options that name columns are for text that is a list of edges.
    if format.columns == Columns::default() || !metis::lines::is_graph(source) {
        Format::Edges.refuse_others(source)?;
    }
    let is_table = columnar(&magic(source)?).is_some();
    let preface = if is_table { Preface::default() } else { Preface::read(source)? };
    let mut ingest = Ingest::new(source, target, options, progress)?;
    ingest.provenance("format", "edges");
    preface.check(&mut ingest, source, format)?;
    let format = &preface.complete(format);
    ingest.pair_ids.columns = format.columns.clone();
    ingest.pair_ids.named = format.ids == Ids::Strings;
    ingest.read_nodes(format.ids == Ids::Strings)?;
    ingest.check_unknown_nodes()?;
    ingest.listed_alone = Some(listed_alone(format, options));
    let has_features = !format.columns.features.is_empty();
    if has_features && format.ignore_columns {
        let what = "features of edges are read from lines that have as many fields as the first";
        return invalid("--ignore-columns", what, "leave it out, or --edge-feature-columns");
    }
    if format.ids == Ids::Strings || is_table || has_features {
        table::edges(&mut ingest, source, format, preface.sizes())?;
    } else {
        text(&mut ingest, source, format, preface.sizes())?;
    }
    let first_id = format.first_id.unwrap_or(0);
    if format.ids == Ids::Keep && first_id > 0 {
        let ids: Vec<u64> = (first_id..).take(ingest.num_nodes.unwrap_or(0) as usize).collect();
        ingest.node_ids(source, &ids)?;
    }
    ingest.finish()
}

/// The options that import the nodes of the node table alone, and those of them that are not given yet.
fn listed_alone(format: &EdgeListOptions, options: &Options) -> String {
    let mut missing = Vec::new();
    // Ids of two kinds of nodes are other ones there.
    if format.ids == Ids::Keep && options.bipartite != Some(true) {
        missing.push("--ids compact");
    }
    if options.nodes.unknown_nodes != Some(UnknownNodes::Drop) {
        missing.push("--unknown-nodes drop");
    }
    missing.join(" ") + if format.num_nodes.is_some() { " and without --num-nodes" } else { "" }
}

/// Opens lines of numbers and reads the first one.
fn open<'p>(ingest: &Ingest<'p>, stage: &str, source: &Path, columns: &Columns) -> Result<(Chunks<'p>, FirstLine)> {
    let mut chunks = Chunks::open(source, stage, ingest.options().memory, ingest.progress())?;
    let Some((line, number)) = chunks.peek_content(b"#%")? else {
        return invalid(source, "there is no edge", "check that this is the right file and format");
    };
    let first = first_line(line, columns).map_err(|fault| {
        let (what, cure) = first_row::explain(fault, source, columns);
        Error::invalid(source, Position::Line(number), what, named_cure(cure, source))
    })?;
    if first.is_header {
        chunks.skip_line();
    }
    Ok((chunks, first))
}

/// Reads lines of numbers; `sizes` are the numbers of sources and targets that the header announces.
fn text(ingest: &mut Ingest<'_>, source: &Path, format: &EdgeListOptions, sizes: Option<[u64; 2]>) -> Result<()> {
    let options = ingest.options();
    let (mut chunks, FirstLine { layout, is_header, ignored, two_kinds }) =
        open(ingest, "read", source, &format.columns)?;
    if is_header || format.columns != Columns::default() || !ignored.is_empty() {
        ingest.note(layout.columns.note(layout.count, &ignored, |column| (column + 1).to_string()));
    } else if layout.is_plain() && layout.columns.weight.is_some() && !options.drop_weights {
        ingest.note("the third of three columns without names was read as weights; --src 1 --dst 2 leaves it out");
    }
    note_undirected(ingest, source, &ignored)?;
    let weighted = layout.columns.weight.is_some() && !options.drop_weights;
    let mut lines = PairsFormat { layout, weighted, any_count: format.ignore_columns, ids: IdFormat::ALL };
    let first = format.first_id.filter(|_| format.ids == Ids::Keep).unwrap_or(0);
    if options.bipartite == Some(true) || (options.bipartite.is_none() && two_kinds.is_some()) {
        let ranges = two_kinds::ranges(&mut open(ingest, "check ids", source, &format.columns)?.0, lines)?;
        if options.bipartite == Some(true) {
            let announced = sizes.filter(|_| format.ids == Ids::Keep).map_or(0, |[sources, _]| sources);
            lines.ids.offset = two_kinds::offset(source, ranges[0], first)?.max(announced);
            ingest.note(two_kinds::note(&(layout.columns.target + 1).to_string(), lines.ids.offset));
            ingest.two_types = Some(two_kinds::types(two_kinds, lines.ids.offset, format.ids));
        } else if let Some(names) = two_kinds {
            two_kinds::refuse_shared(source, &names, ranges)?;
        }
    }
    ingest.pair_ids.offset = lines.ids.offset;
    let rounded = match format.ids {
        Ids::Compact => compact::edges(ingest, source, &mut chunks, lines)?,
        _ => {
            lines.ids.first = first;
            if let Some(n) = format.num_nodes {
                lines.ids.limits = Some([n, n.saturating_sub(lines.ids.offset)]);
            }
            ingest.keep_ids(first);
            if let Some([sources, targets]) = sizes {
                let all = if lines.ids.offset > 0 { lines.ids.offset.saturating_add(targets) } else { sources };
                ingest.min_nodes = ingest.min_nodes.max(all);
            }
            keep(ingest, source, &mut chunks, lines, format.num_nodes)?
        }
    };
    note_rounded(ingest, rounded);
    Ok(())
}

/// Notes that the column `type` of Gephi's tables, which is not read, calls edges undirected.
fn note_undirected(ingest: &mut Ingest<'_>, source: &Path, ignored: &[String]) -> Result<()> {
    if ingest.options().symmetrise || !ignored.iter().any(|name| name == TYPE) {
        return Ok(());
    }
    let mut table = TableFile::open(source, &Silent)?;
    let Some(column) = table.header.find(&[TYPE]) else { return Ok(()) };
    let Some(rows) = table.next(&[column])? else { return Ok(()) };
    if rows.column(column).text(0).trim_ascii().eq_ignore_ascii_case(b"undirected") {
        let what = "the column type calls edges undirected: each is read once, from source to target";
        ingest.note(format!("{what}; --symmetrise reads them both ways"));
    }
    Ok(())
}

/// Name of the column of Gephi's tables that says whether edges are directed.
const TYPE: &str = "type";

fn note_rounded(ingest: &mut Ingest<'_>, rounded: u64) {
    if rounded > 0 {
        let what = "weights are whole numbers that f32 does not hold, and were rounded";
        ingest.note(format!("{rounded} {what}; if they are times, import with --drop-weights"));
    }
}

fn keep(
    ingest: &mut Ingest<'_>,
    source: &Path,
    chunks: &mut Chunks<'_>,
    lines: PairsFormat,
    num_nodes: Option<u64>,
) -> Result<u64> {
    let (listed, mut unlisted) = (Listed::of(ingest), Unlisted::new(ingest));
    let mut edges = ingest.edges(source, num_nodes, lines.weighted)?;
    let blocks = edges.csc.block_maker();
    let (rounded, lowest) = (AtomicU64::new(0), AtomicU32::new(u32::MAX));
    let block = |text: &[u8]| {
        let mut pairs = Pairs::<u32>::parse(text, lines)?;
        let left_out = listed.as_ref().map(|listed| listed.filter(&mut pairs, lines.ids.first));
        rounded.fetch_add(pairs.rounded, Ordering::Relaxed);
        // Nothing is lower than node 0, which most files name early.
        if lowest.load(Ordering::Relaxed) > 0 {
            let min = pairs.sources.iter().chain(&pairs.targets).fold(u32::MAX, |min, &id| min.min(id));
            lowest.fetch_min(min, Ordering::Relaxed);
        }
        Ok((blocks.block(pairs.edges(lines.weighted), false), left_out))
    };
    while let Some(parsed) = parse_next(chunks, block)? {
        let (blocks, left_out): (Vec<_>, Vec<_>) = parsed.into_iter().unzip();
        edges.csc.push_blocks(blocks)?;
        left_out.into_iter().try_for_each(|left_out| unlisted.push(left_out))?;
    }
    unlisted.finish(edges.ingest)?;
    finish_kept(edges, num_nodes, (lines.ids.first, lowest.into_inner()))?;
    Ok(rounded.into_inner())
}

/// Finishes edges whose ids are kept. `first` was subtracted from every id, and `lowest` is the lowest result.
fn finish_kept(edges: EdgeSink<'_, '_>, num_nodes: Option<u64>, (first, lowest): (u64, u32)) -> Result<()> {
    let highest = edges.csc.highest().map_or(0, u64::from).max(edges.ingest.min_nodes.saturating_sub(1));
    if num_nodes.is_none() && highest > GAPS + GAPS_PER_EDGE * edges.num_edges() {
        let what = format!("the ids reach {highest} with only {} edges", edges.num_edges());
        return invalid(
            edges.csc.source(),
            what,
            "import with --ids compact, or give the number of nodes by --num-nodes",
        );
    }
    if first == 0 && lowest > 0 && edges.num_edges() > 0 {
        let what = format!("the lowest node id is {lowest}: nodes below it have no edges");
        edges.ingest.note(format!("{what}; for ids that count from 1 import with --first-id 1"));
    }
    edges.finish().map(|_| ())
}
