//! Neo4j's csv files of `neo4j-admin database import`.

mod header;

use std::fs;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Position, Result};
use morphgl_platform::excerpt;

use crate::files::{file_name, invalid, stem};
use crate::tabular::TableFile;
use crate::typed::{self, EdgeRows, EdgeTable, End, Features, NodeRows, NodeTable, Table, TypeOf, TypedGraph, Values};
use crate::{Column, Options, Progress, Silent};
use header::{Field, Header, Role};

/// Endings of a header's file before that of its format.
const HEADER: [&str; 2] = ["-header", "_header"];
/// Endings of compressed files.
const COMPRESSED: [&str; 4] = ["gz", "bz2", "xz", "zst"];

/// Imports the csv files in the directory `source` into a dataset at `target`.
///
/// A file's first line is its header (`:ID(Space)`, `:LABEL`, `:START_ID(Space)`, `:END_ID(Space)`, `:TYPE`, typed properties,
/// `:IGNORE`), unless there is a file of its name with `-header`, as `movies-header.csv` for `movies.csv` and `movies-part2.csv`. A
/// node's type is its first label, or without the column the file's name; an edge's type is its `:TYPE`. Numbers and booleans are
/// features of the nodes, and `weight` of relationships is the edge's weight; other properties are left out.
///
/// # Errors
///
/// No such files, a header that is none; relationships of nodes that do not exist; a number that is missing.
///
/// # Complexity
///
/// A pass over the nodes, two over the relationships; `options.memory` bytes for the edges, besides the ids of nodes.
pub fn import(source: &Path, target: &Path, options: &Options, progress: &dyn Progress) -> Result<PathBuf> {
    let mut graph = TypedGraph::default();
    let (mut spaces, mut left_out) = (Vec::<String>::new(), Vec::new());
    let files = files(source)?;
    for File { path, name, header_of } in files {
        let header = Header::read(header_of.as_ref().unwrap_or(&path))?;
        let rows = Table {
            path: path.clone(),
            header: Some(header_of.is_none()),
            names: Some(header.fields.iter().map(|field| field.name.clone()).collect()),
        };
        let unread: Vec<&str> = header.fields.iter().filter(|f| f.role == Role::Unread).map(|f| &*f.name).collect();
        if !unread.is_empty() {
            left_out.push(format!("{}: properties left out: {}", file_name(&path), excerpt(&unread.join(", "), 300)));
        }
        let mut space = |of: &Field| {
            spaces.iter().position(|space| *space == of.space).unwrap_or_else(|| {
                spaces.push(of.space.clone());
                spaces.len() - 1
            })
        };
        match header.ends()? {
            Some([from, to]) => {
                let of_type = header.one(Role::Type)?;
                let weight = header.fields.iter().position(|f| f.role == Role::Number && f.name == "weight");
                let others: Vec<&str> = header
                    .fields
                    .iter()
                    .filter(|field| field.role == Role::Number && field.name != "weight")
                    .map(|field| &*field.name)
                    .collect();
                if !others.is_empty() {
                    left_out.push(format!(
                        "{}: properties of edges left out: {}",
                        file_name(&path),
                        excerpt(&others.join(", "), 300)
                    ));
                }
                graph.edges.push(EdgeTable {
                    rows: EdgeRows::Table(rows),
                    of: match of_type {
                        Some((column, _)) => TypeOf::Column(column),
                        None => TypeOf::Fixed(name),
                    },
                    source: End { space: space(from.1), column: from.0 },
                    target: End { space: space(to.1), column: to.0 },
                    weight: weight.map(|index| Values::Column(Column::Number(index + 1))),
                    time: None,
                    features: Features::None,
                    reverse: None,
                    links: false,
                    split: None,
                });
            }
            None => {
                let Some((id, field)) = header.one(Role::Id)? else {
                    let what = "a header without :ID, and without :START_ID and :END_ID";
                    let cure = "give nodes an :ID; files that are no part of the graph stand in another folder";
                    return Err(Error::invalid(&header.path, Position::Line(1), what, cure));
                };
                let numbers = (1..).zip(&header.fields).filter(|(_, field)| field.role == Role::Number);
                let features: Vec<Column> = numbers.map(|(number, _)| Column::Number(number)).collect();
                graph.nodes.push(NodeTable {
                    rows: NodeRows::Table(rows),
                    of: match header.one(Role::Label)? {
                        Some((column, _)) => TypeOf::Column(column),
                        None => {
                            TypeOf::Fixed(graph.node_types.iter().position(|of| *of == name).unwrap_or_else(|| {
                                graph.node_types.push(name);
                                graph.node_types.len() - 1
                            }))
                        }
                    },
                    space: space(field),
                    id: Some(id),
                    features: if features.is_empty() { Features::None } else { Features::Columns(features) },
                    targets: Features::None,
                    time: None,
                    label: None,
                    split: None,
                });
            }
        }
    }
    if graph.nodes.is_empty() {
        return invalid(source, "no file of nodes, with :ID in its header", "export nodes and relationships");
    }
    graph.spaces = vec![None; spaces.len()];
    typed::import(source, target, graph, options, progress, |ingest| {
        ingest.provenance("format", "neo4j");
        left_out.into_iter().for_each(|note| ingest.note(note));
    })
}

/// A file of rows, and that of its header where it has one of its own.
struct File {
    path: PathBuf,
    /// Its name without endings; of files with a header of its own, which may be parts of one table, that of the header.
    name: String,
    header_of: Option<PathBuf>,
}

/// The files of a directory, in the order of their names.
fn files(source: &Path) -> Result<Vec<File>> {
    let io = |e| Error::io(source, e);
    if !fs::metadata(source).map_err(io)?.is_dir() {
        return invalid(
            source,
            "this is no directory",
            "name the folder with the csv files of nodes and relationships",
        );
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(source).map_err(io)? {
        paths.push(entry.map_err(io)?.path());
    }
    paths.retain(|path| {
        let path = match path.extension().is_some_and(|ending| COMPRESSED.iter().any(|known| ending == *known)) {
            true => path.with_extension(""),
            false => path.clone(),
        };
        path.extension().is_some_and(|ending| ending == "csv" || ending == "tsv" || ending == "txt")
    });
    paths.sort_unstable();
    let header_prefix = |path: &PathBuf| {
        let stem = stem(path)?;
        HEADER.iter().find_map(|ending| stem.strip_suffix(ending)).map(String::from)
    };
    let (headers, rows): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.into_iter().partition(|path| header_prefix(path).is_some());
    if rows.is_empty() {
        return invalid(
            source,
            "a directory without csv files",
            "export the graph with `CALL apoc.export.csv` or as csv",
        );
    }
    let header_of = |path: &PathBuf| {
        let stem = stem(path).unwrap_or_default();
        // Of several headers the one of the longest common beginning.
        let fitting = headers.iter().filter_map(|header| Some((header_prefix(header)?, header)));
        fitting.filter(|(prefix, _)| stem.starts_with(prefix.as_str())).max_by_key(|(prefix, _)| prefix.len())
    };
    let file = |path: PathBuf| match header_of(&path) {
        Some((name, header)) => File { name, header_of: Some(header.clone()), path },
        None => File { name: stem(&path).unwrap_or_default(), header_of: None, path },
    };
    Ok(rows.into_iter().map(file).collect())
}

impl Header {
    /// Reads the first line of a file.
    fn read(path: &Path) -> Result<Self> {
        let file = TableFile::with_ids(path, true, &Silent)?;
        let fields = file.names.iter().map(|text| Field::parse(text)).collect();
        Ok(Self { path: path.into(), fields })
    }
}
