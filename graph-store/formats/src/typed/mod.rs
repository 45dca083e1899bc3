//! Typed (heterogeneous) graphs in tables and arrays: nodes of several types, and edges that name them by their ids.
//!
//! An importer turns its source into a [`TypedGraph`], a description of files and columns, which is read here into a dataset.

mod edges;
mod ids;
mod nodes;
mod rows;
mod task;
mod triples;
mod write;

use std::path::{Path, PathBuf};

use morphgl_graph_store::{MAX_NODES, Result};

use crate::files::invalid;
use crate::ingest::nodes::Targets;
use crate::ingest::nodes::labels::{Labelled, Labels};
use crate::npy::open_array;
use crate::tabular::TableFile;
use crate::{Column, DuplicateWeights, Ingest, LinkFiles, NodeFiles, Options, Progress};
use ids::Ids;

pub(crate) use crate::files::quoted;
pub(crate) use triples::Syntax;

/// A typed graph in files.
#[derive(Debug, Default)]
pub(crate) struct TypedGraph {
    /// Names of the node types, in the order of their nodes; types that tables name in a column come after them.
    pub(crate) node_types: Vec<String>,
    /// Sets of ids, within each of which an id names one node: the type of all its nodes, or `None` for nodes of several types.
    pub(crate) spaces: Vec<Option<usize>>,
    pub(crate) nodes: Vec<NodeTable>,
    pub(crate) edges: Vec<EdgeTable>,
    /// The node type, and its training, validation and test nodes.
    pub(crate) split: Option<(usize, Split)>,
    pub(crate) task: Option<TaskTable>,
}

/// Training, validation and test nodes of a type.
#[derive(Debug)]
pub(crate) enum Split {
    /// Files of their ids.
    Files([Option<PathBuf>; 3]),
    /// Their ids, and the file that these are from.
    Ids(PathBuf, [Vec<i64>; 3]),
    /// Shares of training and of validation nodes among those with a label, in their order; the others are test nodes.
    InOrder([f64; 2]),
}

/// The tables of a task: rows of nodes of a type at times, with what is to be predicted of each.
#[derive(Debug)]
pub(crate) struct TaskTable {
    /// The tables, and the split that all rows of each are of: 0 train, 1 valid, 2 test.
    pub(crate) tables: Vec<(Table, Option<u8>)>,
    /// Type of the nodes, and the set of their ids.
    pub(crate) of: usize,
    pub(crate) space: usize,
    /// Column of their ids.
    pub(crate) node: Column,
    /// Column of times, whole numbers.
    pub(crate) time: Column,
    /// Column of classes.
    pub(crate) label: Option<Column>,
    /// Columns of values to predict.
    pub(crate) targets: Vec<Column>,
    pub(crate) split: TaskSplit,
}

/// What says which rows of a task are trained on.
#[derive(Debug)]
pub(crate) enum TaskSplit {
    /// The table that they are in, if anything.
    Tables,
    /// A column of names of splits.
    Column(Column),
    /// The times from which on rows are validated and tested on; earlier ones are trained on.
    Times { valid: i64, test: i64 },
}

/// Some nodes, in the order of their type's ids.
#[derive(Debug)]
pub(crate) struct NodeTable {
    pub(crate) rows: NodeRows,
    pub(crate) of: TypeOf<usize>,
    /// The set of ids that theirs are of.
    pub(crate) space: usize,
    /// Ids, by default the numbers of the rows.
    pub(crate) id: Option<Column>,
    pub(crate) features: Features,
    /// Values to predict, of a table of one type.
    pub(crate) targets: Features,
    /// Times, whole numbers.
    pub(crate) time: Option<Values>,
    /// Classes, of a table of one type.
    pub(crate) label: Option<Values>,
    /// Names of splits, of a table of one type.
    pub(crate) split: Option<Column>,
}

/// What says how many nodes there are.
#[derive(Debug)]
pub(crate) enum NodeRows {
    /// A table with a row per node.
    Table(Table),
    /// Number of nodes; where it is not given, the number of rows of the features' file.
    Count(Option<u64>),
    /// The ids that edges name.
    Named,
}

/// The type of the rows of a table.
#[derive(Debug)]
pub(crate) enum TypeOf<T> {
    Fixed(T),
    /// That a column names.
    Column(Column),
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) path: PathBuf,
    /// Whether its first row names the columns; `None`: as its fields say.
    pub(crate) header: Option<bool>,
    /// Names of the columns other than those in its first row.
    pub(crate) names: Option<Vec<String>>,
}

/// Features of nodes or edges, or values to predict.
#[derive(Debug)]
pub(crate) enum Features {
    None,
    Columns(Vec<Column>),
    /// A matrix, or a table whose columns are all features, of as many rows as nodes or edges.
    File(PathBuf),
    /// A matrix of f32 without a header, and its number of columns; of nodes.
    Raw(PathBuf, u64),
}

/// A value of each row.
#[derive(Debug)]
pub(crate) enum Values {
    /// In a column of the table.
    Column(Column),
    /// In an array, or a column of another table, by default its only one.
    File(PathBuf, Option<Column>),
    /// In a file of f32 without a header; labels.
    Raw(PathBuf),
}

/// Some edges.
#[derive(Debug)]
pub(crate) struct EdgeTable {
    pub(crate) rows: EdgeRows,
    pub(crate) of: TypeOf<String>,
    pub(crate) source: End,
    pub(crate) target: End,
    /// Weights, numbers of at least 0.
    pub(crate) weight: Option<Values>,
    /// Times, whole numbers.
    pub(crate) time: Option<Values>,
    /// Features, of edges of one type.
    pub(crate) features: Features,
    /// Name of the type of reverse edges, which are added and have the features of the edges.
    pub(crate) reverse: Option<Reverse>,
    /// Whether they are the links that pairs are drawn of.
    pub(crate) links: bool,
    /// Number of the split (1 to validate, 2 to test on) whose pairs they are, in place of edges of the graph.
    pub(crate) split: Option<usize>,
}

/// Where edges are listed.
#[derive(Debug)]
pub(crate) enum EdgeRows {
    Table(Table),
    /// A `.npy` array.
    Array(PathBuf, ArrayForm),
    /// Triples of a head, a relation, which is the type, and a tail.
    Triples(PathBuf, Syntax),
}

/// Shape of an array of edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrayForm {
    /// `[2, edges]`, or else `[edges, 2]`.
    Either,
    /// `[2, edges]`.
    Rows,
    /// `[edges, 2]`.
    Pairs,
}

/// An end of edges: the column of its ids, and the set that they are of.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) space: usize,
    pub(crate) column: Column,
}

/// Name of a type of reverse edges.
#[derive(Debug, Clone)]
pub(crate) enum Reverse {
    /// `rev_` and the name of the type.
    Prefixed,
    Named(String),
}

/// Files of nodes by the options, none of which a typed graph has.
pub(crate) fn check_options(options: &Options) -> Result<()> {
    let described = "name files and columns in the description of the graph (`import manifest`)";
    let refused = [
        ("--reverse", options.reverse, "swap source and target in the description of the graph"),
        ("--drop-self-loops", options.drop_self_loops, "leave such edges out of the files"),
        ("--add-self-loops", options.add_self_loops, "add such edges to the files, as an edge type"),
        ("--duplicate-weights add", options.duplicate_weights == DuplicateWeights::Add, "add them up in the files"),
        ("--bipartite", options.bipartite.is_some(), "leave it out: node types have ids of their own"),
        (
            "--train-edges",
            options.links != LinkFiles::default(),
            "draw pairs by --edge-split, name files of triples by `import triples`, or import one edge type by `import edges`",
        ),
        ("--nodes", options.nodes != NodeFiles::default(), described),
        ("--standardise", options.standardise.is_some(), "standardise the columns in the files"),
    ];
    match refused.into_iter().find(|(_, given, _)| *given) {
        Some((option, _, cure)) => invalid(option, "a graph of several node types does not read it", cure),
        None => Ok(()),
    }
}

/// Bytes of the longest name of a file, with its folders, that a message repeats.
const LONGEST_NAME: usize = 1024;

/// Imports a graph that was described; errors about all of it name `source`.
pub(crate) fn import(
    source: &Path,
    target: &Path,
    mut graph: TypedGraph,
    options: &Options,
    progress: &dyn Progress,
    describe: impl FnOnce(&mut Ingest<'_>),
) -> Result<PathBuf> {
    check_options(options)?;
    if options.symmetrise {
        for edges in &mut graph.edges {
            edges.reverse.get_or_insert(Reverse::Prefixed);
        }
    }
    let mut ingest = Ingest::new(source, target, options, progress)?;
    describe(&mut ingest);
    ingest.inputs = graph.files();
    for path in &ingest.inputs {
        if !path.exists() {
            let cure = match source.is_dir() {
                true => "the directory is not whole: get it again".to_string(),
                false => format!("correct its name, which {} has", source.display()),
            };
            return match path.as_os_str().len() {
                ..=LONGEST_NAME => invalid(path, "there is no such file", cure),
                _ => invalid(source, format!("it names a file by more than {LONGEST_NAME} bytes"), "correct the name"),
            };
        }
    }
    let mut nodes = nodes::read(&mut ingest, &mut graph)?;
    let edge_types = edges::scan(&mut ingest, &graph, &mut nodes)?;
    let types = write::nodes(&mut ingest, source, &graph, nodes.types, &nodes.spaces, &edge_types)?;
    if let Some(task) = &graph.task {
        task::read(&mut ingest, source, task, &nodes.spaces, &types)?;
    }
    if options.edge_split.is_some() {
        ingest.split_types = edge_types.links(&graph, &types)?;
    }
    edges::read(&mut ingest, source, &graph, &nodes.spaces, &edge_types, types)?;
    ingest.finish()
}

impl TypedGraph {
    /// All files that are read.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let values = |values: &Option<Values>, files: &mut Vec<PathBuf>| {
            if let Some(Values::File(path, _) | Values::Raw(path)) = values {
                files.push(path.clone());
            }
        };
        for table in &self.nodes {
            if let NodeRows::Table(rows) = &table.rows {
                files.push(rows.path.clone());
            }
            for matrix in [&table.features, &table.targets] {
                if let Features::File(path) | Features::Raw(path, _) = matrix {
                    files.push(path.clone());
                }
            }
            values(&table.time, &mut files);
            values(&table.label, &mut files);
        }
        for table in &self.edges {
            match &table.rows {
                EdgeRows::Table(rows) => files.push(rows.path.clone()),
                EdgeRows::Array(path, _) | EdgeRows::Triples(path, _) => files.push(path.clone()),
            }
            values(&table.weight, &mut files);
            values(&table.time, &mut files);
            if let Features::File(path) = &table.features {
                files.push(path.clone());
            }
        }
        files.extend(self.task.iter().flat_map(|task| &task.tables).map(|(table, _)| table.path.clone()));
        match &self.split {
            Some((_, Split::Files(of_parts))) => files.extend(of_parts.iter().flatten().cloned()),
            Some((_, Split::Ids(path, _))) => files.push(path.clone()),
            Some((_, Split::InOrder(_))) | None => {}
        }
        files
    }
}

/// A set of ids, and the nodes of their numbers.
struct Space {
    ids: Ids,
    members: Members,
}

/// The nodes of the numbers of ids.
enum Members {
    /// The number is that of the node among the nodes of this type.
    Of(usize),
    /// Type and number among its nodes.
    Mixed(Vec<(u32, u32)>),
}

impl Space {
    /// Type of a node and its number among the nodes of that type, by the number of its id.
    fn node(&self, number: u32) -> (usize, u32) {
        match &self.members {
            Members::Of(of) => (*of, number),
            Members::Mixed(members) => (members[number as usize].0 as usize, members[number as usize].1),
        }
    }
}

/// Refuses more nodes than ids of 32 bits allow.
fn check_count(count: u64, source: &Path) -> Result<()> {
    if count <= MAX_NODES {
        return Ok(());
    }
    let what = format!("more than the {MAX_NODES} nodes that ids of 32 bits allow");
    invalid(source, what, "cut the graph into smaller ones")
}

impl Table {
    /// A table that is as its fields say.
    fn of(path: &Path) -> Self {
        Self { path: path.into(), header: None, names: None }
    }

    fn open<'p>(&self, progress: &'p dyn Progress) -> Result<TableFile<'p>> {
        let mut file = TableFile::with_ids(&self.path, true, progress)?;
        if let Some(header) = self.header.filter(|_| file.is_text) {
            file.header.named = header;
        }
        if let Some(names) = &self.names {
            if names.len() != file.names.len() {
                let what = format!("{} columns, but the header names {}", file.names.len(), names.len());
                return invalid(&self.path, what, "correct the header, or the separator of the file's fields");
            }
            file.names.clone_from(names);
        }
        Ok(file)
    }

    /// The index of a column; a name makes the first row a header, unless the description says that it is none.
    fn index(&self, file: &mut TableFile<'_>, column: &Column) -> Result<usize> {
        if matches!(column, Column::Name(_)) && self.header.is_none() {
            file.header.named = true;
        }
        file.index(column)
    }
}

/// Opens a table of values alone, and finds its column.
fn open_column<'p>(path: &Path, column: &Option<Column>, progress: &'p dyn Progress) -> Result<(TableFile<'p>, usize)> {
    let table = Table::of(path);
    let mut file = table.open(progress)?;
    let index = match column {
        Some(column) => table.index(&mut file, column)?,
        None if file.header.names.len() == 1 => 0,
        None => {
            let what = format!("which of its {} columns is read is not said", file.header.names.len());
            return invalid(path, what, "name it: { file = \"FILE\", column = \"NAME\" }");
        }
    };
    Ok((file, index))
}

fn is_array(path: &Path) -> Result<bool> {
    Ok(crate::files::magic(path)?.starts_with(b"\x93NUMPY"))
}

/// Class numbers in a file of their own.
fn labels_of(ingest: &mut Ingest<'_>, path: &Path, column: &Option<Column>) -> Result<Vec<i32>> {
    if is_array(path)? {
        return open_array(path)?.labels_of(column);
    }
    let (mut file, column) = open_column(path, column, ingest.progress())?;
    let mut labels = Labels::new(Labelled::TYPED);
    while let Some(batch) = file.next(&[column])? {
        labels.read(path, &batch, batch.column(column))?;
    }
    labels.finish(ingest)
}

/// Values to predict in a file of their own.
fn targets_of(ingest: &Ingest<'_>, path: &Path) -> Result<Targets> {
    if is_array(path)? {
        return Targets::of_array(&mut open_array(path)?, None);
    }
    let mut file = Table::of(path).open(ingest.progress())?;
    let columns: Vec<usize> = (0..file.header.names.len()).collect();
    let names = file.names.iter().map(|name| name.trim().to_string()).collect();
    let mut targets = Targets::of_type(Some(names).filter(|_| file.header.named));
    while let Some(batch) = file.next(&columns)? {
        targets.read(path, &batch, &columns)?;
    }
    Ok(targets)
}

/// Times in a file of their own.
fn times_of(ingest: &Ingest<'_>, path: &Path, column: &Option<Column>) -> Result<Vec<i64>> {
    if is_array(path)? {
        let mut array = open_array(path)?;
        array.expect_vector()?;
        return array.all_ints();
    }
    let (mut file, column) = open_column(path, column, ingest.progress())?;
    let mut times = Vec::new();
    while let Some(batch) = file.next(&[column])? {
        nodes::read_times(path, &batch, column, &mut times)?;
    }
    Ok(times)
}
