//! Manifests: TOML files that list the node types and the edge types of a graph, with their files and columns.

mod schema;

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Position, Result, Types};
use morphgl_platform::{excerpt, read_text};

use crate::files::invalid;
use crate::typed::{
    self, ArrayForm, EdgeRows, EdgeTable, End, Features, NodeRows, NodeTable, Reverse, Split, Table, TaskSplit,
    TaskTable, TypeOf, TypedGraph, Values, quoted,
};
use crate::{Column, Options, Progress};
use schema::{
    EdgeEntry, EndEntry, FeaturesEntry, FilesEntry, Manifest, NodeEntry, OneOf, ReverseEntry, TaskEntry, TimesEntry,
    ValueEntry,
};

/// Maximum bytes of a manifest.
const MAX_MANIFEST: u64 = 16 << 20;

/// Imports the graph that the manifest `source` describes into a dataset at `target`.
///
/// `docs/typed-graphs.md` has the manifest's keys. Node types are ranges of nodes in their order in the manifest, and the nodes of a
/// type those of its rows in order; their ids are kept. Edges are stored by target, edge type and source.
///
/// # Errors
///
/// A manifest that is no TOML, has unknown keys or contradicts itself; files and columns that do not exist; values that are not
/// what they should be, with their line; edges between nodes that do not exist.
///
/// # Complexity
///
/// A pass over each file, two over edges whose nodes they alone name; `options.memory` bytes for the edges, besides the ids of nodes
/// (20 bytes each, of text 30 and its length), and 8 bytes per node for times.
pub fn import(source: &Path, target: &Path, options: &Options, progress: &dyn Progress) -> Result<PathBuf> {
    let manifest = read(source)?;
    let options = Options { name: options.name.clone().or_else(|| manifest.name.clone()), ..options.clone() };
    let graph = describe(source, manifest)?;
    typed::import(source, target, graph, &options, progress, |ingest| ingest.provenance("format", "manifest"))
}

fn read(source: &Path) -> Result<Manifest> {
    if source.is_dir() {
        return invalid(source, "this is a directory", "name the manifest in it, graph.toml for one");
    }
    let text = read_text(source, MAX_MANIFEST).or_else(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => invalid(source, format!("no manifest: {e}"), "write it as TOML"),
        _ => Err(Error::io(source, e)),
    })?;
    toml::from_str(&text).map_err(|e| {
        let line = e.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count() as u64);
        let at = line.map_or(Position::File, Position::Line);
        let what = excerpt(&e.message().trim_end().replace('\n', ", "), 300).into_owned();
        Error::invalid(source, at, what, "docs/typed-graphs.md lists the keys of a manifest")
    })
}

/// What is wrong with an entry, and the cure.
type Fault = (String, String);

fn fault<T>(what: impl Into<String>, cure: impl Into<String>) -> std::result::Result<T, Fault> {
    Err((what.into(), cure.into()))
}

/// The graph of a manifest, whose paths are relative to its directory.
fn describe(source: &Path, manifest: Manifest) -> Result<TypedGraph> {
    let dir = source.parent().unwrap_or(Path::new(""));
    let names: Vec<String> = manifest.nodes.iter().map(|(name, _)| name.clone()).collect();
    if names.is_empty() {
        return invalid(source, "there is no node type", "add a section such as [nodes.customer] for each");
    }
    let all = manifest.nodes.iter().map(|(name, _)| name).chain(manifest.edges.iter().map(|entry| &entry.name));
    if let Some(long) = all.into_iter().find(|name| name.len() > Types::MAX_NAME) {
        let what = format!("the name {} has {} bytes, at most {} are read", quoted(long), long.len(), Types::MAX_NAME);
        return invalid(source, what, "shorten it");
    }
    let mut graph =
        TypedGraph { spaces: (0..names.len()).map(Some).collect(), node_types: names.clone(), ..TypedGraph::default() };
    let at = |section: String, (what, cure): Fault| {
        Error::invalid(source, Position::File, format!("{section}: {what}"), cure)
    };
    let [mut labelled, mut split] = [None::<usize>; 2];
    for (of, (name, entry)) in manifest.nodes.into_iter().enumerate() {
        let section = format!("[nodes.{name}]");
        let is_learned = entry.label.is_some() || entry.targets.is_some();
        let roles = [(is_learned, "labels or targets", &mut labelled), (entry.split.is_some(), "splits", &mut split)];
        for (_, role, first) in roles.into_iter().filter(|(given, ..)| *given) {
            if let Some(first) = first.replace(of) {
                let what = format!("{role} of a second node type, {:?} has some already", names[first]);
                return Err(at(section, (what, "learn one type at a time: leave them out of the other".into())));
            }
        }
        if let Some(OneOf::Map(files)) = &entry.split {
            let files = [&files.train, &files.valid, &files.test].map(|file| file.as_ref().map(|file| dir.join(file)));
            graph.split = Some((of, Split::Files(files)));
        }
        graph.nodes.push(nodes(dir, (of, &name), entry).map_err(|fault| at(section, fault))?);
    }
    if let (Some(labelled), Some(split)) = (labelled, split)
        && labelled != split
    {
        let what = format!("a split of {:?}, but labels or targets of {:?}", names[split], names[labelled]);
        return Err(at(format!("[nodes.{}]", names[split]), (what, "split the nodes that are learned".into())));
    }
    if let Some(entry) = manifest.task {
        let of_nodes = labelled.map(|of| (of, "labels or targets")).or(split.map(|of| (of, "splits")));
        let task = match of_nodes {
            Some((of, role)) => fault(
                format!("there is a task, and {role} of the nodes {:?}", names[of]),
                "learn one of the two: leave the other out",
            ),
            None => task(dir, &names, entry),
        };
        graph.task = Some(task.map_err(|fault| at("[task]".into(), fault))?);
    }
    for (number, entry) in (1..).zip(manifest.edges) {
        let section = format!("[[edges]] number {number}, {:?}", entry.name);
        graph.edges.push(edges(dir, &names, entry).map_err(|fault| at(section, fault))?);
    }
    Ok(graph)
}

fn values(dir: &Path, entry: Option<ValueEntry>) -> Option<Values> {
    Some(match entry? {
        OneOf::Column(column) => Values::Column(column),
        OneOf::Map(values) => Values::File(dir.join(values.file), values.column),
    })
}

/// Columns or a file of features or targets, which is what `role` says.
fn matrix(dir: &Path, entry: Option<FeaturesEntry>, role: &str) -> std::result::Result<Features, Fault> {
    match entry {
        None => Ok(Features::None),
        Some(FeaturesEntry::Columns(columns)) if columns.is_empty() => {
            fault(format!("{role} without a column"), "list columns, or leave the key out")
        }
        Some(FeaturesEntry::Columns(columns)) => Ok(Features::Columns(columns)),
        Some(FeaturesEntry::File(path)) => Ok(Features::File(dir.join(path))),
    }
}

/// The table of a node type.
fn nodes(dir: &Path, (of, name): (usize, &str), entry: NodeEntry) -> std::result::Result<NodeTable, Fault> {
    if name.is_empty() || name.contains(':') {
        return fault(
            "the name of a node type is empty or has a colon",
            "a node is named TYPE:ID: choose another name",
        );
    }
    let NodeEntry { file, header, count, id, features, targets, time, label, split } = entry;
    let (features, targets) = (matrix(dir, features, "features")?, matrix(dir, targets, "targets")?);
    let rows = match (file, count) {
        (Some(_), Some(_)) => {
            return fault("file and count both", "a file has a row per node: leave the count out");
        }
        (Some(file), None) => NodeRows::Table(Table { path: dir.join(file), header, names: None }),
        (None, Some(count)) => NodeRows::Count(Some(count)),
        (None, None) if matches!(features, Features::File(_)) => NodeRows::Count(None),
        (None, None) => NodeRows::Named,
    };
    let table = NodeTable {
        rows,
        of: TypeOf::Fixed(of),
        space: of,
        id,
        features,
        targets,
        time: values(dir, time),
        label: values(dir, label),
        split: match split {
            Some(OneOf::Column(column)) => Some(column),
            _ => None,
        },
    };
    let columns = [
        ("id", table.id.is_some()),
        ("features", matches!(table.features, Features::Columns(_))),
        ("targets", matches!(table.targets, Features::Columns(_))),
        ("time", matches!(table.time, Some(Values::Column(_)))),
        ("label", matches!(table.label, Some(Values::Column(_)))),
        ("split", table.split.is_some()),
        ("header", header.is_some()),
    ];
    let is_table = matches!(table.rows, NodeRows::Table(_));
    if let Some((key, _)) = columns.into_iter().find(|(_, given)| *given && !is_table) {
        let what = format!("{key} is of a file, and there is none");
        let cure = match key {
            "time" | "label" => format!("add file = \"FILE\", or give the values as {key} = {{ file = \"FILE\" }}"),
            _ => "add file = \"FILE\"".into(),
        };
        return fault(what, cure);
    }
    let files = [
        matches!(table.time, Some(Values::File(..))),
        matches!(table.label, Some(Values::File(..))),
        matches!(table.targets, Features::File(_)),
    ];
    if matches!(table.rows, NodeRows::Named) && files.contains(&true) {
        let cure = "add file = \"FILE\" or count = NUMBER; without them the nodes are those that edges name";
        return fault("values of nodes that nothing lists", cure);
    }
    if header == Some(false) {
        let is_named = |column: &Column| matches!(column, Column::Name(_));
        let of_matrix =
            |matrix: &Features| if let Features::Columns(columns) = matrix { columns.clone() } else { vec![] };
        let of_matrices = [of_matrix(&table.features), of_matrix(&table.targets)].concat();
        let mut named = [&table.id, &table.split].into_iter().flatten().chain(&of_matrices);
        if let Some(column) = named.find(|column| is_named(column)) {
            return unnamed(column);
        }
        for values in [&table.time, &table.label].into_iter().flatten() {
            if let Values::Column(column @ Column::Name(_)) = values {
                return unnamed(column);
            }
        }
    }
    Ok(table)
}

fn unnamed<T>(column: &Column) -> std::result::Result<T, Fault> {
    fault(format!("the column {column} of a file without a header"), "give numbers of columns, from 1")
}

/// Number of the node type that an entry names, and the column of the ids, if it says; `what` it is of names it in errors.
fn end(names: &[String], entry: OneOf<EndEntry>, what: &str) -> std::result::Result<(usize, Option<Column>), Fault> {
    let (of, column) = match entry {
        OneOf::Column(Column::Name(of)) => (of, None),
        OneOf::Column(Column::Number(number)) => {
            return fault(format!("the node type {number} of {what} is a number"), "give the name of a node type");
        }
        OneOf::Map(EndEntry { of, column }) => (of, column),
    };
    match names.iter().position(|name| *name == of) {
        Some(number) => Ok((number, column)),
        None => {
            let known = names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
            let (of, known) = (quoted(&of), excerpt(&known, 500));
            fault(format!("there is no node type {of}: there are {known}"), "correct it, or add the type")
        }
    }
}

/// The tables of a task.
fn task(dir: &Path, names: &[String], entry: TaskEntry) -> std::result::Result<TaskTable, Fault> {
    let TaskEntry { file, header, node, time, label, targets, split } = entry;
    let (of, node) = end(names, node, "the rows")?;
    let node = node.unwrap_or(Column::Number(1));
    let targets: Vec<Column> = match targets {
        Some(columns) if columns.is_empty() => {
            return fault("targets without a column", "list columns, or leave the key out");
        }
        columns => columns.into_iter().flatten().map(|column| column.0).collect(),
    };
    if label.is_none() && targets.is_empty() {
        let cure = "name a column as the label, label = \"churn\", or as targets, targets = [\"sales\"]";
        return fault("neither a label nor targets to learn", cure);
    }
    let table = |path: &Path| Table { path: dir.join(path), header, names: None };
    let (tables, are_split): (Vec<_>, bool) = match &file {
        FilesEntry::One(path) => (vec![(table(path), None)], false),
        FilesEntry::OfSplits(files) => {
            let parts = (0u8..).zip([&files.train, &files.valid, &files.test]);
            (parts.filter_map(|(part, path)| Some((table(path.as_deref()?), Some(part)))).collect(), true)
        }
    };
    if tables.is_empty() {
        return fault("there is no file of rows", "give file = \"FILE\", or files of splits");
    }
    let split = match split {
        Some(_) if are_split => {
            return fault("a split of files that are those of splits", "leave split out, or give one file");
        }
        None => TaskSplit::Tables,
        Some(OneOf::Column(column)) => TaskSplit::Column(column),
        Some(OneOf::Map(TimesEntry { valid, test })) if valid > test => {
            let what = format!("rows to validate on are from {valid} on, and those to test on from {test} on");
            return fault(what, "test on later rows than those that are validated on");
        }
        Some(OneOf::Map(TimesEntry { valid, test })) => TaskSplit::Times { valid, test },
    };
    let of_split = if let TaskSplit::Column(column) = &split { Some(column) } else { None };
    if header == Some(false) {
        let mut columns = [&node, &time].into_iter().chain(&label).chain(of_split).chain(&targets);
        if let Some(column) = columns.find(|column| matches!(column, Column::Name(_))) {
            return unnamed(column);
        }
    }
    Ok(TaskTable { tables, of, space: of, node, time, label, targets, split })
}

/// The table of an entry of edges.
fn edges(dir: &Path, names: &[String], entry: EdgeEntry) -> std::result::Result<EdgeTable, Fault> {
    let EdgeEntry { name, file, header, source, target, weight, time, features, reverse, links } = entry;
    if name.is_empty() {
        return fault("an edge type without a name", "give it one");
    }
    let path = dir.join(&file);
    let is_array = path.extension().is_some_and(|ending| ending == "npy");
    let mut ends = Vec::new();
    for (number, end) in [(1, source), (2, target)] {
        let (space, column) = self::end(names, end, "an end")?;
        if is_array && column.is_some() {
            return fault("an array of edges has no columns", "name the node types alone: source = \"TYPE\"");
        }
        match &column {
            Some(column @ Column::Name(_)) if header == Some(false) => return unnamed(column),
            _ => ends.push(End { space, column: column.unwrap_or(Column::Number(number)) }),
        }
    }
    let [source, target] = <[End; 2]>::try_from(ends).unwrap_or_else(|_| unreachable!("an edge has two ends"));
    let (weight, time, features) = (values(dir, weight), values(dir, time), matrix(dir, features, "features")?);
    if is_array && matches!(features, Features::Columns(_)) {
        return fault("an array of edges has no columns of features", "give them as an array: features = \"FILE.npy\"");
    }
    if header == Some(false) {
        if let Features::Columns(columns) = &features
            && let Some(column) = columns.iter().find(|column| matches!(column, Column::Name(_)))
        {
            return unnamed(column);
        }
        for values in [&weight, &time].into_iter().flatten() {
            if let Values::Column(column @ Column::Name(_)) = values {
                return unnamed(column);
            }
        }
    }
    let rows = match is_array {
        true if header.is_some() => return fault("an array of edges has no header", "leave header out"),
        true => EdgeRows::Array(path, ArrayForm::Either),
        false => EdgeRows::Table(Table { path, header, names: None }),
    };
    let reverse = match reverse {
        None | Some(ReverseEntry::Add(false)) => None,
        Some(ReverseEntry::Add(true)) => Some(Reverse::Prefixed),
        Some(ReverseEntry::Named(name)) if name.is_empty() => {
            return fault("reverse edges without a name", "give them one, or reverse = true for rev_NAME");
        }
        Some(ReverseEntry::Named(name)) => Some(Reverse::Named(name)),
    };
    Ok(EdgeTable { rows, of: TypeOf::Fixed(name), source, target, weight, time, features, reverse, links, split: None })
}
