//! MatrixMarket files: `coordinate`, with `pattern`, `real` or `integer` values, `general` or `symmetric`.
//!
//! The entry (i, j) is the edge i → j, its value the weight, as scipy and networkx read an adjacency matrix. A
//! symmetric file stores one half, and both directions are imported. Plain, gzip or zstd.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Position, Result};

use crate::files::invalid;
use crate::ingest::types::{Apart, TwoTypes};
use crate::text::{Chunks, IdFormat, Layout, Pairs, PairsFormat, excerpt, parse_next};
use crate::{Format, Ingest, Options, Progress};

/// The first lines of the file.
struct Header {
    weighted: bool,
    symmetric: bool,
    rows: u64,
    columns: u64,
    entries: u64,
}

/// Imports the MatrixMarket file `source` into a dataset at `target`.
///
/// # Errors
///
/// A matrix that is not square unless the options say that rows and columns are two kinds of nodes; one that is dense, complex or skew; an entry outside the matrix; a negative value (import without
/// weights then); fewer or more entries than announced; an IO error.
///
/// # Complexity
///
/// O(E log E) time, `options.memory` bytes.
pub fn import(source: &Path, target: &Path, options: &Options, progress: &dyn Progress) -> Result<PathBuf> {
    Format::Mtx.refuse_others(source)?;
    let mut chunks = Chunks::open(source, "read", options.memory, progress)?;
    let header = header(&mut chunks, source, options.bipartite == Some(true))?;
    let mut ingest = Ingest::new(source, target, options, progress)?;
    ingest.provenance("format", "mtx");
    let weighted = header.weighted && !options.drop_weights;
    // Columns of another kind than rows are the nodes after them.
    let offset = if options.bipartite == Some(true) { header.rows } else { 0 };
    let num_nodes = Some(offset.saturating_add(header.columns));
    if offset > 0 {
        ingest.note(format!("two kinds of nodes: in node files column j, from 1, is node {} + j", offset - 1));
        let names = ["row", "column"].map(String::from);
        ingest.two_types = Some(TwoTypes { names, apart: Apart::Nodes(offset) });
    }
    let ids = IdFormat { first: 1, limits: Some([header.rows, header.columns]), offset };
    let lines = PairsFormat { layout: Layout::plain(header.weighted), weighted, any_count: false, ids };
    let mut edges = ingest.edges(source, num_nodes, weighted)?;
    let blocks = edges.csc.block_maker();
    let block = |text: &[u8]| {
        let pairs = Pairs::<u32>::parse(text, lines)?;
        Ok(blocks.block(pairs.edges(weighted), header.symmetric))
    };
    while let Some(parsed) = parse_next(&mut chunks, block)? {
        edges.csc.push_blocks(parsed)?;
    }
    let entries = edges.num_edges();
    if entries != header.entries {
        let what = format!("{entries} entries, but the header promises {}", header.entries);
        return invalid(source, what, "the file was cut short or altered: download it again");
    }
    edges.finish()?;
    ingest.finish()
}

fn header(chunks: &mut Chunks<'_>, source: &Path, bipartite: bool) -> Result<Header> {
    let fail = |line: u64, what: String, cure: &str| Err(Error::invalid(source, Position::Line(line), what, cure));
    let right_file = "check that this is a MatrixMarket file";
    let banner = match chunks.peek_line()? {
        Some((line, _)) => String::from_utf8_lossy(&line[..line.len().min(200)]).to_lowercase(),
        None => String::new(),
    };
    let words: Vec<&str> = banner.split_ascii_whitespace().collect();
    let &["%%matrixmarket" | "%matrixmarket", "matrix", layout, field, symmetry] = words.as_slice() else {
        let what = format!("expected \"%%MatrixMarket matrix …\", found \"{}\"", excerpt(banner.as_bytes()));
        return fail(1, what, right_file);
    };
    let is_supported = layout == "coordinate"
        && matches!(field, "pattern" | "real" | "integer" | "double")
        && matches!(symmetry, "general" | "symmetric");
    if !is_supported {
        let what = format!("a matrix of kind \"{layout} {field} {symmetry}\"");
        return fail(1, what, "write it as coordinate, pattern or real or integer, general or symmetric");
    }
    chunks.skip_line();
    let Some((line, number)) = chunks.peek_content(b"%")? else {
        return fail(1, "the line of sizes is missing".into(), "the file was cut short: download it again");
    };
    let text = String::from_utf8_lossy(line);
    let sizes: Option<Vec<u64>> = text.split_ascii_whitespace().map(|w| w.parse().ok()).collect();
    let Some(&[rows, columns, entries]) = sizes.as_deref() else {
        let what = format!("expected rows, columns and entries, found \"{}\"", excerpt(line));
        return fail(number, what, right_file);
    };
    let symmetric = symmetry == "symmetric";
    if rows != columns && !bipartite {
        let what = format!("a matrix of {rows} rows and {columns} columns relates two kinds of nodes");
        return fail(number, what, "keep them apart by --bipartite");
    }
    if symmetric && bipartite {
        let what = "the rows and columns of a symmetric matrix are the same nodes".into();
        return fail(number, what, "leave out --bipartite");
    }
    chunks.skip_line();
    Ok(Header { weighted: field != "pattern", symmetric, rows, columns, entries })
}
