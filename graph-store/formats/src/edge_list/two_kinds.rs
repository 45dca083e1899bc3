//! Sources and targets whose ids are counted apart: users and films, rows and columns.

use std::path::Path;

use morphgl_graph_store::Result;

use super::Ids;
use crate::files::invalid;
use crate::ingest::types::{Apart, TwoTypes};
use crate::text::{Chunks, Pairs, PairsFormat, parse_next, type_name};

/// The lowest and the highest id of a column; `None` without ids.
pub(super) type Range = Option<(u64, u64)>;

/// Ranges of the ids of sources and of targets in the rest of a list of numbers.
pub(super) fn ranges(chunks: &mut Chunks<'_>, lines: PairsFormat) -> Result<[Range; 2]> {
    let mut all = [None; 2];
    let block = |text: &[u8]| {
        let pairs = Pairs::<u64>::parse(text, PairsFormat { weighted: false, ..lines })?;
        Ok([&pairs.sources, &pairs.targets].map(|ids| range(ids)))
    };
    while let Some(pieces) = parse_next(chunks, block)? {
        for piece in pieces {
            all = [0, 1].map(|column| wider(all[column], piece[column]));
        }
    }
    Ok(all)
}

pub(super) fn range(ids: &[u64]) -> Range {
    Some((*ids.iter().min()?, *ids.iter().max()?))
}

pub(super) fn wider(a: Range, b: Range) -> Range {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        _ => a.or(b),
    }
}

/// Refuses ids of two columns with names of two kinds of nodes where their ranges overlap: the same number would be one node.
pub(super) fn refuse_shared(source: &Path, [left, right]: &[String; 2], ranges: [Range; 2]) -> Result<()> {
    let [Some((low, high)), Some((lowest, highest))] = ranges else { return Ok(()) };
    if high < lowest || highest < low {
        return Ok(());
    }
    let what = format!(
        "the columns {left:?} ({low} to {high}) and {right:?} ({lowest} to {highest}) seem to be ids of two kinds of nodes"
    );
    invalid(source, what, APART)
}

/// Cure for ids that seem to be of two kinds of nodes.
pub(super) const APART: &str = "keep them apart by --bipartite, or say by --bipartite=no that they are of one kind";

/// What is added to the ids of targets: as much as leaves the ids of sources, from `first`, free.
pub(super) fn offset(source: &Path, sources: Range, first: u64) -> Result<u64> {
    let end = sources.map_or(Some(first), |(_, highest)| highest.checked_add(1));
    match end {
        Some(end) => Ok(end.saturating_sub(first)),
        None => invalid(source, "the ids reach 2^64 - 1", "read them as text with --ids strings"),
    }
}

/// Types of nodes whose ids are the numbers of two columns of these names; `offset` is added to those of targets.
pub(super) fn types(names: Option<[String; 2]>, offset: u64, ids: Ids) -> TwoTypes {
    let names = names.map(|names| names.map(|name| type_name(&name))).filter(|[source, target]| source != target);
    let names = names.unwrap_or_else(|| ["source", "target"].map(String::from));
    TwoTypes { names, apart: if ids == Ids::Compact { Apart::Ids(offset) } else { Apart::Nodes(offset) } }
}

/// The note of the numbers of targets in node files, which a column contains.
pub(super) fn note(column: &str, offset: u64) -> String {
    format!("two kinds of nodes: in node files the id i of column {column} is i + {offset}")
}
