//! Reading big text files: decompressed and cut into whole lines on one thread, parsed on all.

/// The command that writes the edges of an adjacency list; FILE stands for the file.
macro_rules! neighbors_command {
    () => {
        concat!(
            "if each line lists a node and its neighbours, write one edge per line: `python3 -c \"import re; ",
            "print('src dst'); [print(u, v) for u, *vs in (re.findall(r'[^\\s,;:]+', s) for s in open('FILE') ",
            "if s.strip() and s[0] not in '#%') for v in vs]\" > edges.txt`"
        )
    };
}

mod chunks;
mod columns;
mod foreign;
mod kinds;
mod pairs;
mod scan;

pub(crate) use chunks::{Chunks, ReadProgress, Text, open_any_text, open_text};
pub(crate) use columns::{Chosen, EdgeColumns, FirstLine, Header, Layout, Separator};
pub use columns::{Column, Columns};
pub(crate) use columns::{NEIGHBORS_OR_NAMES, TEXT_LINE};
pub(crate) use columns::{attribute, with_attributes};
pub(crate) use columns::{choose, fields, first_line, is_number, separator_of};
pub(crate) use foreign::{is_n_triples, not_an_archive};
pub(crate) use kinds::type_name;
pub(crate) use pairs::{Id, IdFormat, Pairs, PairsFormat};
pub(crate) use scan::{NO_COMMAS, Scan, excerpt, has_comma, real};

use std::path::Path;

use morphgl_graph_store::{Error, Position, Result, parallel};

/// Cure for ids that are no numbers.
pub(crate) const TEXT_IDS: &str = "correct the line, or read ids that are text with --ids strings";

/// Cure for lines of different lengths, as those of an adjacency list are; FILE stands for the file.
pub(crate) const NEIGHBORS: &str = concat!("correct the line; ", neighbors_command!());

/// A line that cannot be parsed.
#[derive(Debug, PartialEq)]
pub(crate) struct LineError {
    /// Counted from 0, within the bytes that were parsed.
    pub(crate) line: u64,
    pub(crate) what: String,
    pub(crate) cure: &'static str,
}

/// Parses the next chunk in pieces of whole lines, in parallel; results in the order of the text, `None` at its end.
pub(crate) fn parse_next<T: Send>(
    chunks: &mut Chunks<'_>,
    parse: impl Fn(&[u8]) -> std::result::Result<T, LineError> + Sync,
) -> Result<Option<Vec<T>>> {
    let Some(chunk) = chunks.next()? else { return Ok(None) };
    let pieces = pieces(chunk.bytes());
    let parsed = parallel::map(pieces.len(), parallel::ANY, |i| parse(pieces[i]));
    let mut line = chunk.line;
    let mut out = Vec::with_capacity(parsed.len());
    for (piece, parsed) in pieces.iter().zip(parsed) {
        let at = |e: LineError| {
            Error::invalid(chunks.path(), Position::Line(line + e.line), e.what, named_cure(e.cure, chunks.path()))
        };
        out.push(parsed.map_err(at)?);
        line += newlines(piece);
    }
    Ok(Some(out))
}

/// A cure with the name of the file in the place of `FILE`.
pub(crate) fn named_cure(cure: &str, path: &Path) -> String {
    cure.replace("FILE", &path.display().to_string())
}

/// Cuts whole lines into pieces for one thread each.
fn pieces(mut text: &[u8]) -> Vec<&[u8]> {
    let size = (text.len() / 8).clamp(128 << 10, 512 << 10);
    let mut pieces = Vec::with_capacity(text.len() / size + 1);
    while !text.is_empty() {
        let cut = text.get(size..).and_then(|tail| tail.iter().position(|&b| b == b'\n'));
        let (piece, tail) = text.split_at(cut.map_or(text.len(), |cut| size + cut + 1));
        pieces.push(piece);
        text = tail;
    }
    pieces
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&b| b == b'\n').count() as u64
}
