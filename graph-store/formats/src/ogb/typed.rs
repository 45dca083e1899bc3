//! OGB's layout of graphs of several node types (ogbn-mag, ogbl-biokg): counts by type, a directory per edge type, features, labels,
//! years and splits per node type.

use std::fs;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Result, Types};

use crate::csv_gz;
use crate::files::{DOWNLOAD, file_name, invalid};
use crate::tabular::TableFile;
use crate::typed::{
    self, EdgeRows, EdgeTable, End, Features, NodeRows, NodeTable, Split, Table, TypeOf, TypedGraph, Values, quoted,
};
use crate::{Column, Options, Progress, Silent};

/// Whether `raw` is of a graph of several node types.
pub(super) fn is_typed(raw: &Path) -> bool {
    raw.join(TRIPLETS).exists()
}

const TRIPLETS: &str = "triplet-type-list.csv.gz";
const COUNTS: &str = "num-node-dict.csv.gz";

/// Files of edges that are not stored, and what they have.
const UNREAD: [(&str, &str); 2] =
    [("edge_reltype", "the number of the type of each edge"), ("edge_year", "the year of each edge")];

/// Imports the directory `source`, whose `raw/` is of a graph of several node types.
pub(super) fn import(source: &Path, target: &Path, options: &Options, progress: &dyn Progress) -> Result<PathBuf> {
    let raw = source.join("raw");
    let counts = counts(&raw.join(COUNTS))?;
    let node_types: Vec<String> = counts.iter().map(|(name, _)| name.clone()).collect();
    let file = |folder: &str, of: &str, name: &str| {
        Some(raw.join(folder).join(of).join(format!("{name}.csv.gz"))).filter(|path| path.exists())
    };
    let nodes = counts.iter().enumerate().map(|(of, (name, count))| NodeTable {
        rows: NodeRows::Count(Some(*count)),
        of: TypeOf::Fixed(of),
        space: of,
        id: None,
        features: file("node-feat", name, "node-feat").map_or(Features::None, Features::File),
        targets: Features::None,
        time: file("node-feat", name, "node_year").map(|path| Values::File(path, None)),
        label: file("node-label", name, "node-label").map(|path| Values::File(path, None)),
        split: None,
    });
    let nodes: Vec<NodeTable> = nodes.collect();
    let labelled = nodes.iter().filter(|table| table.label.is_some()).count();
    if labelled > 1 {
        return invalid(raw.join("node-label"), format!("labels of {labelled} node types"), "leave those of one type");
    }
    let (mut edges, mut unread) = (Vec::new(), [false; UNREAD.len()]);
    for [from, name, to] in triplets(&raw.join(TRIPLETS))? {
        let folder = raw.join("relations").join(format!("{from}___{name}___{to}"));
        let file = |name: &str| Some(folder.join(format!("{name}.csv.gz"))).filter(|path| path.exists());
        for (found, (name, _)) in unread.iter_mut().zip(UNREAD) {
            *found |= file(name).is_some();
        }
        let end = |of: &String, number| match node_types.iter().position(|name| name == of) {
            Some(space) => Ok(End { space, column: Column::Number(number) }),
            None => invalid(raw.join(TRIPLETS), format!("there is no node type {} in {COUNTS}", quoted(of)), DOWNLOAD),
        };
        edges.push(EdgeTable {
            rows: EdgeRows::Table(Table { path: folder.join("edge.csv.gz"), header: Some(false), names: None }),
            of: TypeOf::Fixed(name),
            source: end(&from, 1)?,
            target: end(&to, 2)?,
            weight: None,
            time: None,
            features: file("edge-feat").map_or(Features::None, Features::File),
            reverse: None,
            links: false,
            split: None,
        });
    }
    let spaces = (0..node_types.len()).map(Some).collect();
    let (split, name) = match split(&source.join("split"), &node_types)? {
        Some((split, name)) => (split, Some(name)),
        None => (None, None),
    };
    let links = name.is_some() && split.is_none();
    let split = split.map(|(of, files)| (of, Split::Files(files)));
    let graph = TypedGraph { node_types, spaces, nodes, edges, split, task: None };
    typed::import(source, target, graph, options, progress, |ingest| {
        ingest.provenance("format", "ogb");
        ingest.provenance("graphs", 1);
        if let Some(name) = name {
            ingest.provenance("split", name);
        }
        for (found, (name, what)) in unread.into_iter().zip(UNREAD) {
            ingest.provenance(name, if found { "present, not stored" } else { "absent" });
            if found {
                ingest.note(format!("{name}, {what}, was left out"));
            }
        }
        if links {
            ingest.note("the split has no lists of nodes, and was left out");
        }
    })
}

/// The node types in the order of their names, and the number of nodes of each.
fn counts(path: &Path) -> Result<Vec<(String, u64)>> {
    let mut file = TableFile::open(path, &Silent)?;
    let all: Vec<usize> = (0..file.names.len()).collect();
    file.header.named = true;
    let mut counts: Vec<(String, u64)> = Vec::new();
    while let Some(batch) = file.next(&all)? {
        if batch.rows > 1 || !counts.is_empty() {
            let cure = "import a set of one graph";
            return invalid(path, "several graphs of several node types, which are not read", cure);
        }
        for &column in &all {
            let text = String::from_utf8_lossy(&batch.column(column).text(0)).into_owned();
            let count = csv_gz::id(&text).map_err(|what| Error::invalid(path, batch.position(0), what, DOWNLOAD))?;
            counts.push((file.names[column].trim().to_string(), count));
        }
    }
    if counts.is_empty() {
        return invalid(path, "no number of nodes", DOWNLOAD);
    }
    counts.sort();
    Ok(counts)
}

/// The edge types, in the order of their names.
fn triplets(path: &Path) -> Result<Vec<[String; 3]>> {
    let mut file = TableFile::open(path, &Silent)?;
    if file.names.len() != 3 {
        return invalid(path, format!("{} columns, expected source, name and target", file.names.len()), DOWNLOAD);
    }
    file.header.named = false;
    let mut triplets = Vec::new();
    while let Some(batch) = file.next(&[0, 1, 2])? {
        let text = |row, column| String::from_utf8_lossy(&batch.column(column).text(row)).trim().to_string();
        for row in 0..batch.rows {
            let triplet = [0, 1, 2].map(|column| text(row, column));
            if let Some(long) = triplet.iter().find(|name| name.len() > Types::MAX_NAME) {
                let what =
                    format!("the name {} has {} bytes, at most {} are read", quoted(long), long.len(), Types::MAX_NAME);
                return Err(Error::invalid(path, batch.position(row), what, DOWNLOAD));
            }
            triplets.push(triplet);
        }
    }
    triplets.sort();
    Ok(triplets)
}

/// The type and the files of a split of nodes.
type Files = Option<(usize, [Option<PathBuf>; 3])>;

/// The files and the name of the dataset's only split; no files where it is not a split of nodes.
fn split(dir: &Path, node_types: &[String]) -> Result<Option<(Files, String)>> {
    if !dir.exists() {
        return Ok(None);
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| Error::io(dir, e))? {
        paths.push(entry.map_err(|e| Error::io(dir, e))?.path());
    }
    paths.retain(|path| path.is_dir());
    paths.sort();
    let split = match &paths[..] {
        [] => return Ok(None),
        [split] => split,
        several => {
            let names: Vec<String> = several.iter().map(|path| file_name(path)).collect();
            let cure = "leave one of them";
            return invalid(dir, format!("several splits: {}", names.join(", ")), cure);
        }
    };
    let of = node_types.iter().position(|name| split.join(name).join("train.csv.gz").exists());
    let files = of.map(|of| {
        let file = |part: &str| Some(split.join(&node_types[of]).join(format!("{part}.csv.gz")));
        (of, ["train", "valid", "test"].map(file))
    });
    Ok(Some((files, file_name(split))))
}
