//! Plain arrays, one's own tables: a directory of `.npy` files, or an `.npz` archive of them.
//!
//! | array | meaning |
//! |---|---|
//! | `indptr`, `indices` | rows of neighbours; [`NumpyOptions::rows`] says which |
//! | or `edge_index` | `[2, E]` (or `[E, 2]`): sources and targets |
//! | or `src`, `dst` | sources and targets |
//! | `weights` or `edge_weight` | a number of at least 0 an edge, in the order of the edges |
//! | `features`, `x` or `feat` | `[N, dim]`: f16 and u8 are kept, all else becomes f32 |
//! | `labels`, `label` or `y` | whole numbers, -1 or NaN for none |
//! | `train`, `valid`, `test` | node ids, or bool masks; also as `train_idx`, `train_mask`, `val`, `val_mask`, … |
//! | `node_ids` | ids the nodes have elsewhere |
//!
//! A matrix that `scipy.sparse.save_npz` wrote is a graph, too: entry (i, j) is an edge from i to j with its value as weight,
//! whatever the `format` (csr, csc, coo).
//!
//! Ids may be of any integer type. All but the edges is optional.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Position, Result};

use crate::elements::Kind;
use crate::ingest::features::push_table;
use crate::table::Tables;
use crate::table_edges::{self, Entries, Scipy};
use crate::{Ingest, Options, Progress, Rows};

/// How plain arrays are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NumpyOptions {
    /// What the rows of `indptr` and `indices` list; a scipy matrix says so itself. Default: the sources of a node's edges, as
    /// a dataset stores them.
    pub rows: Option<Rows>,
    /// Number of nodes. Default: the rows of `indptr`, of the features or of the labels; else the highest id plus one.
    pub num_nodes: Option<u64>,
}

const SPLITS: [&[&str]; 3] = [
    &["train", "train_idx", "train_mask"],
    &["valid", "valid_idx", "valid_mask", "val", "val_idx", "val_mask"],
    &["test", "test_idx", "test_mask"],
];
/// Arrays of the graph itself, those of scipy's `save_npz` included.
const EDGES: [&str; 13] = [
    "indptr",
    "indices",
    "edge_index",
    "src",
    "dst",
    "weights",
    "edge_weight",
    "node_ids",
    "format",
    "shape",
    "data",
    "row",
    "col",
];
const FEATURES: [&str; 3] = ["features", "x", "feat"];
const LABELS: [&str; 3] = ["labels", "label", "y"];

/// Imports the arrays in `source`, a directory or an `.npz` file, into a dataset at `target`.
///
/// # Errors
///
/// No edges; an array of an unfit type or shape, or for another number of nodes or edges; ids that do not exist; two
/// arrays of one meaning; and whatever the disk refuses.
///
/// # Complexity
///
/// O(E log E) time; `options.memory` bytes beside labels, splits and ids, which are held whole.
pub fn import(
    source: &Path,
    target: &Path,
    format: NumpyOptions,
    options: &Options,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let mut tables = Tables::open(source)?;
    let scipy = scipy(&mut tables)?;
    let num_nodes = match (format.num_nodes, &scipy) {
        (Some(n), _) => Some(n),
        (None, Some(matrix)) => Some(matrix.num_nodes),
        (None, None) => rows_of_others(&mut tables)?,
    };
    let mut ingest = Ingest::new(source, target, options, progress)?;
    ingest.provenance("format", "numpy");
    ingest.read_nodes(false)?;
    ingest.least_nodes = ingest.kept_nodes(0);
    let num_nodes = table_edges::push(&mut ingest, source, num_nodes, format.rows, scipy)?;
    if let Some(name) = tables.one_of(&FEATURES)? {
        push_table(&mut ingest, tables.array(name)?)?;
    }
    if let Some(name) = tables.one_of(&LABELS)? {
        let mut table = tables.array(name)?;
        let column = table.expect_column(&options.nodes.columns.label, "--label-column")?;
        ingest.labels(&table.path.clone(), &table.labels_of(column)?, None)?;
    }
    splits(&mut ingest, &mut tables, num_nodes)?;
    if let Some(name) = tables.one_of(&["node_ids"])? {
        let mut table = tables.array(name)?;
        table.expect_vector()?;
        let path = table.path.clone();
        ingest.node_ids(&path, &table.all_ids()?)?;
    }
    let known = |name: &String| {
        let names = [&EDGES[..], &FEATURES, &LABELS].into_iter().chain(SPLITS);
        names.flatten().any(|known| known == name)
    };
    let unread: Vec<String> = tables.names()?.into_iter().filter(|name| !known(name)).collect();
    if !unread.is_empty() {
        ingest.note(format!("arrays of unknown names were left out: {}", unread.join(", ")));
    }
    ingest.finish()
}

/// What the archive says of itself where `scipy.sparse.save_npz` wrote it.
fn scipy(tables: &mut Tables) -> Result<Option<Scipy>> {
    if tables.one_of(&["format"])?.is_none() {
        return Ok(None);
    }
    let (path, text) = {
        let mut member = tables.array("format")?;
        (member.path.clone(), member.text()?)
    };
    let entries = match text.as_str() {
        "csr" => Entries::Rows(Rows::Targets),
        "csc" => Entries::Rows(Rows::Sources),
        "coo" => Entries::Pairs,
        other => {
            let what = format!("a scipy matrix of format {other:?}");
            return Err(Error::invalid(path, Position::File, what, "save it with .tocsr(), .tocsc() or .tocoo()"));
        }
    };
    let mut shape = tables.array("shape")?;
    let (path, sizes) = (shape.path.clone(), shape.all_ints()?);
    match sizes[..] {
        [rows, columns] if rows == columns && rows >= 0 => Ok(Some(Scipy { entries, num_nodes: rows as u64 })),
        _ => {
            let what = format!("a matrix of shape {sizes:?}, which is no graph's");
            Err(Error::invalid(path, Position::File, what, "save a square matrix; nodes are its rows and its columns"))
        }
    }
}

/// Number of rows of the features or labels.
fn rows_of_others(tables: &mut Tables) -> Result<Option<u64>> {
    for names in [&FEATURES, &LABELS] {
        if let Some(name) = tables.one_of(names)? {
            return Ok(tables.array(name)?.shape.first().copied());
        }
    }
    Ok(None)
}

fn splits(ingest: &mut Ingest<'_>, tables: &mut Tables, num_nodes: u64) -> Result<()> {
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    let mut path = None;
    for (part, names) in parts.iter_mut().zip(SPLITS) {
        let Some(name) = tables.one_of(names)? else { continue };
        let mut table = tables.array(name)?;
        let file = table.path.clone();
        let is_mask = table.ty.kind == Kind::Bool || name.ends_with("_mask");
        let column = match is_mask {
            true => table.expect_column(&ingest.options().nodes.columns.split, "--split-column")?,
            false => table.expect_vector().map(|()| None)?,
        };
        if is_mask && table.shape[0] != num_nodes {
            let what = format!("a mask of {} nodes, but the graph has {num_nodes}", table.shape[0]);
            return Err(Error::invalid(file, Position::File, what, "give every node its element"));
        }
        let values = table.ints_of(column)?;
        let mut seen = vec![false; if is_mask { 0 } else { num_nodes as usize }];
        *part = if is_mask {
            (0..).zip(values).filter(|&(_, v)| v != 0).map(|(node, _)| node).collect()
        } else {
            let node = |(i, v): (usize, i64)| {
                let wrong = |what| Error::invalid(&file, Position::Element(i as u64), what, "correct the split");
                let there = u32::try_from(v).ok().filter(|&v| u64::from(v) < num_nodes);
                let node =
                    there.ok_or_else(|| wrong(format!("node {v} does not exist, there are {num_nodes} nodes")))?;
                match std::mem::replace(&mut seen[node as usize], true) {
                    true => Err(wrong(format!("node {v} is listed twice"))),
                    false => Ok(node),
                }
            };
            values.into_iter().enumerate().map(node).collect::<Result<_>>()?
        };
        path = Some(file);
    }
    let [train, valid, test] = &parts;
    path.map_or(Ok(()), |path| ingest.splits(&path, train, valid, test))
}
