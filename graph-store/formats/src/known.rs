//! Recognises sources in the formats of other importers, to name the command that reads them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use morphgl_graph_store::Result;

use crate::Silent;
use crate::archive::Archive;
use crate::files::{invalid, magic};
use crate::metis::lines::is_graph;
use crate::tabular::columnar;
use crate::text::{Columns, first_line, open_text};

/// A format of `morphgl import`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The pickles of Planetoid.
    Planetoid,
    /// An archive of gnn-benchmark.
    Npz,
    /// A directory of OGB.
    Ogb,
    /// A list of edges, as text or as a table of columns.
    Edges,
    /// A MatrixMarket file.
    Mtx,
    /// A METIS graph.
    Metis,
    /// WebGraph's BV format.
    Bv,
    /// Arrays of numpy.
    Numpy,
    /// A manifest of a graph of several node types.
    Manifest,
    /// The csv files of Neo4j's import.
    Neo4j,
    /// Triples of a knowledge graph.
    Triples,
    /// The directory of MAG240M.
    Mag240m,
    /// A directory of IGB.
    Igb,
}

/// Endings of the files of a Planetoid set.
const PLANETOID: [&str; 8] = ["x", "y", "tx", "ty", "allx", "ally", "graph", "test.index"];
/// Endings of the files of a BV graph.
const BV: [&str; 4] = ["graph", "properties", "offsets", "ef"];

impl Format {
    /// All formats.
    pub const ALL: [Self; 13] = [
        Self::Planetoid,
        Self::Npz,
        Self::Ogb,
        Self::Edges,
        Self::Mtx,
        Self::Metis,
        Self::Bv,
        Self::Numpy,
        Self::Manifest,
        Self::Neo4j,
        Self::Triples,
        Self::Mag240m,
        Self::Igb,
    ];

    /// The argument of `morphgl import`.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Planetoid => "planetoid",
            Self::Npz => "npz",
            Self::Ogb => "ogb",
            Self::Edges => "edges",
            Self::Mtx => "mtx",
            Self::Metis => "metis",
            Self::Bv => "bv",
            Self::Numpy => "numpy",
            Self::Manifest => "manifest",
            Self::Neo4j => "neo4j",
            Self::Triples => "triples",
            Self::Mag240m => "mag240m",
            Self::Igb => "igb",
        }
    }

    /// What the argument stands for, in a line.
    pub fn help(self) -> &'static str {
        match self {
            Self::Planetoid => "Planetoid pickles: SOURCE is the common prefix, for example data/ind.cora",
            Self::Npz => "The gnn-benchmark .npz layout (Coauthor, Amazon)",
            Self::Ogb => "An OGB directory of nodes or links, with its raw/ and split/",
            Self::Edges => {
                "An edge list: SNAP text, csv or tsv, plain, .gz, .bz2, .xz or .zst, with or without weights; Parquet or \
                 Feather in a build with --features arrow"
            }
            Self::Mtx => "MatrixMarket coordinate file",
            Self::Metis => "METIS graph file",
            Self::Bv => "WebGraph BV: SOURCE is the basename without ending (needs a build with --features bv)",
            Self::Numpy => "A directory or .npz of plain numpy arrays",
            Self::Manifest => "A manifest in TOML of the files and columns of a graph of several node and edge types",
            Self::Neo4j => "A folder of csv files of nodes and relationships, as neo4j-admin imports them",
            Self::Triples => {
                "Triples of head, relation and tail: text with tabs, or N-Triples; or a folder with them as train.txt"
            }
            Self::Mag240m => "MAG240M: the directory that holds processed/, meta.pt and split_dict.pt",
            Self::Igb => "IGB: the directory that holds paper/ and paper__cites__paper/, or has it as processed/",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Planetoid => "this is of a Planetoid set",
            Self::Npz => "this is an archive of gnn-benchmark",
            Self::Ogb => "this is a directory of OGB",
            Self::Edges => "this is a list of edges",
            Self::Mtx => "this is a MatrixMarket file",
            Self::Metis => "this is a METIS graph",
            Self::Bv => "this is of a WebGraph in BV format",
            Self::Numpy => "these are arrays of numpy",
            Self::Manifest => "this is a manifest",
            Self::Neo4j => "this is a folder of Neo4j",
            Self::Triples => "these are triples",
            Self::Mag240m => "this is the directory of MAG240M",
            Self::Igb => "this is a directory of IGB",
        }
    }

    /// Refuses a source that is surely in another format, with the command that reads it; other faults are found by the importer.
    ///
    /// # Errors
    ///
    /// A source in another format, or in one that is not read at all.
    pub fn refuse_others(self, source: &Path) -> Result<()> {
        let Some((found, argument)) = self.other(source)? else { return Ok(()) };
        if found == self {
            return Ok(());
        }
        let cure = format!("read it with `morphgl import {} {}`", found.argument(), argument.display());
        invalid(source, found.description(), cure)
    }

    /// The format of a source, as far as it can be recognised, and the argument that names the source to its importer.
    fn other(self, source: &Path) -> Result<Option<(Self, PathBuf)>> {
        if let Some(prefix) = prefix(source, &PLANETOID, "allx") {
            return Ok(Some((Self::Planetoid, prefix)));
        }
        if let Some(prefix) = prefix(source, &BV, "properties") {
            return Ok(Some((Self::Bv, prefix)));
        }
        let found = match fs::metadata(source) {
            Ok(found) if found.is_dir() => return Ok(directory(source)),
            Ok(found) if found.is_file() && source.extension().is_some_and(|ending| ending == "toml") => {
                return Ok(Some((Self::Manifest, source.into())));
            }
            Ok(found) if found.is_file() => magic(source)?,
            _ => return Ok(None),
        };
        let format = match found.as_slice() {
            [b'P', b'K', 3, 4, ..] => Archive::open(source).ok().and_then(|archive| archive_format(&archive)),
            head if columnar(head).is_some() => Some(Self::Edges),
            head if head.starts_with(b"\x93NUMPY") => None,
            _ => self.text(source)?,
        };
        Ok(format.map(|format| (format, source.into())))
    }

    /// The format of a text file.
    fn text(self, source: &Path) -> Result<Option<Self>> {
        let mut lines = BufReader::new(open_text(source, "read", &Silent)?.reader).split(b'\n');
        let mut first = Vec::new();
        while first.is_empty() {
            // A damaged file is named when it is read.
            let Some(Ok(line)) = lines.next() else { return Ok(None) };
            let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line).trim_ascii();
            let lower = text[..text.len().min(20)].to_ascii_lowercase();
            if lower.starts_with(b"%%matrixmarket") || lower.starts_with(b"%matrixmarket") {
                return Ok(Some(Self::Mtx));
            }
            if !text.starts_with(b"#") && !text.starts_with(b"%") {
                first = text.to_vec();
            }
        }
        let is_row = first_line(&first, &Columns::default()).is_ok();
        Ok(match self {
            // The first line of a METIS graph may be one of a list of edges, but not the other way round.
            Self::Metis => None,
            _ if is_graph(source) => Some(Self::Metis),
            _ => is_row.then_some(Self::Edges),
        })
    }
}

/// The format of a directory.
fn directory(path: &Path) -> Option<(Format, PathBuf)> {
    if path.join("graph.toml").is_file() {
        return Some((Format::Manifest, path.join("graph.toml")));
    }
    let has_edges = |path: &Path, separator: &str| {
        let mut entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.any(|entry| {
            let is_type = entry.file_name().to_string_lossy().split(separator).count() == 3;
            is_type && entry.path().join("edge_index.npy").is_file()
        })
    };
    for (folders, set) in [(path.join("processed"), path), (path.into(), path.parent().unwrap_or(path))] {
        if has_edges(&folders, "___") {
            return Some((Format::Mag240m, set.into()));
        }
        if has_edges(&folders, "__") {
            return Some((Format::Igb, path.into()));
        }
    }
    if path.join("raw").is_dir() && !path.join("raw/ind.cora.x").exists() {
        let names = fs::read_dir(path.join("raw")).ok()?.flatten().map(|entry| entry.path());
        return match names.into_iter().find_map(|path| prefix(&path, &PLANETOID, "allx")) {
            Some(prefix) => Some((Format::Planetoid, prefix)),
            None => Some((Format::Ogb, path.into())),
        };
    }
    let mut names: Vec<PathBuf> = fs::read_dir(path).ok()?.flatten().map(|entry| entry.path()).collect();
    names.sort_unstable();
    if let Some(prefix) = names.iter().find_map(|path| prefix(path, &PLANETOID, "allx")) {
        return Some((Format::Planetoid, prefix));
    }
    names
        .iter()
        .any(|path| path.extension().is_some_and(|ending| ending == "npy"))
        .then(|| (Format::Numpy, path.into()))
}

/// The format of an archive of arrays.
fn archive_format(archive: &Archive) -> Option<Format> {
    let has = |names: &[&str]| names.iter().any(|name| archive.has(name));
    if has(&["adj_data", "adj_indptr", "adj_matrix"]) {
        return Some(Format::Npz);
    }
    has(&["edge_index", "indptr", "src", "row"]).then_some(Format::Numpy)
}

/// The common beginning of the files of a set that `path` is one of, or names itself; `None` where there is no such file with
/// ending `sure`.
fn prefix(path: &Path, endings: &[&str], sure: &str) -> Option<PathBuf> {
    let text = path.to_str()?;
    let without = endings.iter().find_map(|ending| text.strip_suffix(ending)?.strip_suffix('.'));
    let prefix = without.filter(|_| path.exists()).or_else(|| (!path.exists()).then_some(text))?;
    Path::new(&format!("{prefix}.{sure}")).is_file().then(|| prefix.into())
}

#[cfg(test)]
mod tests;
