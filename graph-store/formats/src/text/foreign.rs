//! Recognises files in unsupported formats by their first bytes, with advice how to convert them.

use std::path::Path;

use morphgl_graph_store::Result;

use crate::files::invalid;

/// A format, and the cure.
type Foreign = (&'static str, &'static str);

/// Refuses a file that begins like one in an unsupported format.
pub(super) fn refuse(path: &Path, head: &[u8]) -> Result<()> {
    kind(head).map_or(Ok(()), |(what, cure)| invalid(path, what, cure))
}

/// The fault of a file that is not an archive of arrays; `None` where it may be a damaged one.
pub(crate) fn not_an_archive(head: &[u8]) -> Option<Foreign> {
    if head.starts_with(b"PK\x03\x04") {
        return kind(head).filter(|(what, _)| what.contains("PyTorch"));
    }
    if head.starts_with(b"\x93NUMPY") {
        return Some((
            "this is one array alone",
            "put it into a directory, under its name, with the arrays of the edges",
        ));
    }
    kind(head).or(Some(("this is no .npz archive", "read a list of edges with `morphgl import edges`")))
}

const SAVE_ARRAYS: &str = "save its arrays with numpy.savez and read them with `morphgl import numpy`";
const WRITE_CSV: &str = "write the edges as csv";

const MAGIC: &[(&[u8], Foreign)] = &[
    (
        b"PK\x03\x04",
        (
            "this is a zip archive, such as numpy's .npz",
            "read it with `morphgl import numpy` or `import npz`, or unpack it",
        ),
    ),
    (b"\x93NUMPY", ("this is a numpy array", "read a directory of arrays with `morphgl import numpy`")),
    (b"\x89HDF", ("this is an HDF5 file", SAVE_ARRAYS)),
    (b"SQLite format 3", ("this is an SQLite database", WRITE_CSV)),
    (b"PAR1", COLUMNAR),
    (b"ARROW1", COLUMNAR),
];
const COLUMNAR: Foreign = ("this is a table of columns (Parquet or Arrow)", "read it with `morphgl import edges`");

const TEXT: &[(&[u8], Foreign)] = &[(b"{", JSON), (b"[", JSON), (b"digraph ", DOT), (b"strict ", DOT)];
const JSON: Foreign = ("this looks like JSON, which is not read", WRITE_CSV);
const DOT: Foreign = ("this looks like Graphviz's DOT, which is not read", WRITE_CSV);

fn kind(head: &[u8]) -> Option<Foreign> {
    if head.starts_with(b"PK\x03\x04") && head.windows(8).any(|w| w == b"data.pkl") {
        return Some(("this is a PyTorch file (.pt)", SAVE_ARRAYS));
    }
    if matches!(head, [0x80, 2..=5, ..]) {
        return Some(("this is a pickle, which could run any program", SAVE_ARRAYS));
    }
    let magic = MAGIC.iter().find(|(magic, _)| head.starts_with(magic));
    if let Some((_, foreign)) = magic {
        return Some(*foreign);
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some(("this is a tar archive", "unpack it, and name the file in it"));
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let ahead = String::from_utf8_lossy(&text[..text.len().min(2000)]).to_lowercase();
    if ahead.starts_with('<') && ahead.contains("graphml") {
        return Some((
            "this is GraphML, which is not read",
            "write its edges: networkx.write_edgelist(networkx.read_graphml(FILE), \"edges.txt\")",
        ));
    }
    let mut words = ahead.lines().filter(|line| !line.starts_with(['#', '%'])).flat_map(str::split_ascii_whitespace);
    if ahead.contains('[') && words.any(|word| word == "graph" || word == "graph[") {
        return Some((
            "this is GML, which is not read",
            "write its edges: networkx.write_edgelist(networkx.read_gml(FILE), \"edges.txt\")",
        ));
    }
    if let Some((_, foreign)) = TEXT.iter().find(|(begin, _)| text.starts_with(begin)) {
        return Some(*foreign);
    }
    head[..head.len().min(512)].contains(&0).then_some((
        "this is no text",
        "read are edges as text or Parquet, numpy arrays, MatrixMarket, METIS, OGB, Planetoid and WebGraph",
    ))
}

#[cfg(test)]
mod tests;
