//! Reading big text files: decompressed and cut into whole lines on one thread, parsed on all.

mod chunks;
mod columns;
mod foreign;
mod pairs;
mod scan;

pub(crate) use chunks::{Chunk, Chunks, Counted, open_text};
pub use columns::{Column, Columns};
pub(crate) use columns::{First, Header, Layout, Separator, choose, fields, first_line, separator_of};
pub(crate) use columns::{attribute, with_attributes};
pub(crate) use foreign::no_archive;
pub(crate) use pairs::{Pairs, PairsFormat};
pub(crate) use scan::{Scan, excerpt, real};

use morphgl_graph_store::{Error, Position, Result};
use rayon::prelude::*;

use std::path::Path;

/// A line that cannot be read.
#[derive(Debug, PartialEq)]
pub(crate) struct LineError {
    /// Counted from 0, within the bytes that were parsed.
    pub(crate) line: u64,
    pub(crate) what: String,
    pub(crate) cure: &'static str,
}

/// Parses a chunk in pieces of whole lines, in parallel; results in the order of the text.
pub(crate) fn parse<T: Send>(
    path: &Path,
    chunk: &Chunk,
    parse: impl Fn(&[u8]) -> std::result::Result<T, LineError> + Sync,
) -> Result<Vec<T>> {
    let pieces = pieces(chunk.bytes());
    let parsed: Vec<_> = pieces.par_iter().map(|piece| parse(piece)).collect();
    let mut line = chunk.line();
    let mut out = Vec::with_capacity(parsed.len());
    for (piece, parsed) in pieces.iter().zip(parsed) {
        match parsed {
            Ok(value) => out.push(value),
            Err(e) => return Err(Error::invalid(path, Position::Line(line + e.line), e.what, e.cure)),
        }
        line += newlines(piece);
    }
    Ok(out)
}

/// Cuts whole lines into pieces for one thread each.
pub(crate) fn pieces(mut text: &[u8]) -> Vec<&[u8]> {
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

pub(crate) fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&b| b == b'\n').count() as u64
}
