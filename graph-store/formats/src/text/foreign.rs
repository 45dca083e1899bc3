//! Recognises files in formats that a reader does not take, by their first bytes, and says how to convert them.

use std::path::Path;

use morphgl_graph_store::{Error, Position, Result};

/// Refuses a file whose beginning says that it is something else.
pub(super) fn refuse(path: &Path, head: &[u8]) -> Result<()> {
    let Some((what, cure)) = kind(head) else { return Ok(()) };
    Err(Error::invalid(path, Position::File, what, cure))
}

/// What is wrong with a file that should be an archive of arrays and is none; `None` where it may be a damaged one.
pub(crate) fn no_archive(head: &[u8]) -> Option<(&'static str, &'static str)> {
    match head {
        [b'P', b'K', 3, 4, ..] => kind(head).filter(|(what, _)| what.contains("PyTorch")),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => {
            Some(("this is one array alone", "put it into a directory, under its name, with the arrays of the edges"))
        }
        _ => kind(head).or(Some(("this is no .npz archive", "read a list of edges with `morphgl import edges`"))),
    }
}

const SAVE_ARRAYS: &str = "save its arrays with numpy.savez and read them with `morphgl import numpy`";

fn kind(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let begins = |magic: &[u8]| head.starts_with(magic);
    let xml = || {
        let ahead = &text[..text.len().min(2000)];
        text.starts_with(b"<") && ahead.windows(7).any(|w| w.eq_ignore_ascii_case(b"graphml"))
    };
    let gml = || {
        let ahead = String::from_utf8_lossy(&text[..text.len().min(2000)]).to_lowercase();
        let mut words =
            ahead.lines().filter(|line| !line.starts_with(['#', '%'])).flat_map(str::split_ascii_whitespace);
        words.any(|word| word == "graph" || word == "graph[") && ahead.contains('[')
    };
    Some(match () {
        () if begins(b"PK\x03\x04") && head.windows(8).any(|w| w == b"data.pkl") => {
            ("this is a PyTorch file (.pt)", SAVE_ARRAYS)
        }
        () if begins(b"PK\x03\x04") => (
            "this is a zip archive, such as numpy's .npz",
            "read it with `morphgl import numpy` or `import npz`, or unpack it",
        ),
        () if begins(b"\x93NUMPY") => {
            ("this is a numpy array", "read a directory of arrays with `morphgl import numpy`")
        }
        () if begins(b"\x89HDF") => ("this is an HDF5 file", SAVE_ARRAYS),
        () if begins(b"SQLite format 3") => ("this is an SQLite database", "write the edges as csv"),
        () if begins(b"\x80") && matches!(head.get(1), Some(2..=5)) => {
            ("this is a pickle, which could run any program", SAVE_ARRAYS)
        }
        () if begins(b"PAR1") || begins(b"ARROW1") => {
            ("this is a table of columns (Parquet or Arrow)", "read it with `morphgl import edges`")
        }
        () if head.get(257..262) == Some(b"ustar") => ("this is a tar archive", "unpack it, and name the file in it"),
        () if xml() => (
            "this is GraphML, which is not read",
            "write its edges: networkx.write_edgelist(networkx.read_graphml(FILE), \"edges.txt\")",
        ),
        () if gml() => (
            "this is GML, which is not read",
            "write its edges: networkx.write_edgelist(networkx.read_gml(FILE), \"edges.txt\")",
        ),
        () if text.starts_with(b"{") || text.starts_with(b"[") => {
            ("this looks like JSON, which is not read", "write its edges as csv")
        }
        () if text.starts_with(b"digraph ") || text.starts_with(b"strict ") => {
            ("this looks like Graphviz's DOT, which is not read", "write its edges as csv")
        }
        () if head[..head.len().min(512)].contains(&0) => (
            "this is no text",
            "read are edges as text or Parquet, numpy arrays, MatrixMarket, METIS, OGB, Planetoid and WebGraph",
        ),
        () => return None,
    })
}

#[cfg(test)]
mod tests;
