//! Triples of a knowledge graph: head, relation and tail, by text.

use std::fs;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Result};

use crate::files::invalid;
use crate::text::{is_n_triples, open_any_text};
use crate::typed::{self, EdgeRows, EdgeTable, End, Features, NodeRows, NodeTable, Syntax, TypeOf, TypedGraph};
use crate::{Column, Options, Progress, Silent};

/// Endings of the files in a directory of triples.
const ENDINGS: [&str; 3] = ["txt", "tsv", "nt"];
/// Their names beside that of the training triples.
const OTHERS: [&str; 2] = ["valid", "test"];

/// Imports the triples of the file `source` into a dataset at `target`; of a directory of splits those of `train.txt` (or `.tsv`,
/// `.nt`).
///
/// A line has a head, a relation and a tail, with tabs between them, or blanks in a line without tabs; or it is one of N-Triples,
/// whose literals are left out and counted. Heads and tails are nodes of the type `entity`, in the order of their appearance; each
/// relation is an edge type.
///
/// # Errors
///
/// A line that is no triple, with its number; more than 65536 relations.
///
/// # Complexity
///
/// Two passes over the file; `options.memory` bytes for the edges, besides 30 bytes per entity and its name.
pub fn import(source: &Path, target: &Path, options: &Options, progress: &dyn Progress) -> Result<PathBuf> {
    let file = file_of(source)?;
    let text = open_any_text(&file, "read", &Silent)?;
    let syntax =
        if is_n_triples(text.reader).map_err(|e| Error::io(&file, e))? { Syntax::NTriples } else { Syntax::Fields };
    let end = |number| End { space: 0, column: Column::Number(number) };
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
        edges: vec![EdgeTable {
            rows: EdgeRows::Triples(file.clone(), syntax),
            of: TypeOf::Column(Column::Number(2)),
            source: end(1),
            target: end(3),
            weight: None,
            time: None,
            features: Features::None,
            reverse: None,
            links: false,
        }],
        split: None,
    };
    typed::import(source, target, graph, options, progress, |ingest| {
        ingest.provenance("format", "triples");
        let others = OTHERS.iter().flat_map(|name| ENDINGS.map(|ending| source.join(format!("{name}.{ending}"))));
        if file != source && others.into_iter().any(|file| file.is_file()) {
            ingest.note("the triples to validate and test on were left out: training pairs have no types of edges yet");
        }
    })
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
