//! Triples of a knowledge graph: head, relation and tail, by text.

use std::fs;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Result};

use crate::files::invalid;
use crate::text::{is_n_triples, open_any_text};
use crate::typed::{self, EdgeRows, EdgeTable, End, Features, NodeRows, NodeTable, Syntax, TypeOf, TypedGraph};
use crate::{Column, LinkFiles, Options, Progress, Silent};

/// Endings of the files in a directory of triples.
const ENDINGS: [&str; 3] = ["txt", "tsv", "nt"];
/// Their names beside that of the training triples.
const OTHERS: [&str; 2] = ["valid", "test"];

/// Imports the triples of the file `source` into a dataset at `target`; of a directory of splits those of `train.txt` (or `.tsv`,
/// `.nt`), and as pairs to validate and test on those of `valid.txt` and `test.txt`.
///
/// A line has a head, a relation and a tail, with tabs between them, or blanks in a line without tabs; or it is one of N-Triples,
/// whose literals are left out and counted. Heads and tails are nodes of the type `entity`, in the order of their appearance; each
/// relation is an edge type. The files of validation and test triples that `options` name are read alike; their entities and relations are
/// nodes and edge types, too.
///
/// # Errors
///
/// A line that is no triple, with its number; more than 65536 relations.
///
/// # Complexity
///
/// Two passes over the files; `options.memory` bytes for the edges, besides 30 bytes per entity and its name.
pub fn import(source: &Path, target: &Path, options: &Options, progress: &dyn Progress) -> Result<PathBuf> {
    let file = file_of(source)?;
    let LinkFiles { valid, test, .. } = &options.links;
    let given = [valid, test].into_iter().zip(OTHERS);
    let others = given.map(|(file, name)| file.clone().or_else(|| other_of(source, name)));
    let mut edges = vec![table(file, None)?];
    let draws = options.edge_split.is_some();
    let mut left_out = false;
    for (other, split) in others.zip(1..) {
        if let Some(other) = other {
            left_out |= draws;
            edges.extend((!draws).then(|| table(other, Some(split))).transpose()?);
        }
    }
    let graph = TypedGraph {
        node_types: vec!["entity".into()],
        spaces: vec![Some(0)],
        nodes: vec![NodeTable {
            rows: NodeRows::Named,
            of: TypeOf::Fixed(0),
            space: 0,
            id: None,
            features: Features::None,
            targets: Features::None,
            time: None,
            label: None,
            split: None,
        }],
        edges,
        split: None,
        task: None,
    };
    let of_graph = Options { links: LinkFiles { valid: None, test: None, ..options.links.clone() }, ..options.clone() };
    typed::import(source, target, graph, &of_graph, progress, |ingest| {
        ingest.provenance("format", "triples");
        if left_out {
            ingest.note("the triples to validate and test on were left out for random ones (--edge-split)");
        }
    })
}

/// The table of a file of triples.
fn table(file: PathBuf, split: Option<usize>) -> Result<EdgeTable> {
    let text = open_any_text(&file, "read", &Silent)?;
    let syntax =
        if is_n_triples(text.reader).map_err(|e| Error::io(&file, e))? { Syntax::NTriples } else { Syntax::Fields };
    let end = |number| End { space: 0, column: Column::Number(number) };
    Ok(EdgeTable {
        rows: EdgeRows::Triples(file, syntax),
        of: TypeOf::Column(Column::Number(2)),
        source: end(1),
        target: end(3),
        weight: None,
        time: None,
        features: Features::None,
        reverse: None,
        links: false,
        split,
    })
}

/// The file of other triples of this name in a directory of splits.
fn other_of(source: &Path, name: &str) -> Option<PathBuf> {
    let mut files = ENDINGS.iter().map(|ending| source.join(format!("{name}.{ending}")));
    files.find(|file| source.is_dir() && file.is_file())
}

/// The file of triples that a source names.
fn file_of(source: &Path) -> Result<PathBuf> {
    if !fs::metadata(source).map_err(|e| Error::io(source, e))?.is_dir() {
        return Ok(source.into());
    }
    let mut names = ENDINGS.map(|ending| source.join(format!("train.{ending}"))).into_iter();
    match names.find(|file| file.is_file()) {
        Some(file) => Ok(file),
        None => {
            invalid(source, "a directory without train.txt, train.tsv or train.nt", "name the file of triples itself")
        }
    }
}
