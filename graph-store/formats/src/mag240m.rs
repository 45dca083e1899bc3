//! MAG240M of OGB's large-scale challenge: a directory of `.npy` files by node and edge type.

use std::path::{Path, PathBuf};

use morphgl_graph_store::Result;
use morphgl_platform::excerpt;

use crate::files::{DOWNLOAD, invalid};
use crate::torch_file::TorchFile;
use crate::type_folders::TypeFolders;
use crate::typed::{self, ArrayForm, Features, NodeRows, NodeTable, Split, TypeOf, TypedGraph, Values, quoted};
use crate::{Format, Options, Progress};

/// Files of a node type.
const FEATURES: &str = "node_feat.npy";
const LABELS: &str = "node_label.npy";
const YEARS: &str = "node_year.npy";
/// The key of `meta.pt` that is no node type.
const NUM_CLASSES: &str = "num_classes";
/// Share of the memory that a file of torch takes.
const SHARE: u64 = 4;

/// Options of MAG240M.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mag240mOptions {
    /// Takes the years of papers as the times of nodes, 8 bytes per node. Default false.
    pub years: bool,
}

/// Imports MAG240M from `source`, the directory that holds `processed/`, `meta.pt` and `split_dict.pt`, into a dataset at `target`.
///
/// `meta.pt` has the node types and their numbers of nodes; `processed/TYPE/node_feat.npy` their features, whose type is kept,
/// `node_label.npy` the classes, NaN for none, and `node_year.npy` the years; `processed/SOURCE___NAME___TARGET/edge_index.npy`,
/// `[2, edges]`, the edges of a type; `split_dict.pt` the papers of the splits, of which `test` has no labels.
///
/// # Errors
///
/// Files that are missing or damaged, arrays of other numbers of rows, ids of nodes that do not exist, each with the file's name.
///
/// # Complexity
///
/// A pass over each array; `options.memory` bytes for the edges, besides labels, splits, ids and times (4, 4, 8 and 8 bytes per node).
pub fn import(
    source: &Path,
    target: &Path,
    format: Mag240mOptions,
    options: &Options,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    Format::Mag240m.refuse_others(source)?;
    let dir = source.join("processed");
    if !dir.is_dir() {
        let cure = "name the directory that holds MAG240M's processed/, meta.pt and split_dict.pt: mag240m_kddcup2021";
        return invalid(dir, "there is no such directory", cure);
    }
    let meta = source.join("meta.pt");
    let counts = counts(&meta, options.memory / SHARE)?;
    let folders = TypeFolders::read(&dir, "___")?;
    let node_types: Vec<String> = counts.iter().map(|(name, _)| name.clone()).collect();
    if let Some(other) = folders.nodes.iter().find(|name| !node_types.contains(name)) {
        return invalid(dir.join(other), "meta.pt has no number of nodes of this type", DOWNLOAD);
    }
    let nodes = counts.iter().enumerate().map(|(of, (name, count))| NodeTable {
        rows: NodeRows::Count(Some(*count)),
        of: TypeOf::Fixed(of),
        space: of,
        id: None,
        features: folders.file(name, FEATURES).map_or(Features::None, Features::File),
        targets: Features::None,
        time: folders.file(name, YEARS).filter(|_| format.years).map(|path| Values::File(path, None)),
        label: folders.file(name, LABELS).map(|path| Values::File(path, None)),
        split: None,
    });
    let nodes: Vec<NodeTable> = nodes.collect();
    let mut labelled = nodes.iter().enumerate().filter(|(_, table)| table.label.is_some()).map(|(of, _)| of);
    let (learned, second) = (labelled.next(), labelled.next());
    if let Some(second) = second {
        let what = "labels of a second node type";
        return invalid(dir.join(&node_types[second]).join(LABELS), what, "leave those of one type");
    }
    let path = source.join("split_dict.pt");
    let mut left_out = folders.unread(&[FEATURES, LABELS, YEARS])?;
    let split = match learned {
        Some(of) => {
            let (ids, others) = split(&path, options.memory / SHARE)?;
            left_out.extend(others.into_iter().map(|name| format!("split_dict.pt: {name}")));
            Some((of, Split::Ids(path, ids)))
        }
        None => {
            left_out.push("split_dict.pt, since no nodes have labels".into());
            None
        }
    };
    let years = dir.join("paper").join(YEARS).exists();
    let edges = folders.edge_tables(&node_types, ArrayForm::Rows)?;
    let spaces = (0..node_types.len()).map(Some).collect();
    let graph = TypedGraph { node_types, spaces, nodes, edges, split, task: None };
    typed::import(source, target, graph, options, progress, |ingest| {
        ingest.provenance("format", "mag240m");
        if years && !format.years {
            ingest.note("years of papers were left out; --years takes them as times");
        }
        if !left_out.is_empty() {
            ingest.note(format!("left out: {}", excerpt(&left_out.join(", "), 300)));
        }
    })
}

/// The node types in the order of their names, and the number of nodes of each.
fn counts(path: &Path, limit: u64) -> Result<Vec<(String, u64)>> {
    expect(path)?;
    let file = TorchFile::read(path, limit)?;
    let mut counts = Vec::new();
    for (name, count) in file.pickle()?.ints()? {
        if name == NUM_CLASSES {
            continue;
        }
        if name.is_empty() || name.contains(':') || name.contains("___") {
            return invalid(path, format!("the node type {} cannot be named so", quoted(&name)), DOWNLOAD);
        }
        match u64::try_from(count) {
            Ok(count) => counts.push((name, count)),
            Err(_) => return invalid(path, format!("{count} nodes of type {}", quoted(&name)), DOWNLOAD),
        }
    }
    if counts.is_empty() {
        return invalid(path, "there is no node type", DOWNLOAD);
    }
    counts.sort();
    match counts.array_windows().find(|[a, b]| a.0 == b.0) {
        Some([a, _]) => invalid(path, format!("the node type {} stands there twice", quoted(&a.0)), DOWNLOAD),
        None => Ok(counts),
    }
}

/// Training, validation and test nodes, and names of other arrays.
fn split(path: &Path, limit: u64) -> Result<([Vec<i64>; 3], Vec<String>)> {
    expect(path)?;
    let file = TorchFile::read(path, limit)?;
    let pickle = file.pickle()?;
    let arrays = pickle.arrays()?;
    let mut ids = [const { Vec::new() }; 3];
    let mut read = Vec::new();
    for (ids, names) in ids.iter_mut().zip([&["train"][..], &["valid"], &["test", "test-whole"]]) {
        let Some((name, value)) = arrays.iter().find(|(name, _)| names.contains(&&**name)) else {
            let found = arrays.iter().map(|(name, _)| quoted(name)).collect::<Vec<_>>().join(", ");
            let what = format!("there is no array {:?}, only {}", names[0], excerpt(&found, 300));
            return invalid(path, what, DOWNLOAD);
        };
        let array = pickle.array(*value, name)?;
        if array.shape.len() != 1 {
            return invalid(path, format!("{name} of shape {:?}, expected one dimension", array.shape), DOWNLOAD);
        }
        array.ty.ints(array.bytes, ids).or_else(|what| invalid(path, format!("{name}: {what}"), DOWNLOAD))?;
        read.push(name);
    }
    let others = arrays.iter().map(|(name, _)| name).filter(|name| !read.contains(name)).cloned();
    Ok((ids, others.collect()))
}

fn expect(path: &Path) -> Result<()> {
    if path.is_file() {
        return Ok(());
    }
    invalid(path, "there is no such file", "name the directory of MAG240M, whole")
}
