//! Plain arrays, one's own tables: a directory of `.npy` files, or an `.npz` archive of them.
//!
//! | array | meaning |
//! |---|---|
//! | `indptr`, `indices` | rows of neighbours; see [`NumpyOptions::rows`] |
//! | or `edge_index` | `[2, E]` (or `[E, 2]`): sources and targets |
//! | or `src`, `dst` | sources and targets |
//! | `weights` or `edge_weight` | a number of at least 0 per edge, in the order of the edges |
//! | `edge_features`, `edge_attr` or `edge_feat` | `[E, dim]`: features of the edges, in the order of the edges |
//! | `features`, `x` or `feat` | `[N, dim]`: f16 and u8 are kept, all else becomes f32 |
//! | `labels`, `label` or `y` | whole numbers, -1 or NaN for none |
//! | `targets` | `[N]` or `[N, K]`: numbers, NaN for unknown ones |
//! | `train`, `valid`, `test` | node ids, or masks of booleans or of 0 and 1; also as `train_idx`, `train_mask`, `val`, `val_mask`, … |
//! | `train_edges`, `valid_edges`, `test_edges`, and `…_negatives` of each | `[pairs, 2]`: pairs of link prediction |
//! | `node_ids` | ids the nodes have elsewhere |
//!
//! A matrix that `scipy.sparse.save_npz` wrote is a graph, too: entry (i, j) is an edge from i to j with its value as weight,
//! whatever the `format` (csr, csc, coo).
//!
//! Ids may be of any integer type. All but the edges is optional.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dtype, EdgeSplits, Error, Position, Result};

use crate::archive::ArraySet;
use crate::array_edges::{self, Scipy};
use crate::files::invalid;
use crate::ingest::features::{push_array, push_edge_features};
use crate::ingest::nodes::Targets;
use crate::splits::{self, Form, SplitNodes};
use crate::{Format, Ingest, Options, Progress, RowContent};

/// Options of plain arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NumpyOptions {
    /// Nodes that the rows of `indptr` and `indices` list; a scipy matrix says so itself. Default: the sources of a node's edges, as
    /// a dataset stores them.
    pub rows: Option<RowContent>,
    /// Number of nodes. Default: the rows of `indptr`, of the features, of the labels or of the targets; else the highest id plus one.
    pub num_nodes: Option<u64>,
}

const SPLITS: [&[&str]; 3] = [
    &["train", "train_idx", "train_mask"],
    &["valid", "valid_idx", "valid_mask", "val", "val_idx", "val_mask"],
    &["test", "test_idx", "test_mask"],
];
/// Arrays of the graph itself, those of scipy's `save_npz` included, as words.
const EDGES: &str = "indptr indices edge_index src dst weights edge_weight node_ids format shape data row col";
const FEATURES: [&str; 3] = ["features", "x", "feat"];
const EDGE_FEATURES: [&str; 3] = ["edge_features", "edge_attr", "edge_feat"];
const LABELS: [&str; 3] = ["labels", "label", "y"];
const TARGETS: [&str; 1] = ["targets"];

/// Imports the arrays in `source`, a directory or an `.npz` file, into a dataset at `target`.
///
/// # Errors
///
/// No edges; an array of an unfit type or shape, or for another number of nodes or edges; ids that do not exist; two
/// arrays of one meaning; an IO error.
///
/// # Complexity
///
/// O(E log E) time; `options.memory` bytes besides labels, targets, splits and ids, which are held whole.
pub fn import(
    source: &Path,
    target: &Path,
    format: NumpyOptions,
    options: &Options,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    Format::Numpy.refuse_others(source)?;
    let mut arrays = ArraySet::open(source)?;
    let scipy = scipy(&mut arrays)?;
    let num_nodes = match (format.num_nodes, &scipy) {
        (Some(n), _) => Some(n),
        (None, Some(matrix)) => Some(matrix.num_nodes),
        (None, None) => rows_of_others(&mut arrays)?,
    };
    let mut ingest = Ingest::new(source, target, options, progress)?;
    ingest.provenance("format", "numpy");
    ingest.read_nodes(false)?;
    ingest.keep_ids(0);
    ingest.numbers_edges = arrays.one_of(&EDGE_FEATURES)?.is_some();
    if ingest.numbers_edges && arrays.one_of(&["edge_ids"])?.is_some() {
        let cure = "save edge_features[edge_ids] in place of both, a row per edge";
        return invalid(source, "rows of features of edges by edge_ids, which are not read", cure);
    }
    let num_nodes = array_edges::push(&mut ingest, source, num_nodes, format.rows, scipy)?;
    if let Some(array) = arrays.array_of(&FEATURES)? {
        push_array(&mut ingest, array, Dtype::F32)?;
    }
    if let Some(array) = arrays.array_of(&EDGE_FEATURES)? {
        push_edge_features(&mut ingest, array)?;
    }
    if let Some(mut array) = arrays.array_of(&LABELS)? {
        let labels = array.labels_of(&options.nodes.columns.label)?;
        ingest.labels(&array.path, &labels, None)?;
    }
    if let Some(mut array) = arrays.array_of(&TARGETS)? {
        let targets = Targets::of_array(&mut array, options.nodes.columns.targets.as_deref())?;
        ingest.targets(&array.path, targets)?;
    }
    read_splits(&mut ingest, &mut arrays, num_nodes)?;
    for name in EdgeSplits::ARRAYS {
        let Some(mut array) = arrays.array_of(&[name])? else { continue };
        if !matches!(array.shape[..], [_, 2]) || array.fortran && array.shape[0] > 1 {
            let what = format!("pairs of shape {:?}, expected [pairs, 2], in C order", array.shape);
            return invalid(&array.path, what, "save numpy.ascontiguousarray of such an array");
        }
        let path = array.path.clone();
        let ids = array.all_ids()?;
        let node = |id: u64| u32::try_from(id).ok().filter(|&id| u64::from(id) < num_nodes);
        if let Some(at) = ids.iter().position(|&id| node(id).is_none()) {
            let what = format!("node {} does not exist, there are {num_nodes} nodes", ids[at]);
            return Err(Error::invalid(&path, Position::Element(at as u64), what, "correct the pair"));
        }
        drop(array);
        ingest.links(name, &path, &ids.into_iter().map(|id| id as u32).collect::<Vec<u32>>())?;
    }
    // Where pairs are drawn, the arrays' own and their targets are left out.
    for [labels, targets] in EdgeSplits::TARGET_ARRAYS.into_iter().filter(|_| options.edge_split.is_none()) {
        if let Some(mut array) = arrays.array_of(&[labels])? {
            let classes = array.labels_of(&None)?;
            ingest.writer.array(labels, &classes, None)?;
        }
        if let Some(mut array) = arrays.array_of(&[targets])? {
            let (dim, values, _) = Targets::of_array(&mut array, None)?.into_parts();
            ingest.writer.array(targets, &values, Some(dim))?;
        }
    }
    if let Some(mut array) = arrays.array_of(&["node_ids"])? {
        array.expect_vector()?;
        let ids = array.all_ids()?;
        ingest.node_ids(&array.path, &ids)?;
    }
    let is_known = |name: &str| {
        let mut others = [&FEATURES[..], &EDGE_FEATURES, &LABELS, &TARGETS].into_iter().chain(SPLITS).flatten();
        EdgeSplits::ARRAYS.contains(&name)
            || EdgeSplits::TARGET_ARRAYS.as_flattened().contains(&name)
            || EDGES.split(' ').any(|known| known == name)
            || others.any(|known| *known == name)
    };
    let unread: Vec<String> = arrays.names()?.into_iter().filter(|name| !is_known(name)).collect();
    if !unread.is_empty() {
        ingest.note(format!("arrays of unknown names were left out: {}", unread.join(", ")));
    }
    ingest.finish()
}

/// Form and size of a matrix that `scipy.sparse.save_npz` wrote; `None` for other arrays.
fn scipy(arrays: &mut ArraySet) -> Result<Option<Scipy>> {
    let Some(mut format) = arrays.array_of(&["format"])? else { return Ok(None) };
    let rows = match format.text()?.as_str() {
        "csr" => Some(RowContent::Targets),
        "csc" => Some(RowContent::Sources),
        "coo" => None,
        other => {
            let what = format!("a scipy matrix of format {other:?}");
            return invalid(&format.path, what, "save it with .tocsr(), .tocsc() or .tocoo()");
        }
    };
    drop(format);
    let mut shape = arrays.array("shape")?;
    match shape.all_ints()?[..] {
        [height, width] if height == width && height >= 0 => Ok(Some(Scipy { rows, num_nodes: height as u64 })),
        ref sizes => {
            let what = format!("a matrix of shape {sizes:?}, which is no graph's");
            invalid(&shape.path, what, "save a square matrix; nodes are its rows and its columns")
        }
    }
}

/// Number of rows of the features, labels or targets.
fn rows_of_others(arrays: &mut ArraySet) -> Result<Option<u64>> {
    for names in [&FEATURES[..], &LABELS, &TARGETS] {
        if let Some(array) = arrays.array_of(names)? {
            return Ok(array.shape.first().copied());
        }
    }
    Ok(None)
}

/// Reads the splits, each a list of node ids or a mask, and hands them to the ingest.
fn read_splits(ingest: &mut Ingest<'_>, arrays: &mut ArraySet, num_nodes: u64) -> Result<()> {
    let mut splits = [const { Vec::new() }; 3];
    let mut path = None;
    for (part, (split, names)) in splits.iter_mut().zip(SPLITS).enumerate() {
        let Some(name) = arrays.one_of(names)? else { continue };
        let mut array = arrays.array(name)?;
        match splits::read(&mut array, &ingest.options().nodes.columns.split, Form::of(name), Some(num_nodes))? {
            SplitNodes::Mask(mask) => {
                if mask.len() as u64 != num_nodes {
                    let what = format!("a mask of {} nodes, but the graph has {num_nodes}", mask.len());
                    let cure = match Form::of(name) {
                        Form::Either => "give every node its element, or name a list of ids train_idx (valid_idx, …)",
                        _ => "give every node its element",
                    };
                    return invalid(&array.path, what, cure);
                }
                *split = (0..).zip(mask).filter(|&(_, flag)| flag).map(|(node, _)| node).collect();
            }
            SplitNodes::Ids(ids) => {
                let mut seen = vec![false; num_nodes as usize];
                for (i, v) in (0..).zip(ids) {
                    let node = u32::try_from(v).ok().filter(|&v| u64::from(v) < num_nodes);
                    let what = match node {
                        None => format!("node {v} does not exist, there are {num_nodes} nodes"),
                        // Training nodes may repeat.
                        Some(node) if std::mem::replace(&mut seen[node as usize], true) && part > 0 => {
                            format!("node {v} is listed twice; only training nodes may repeat")
                        }
                        Some(node) => {
                            split.push(node);
                            continue;
                        }
                    };
                    return Err(Error::invalid(&array.path, Position::Element(i), what, "correct the split"));
                }
            }
        }
        path = Some(array.path);
    }
    let [train, valid, test] = &splits;
    path.map_or(Ok(()), |path| ingest.splits(&path, train, valid, test))
}
