//! The `.npz` collections of Shchur et al. ("Pitfalls of graph neural network evaluation", §A) and their relatives.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dtype, Result};

use crate::archive::Archive;
use crate::elements::Kind;
use crate::files::{DOWNLOAD, invalid};
use crate::ingest::features::{self, BATCH_VALUES};
use crate::npy::ArrayReader;
use crate::pickle;
use crate::sparse::{SparseRows, is_small_integer};
use crate::{Format, Ingest, Options, Progress};

/// Arrays of both layouts, and those that they have besides: names and the text that features were made of.
const KNOWN: &[&str] = &[
    "adj_data",
    "adj_indices",
    "adj_indptr",
    "adj_shape",
    "adj_matrix",
    "attr_data",
    "attr_indices",
    "attr_indptr",
    "attr_shape",
    "attr_matrix",
    "node_attr",
    "labels",
    "node_label",
    "node_names",
    "attr_names",
    "class_names",
    "idx_to_node",
    "idx_to_attr",
    "idx_to_class",
    "metadata",
];

/// Imports `source`, an `.npz` file of one attributed graph, into a dataset at `target`.
///
/// Two layouts are read: plain arrays (`adj_data`, `adj_indices`, `adj_indptr`, `adj_shape`, `attr_*` or
/// `attr_matrix`, `labels`) and pickled objects (`adj_matrix`, `node_attr` as scipy `csr_matrix`, `node_label`),
/// the latter by an allow-list that executes nothing. Other arrays, such as `metadata`, are not opened; a note lists those of
/// unknown names.
/// The graph becomes undirected, without self-loops and duplicates, for all options, as PyG and DGL load these
/// files; weights are kept where they are not all 1. Features are u8 where every value is a whole number of at most
/// 255, f32 else, unless the options name a type. There is no split but a random one.
///
/// # Errors
///
/// A damaged archive, arrays that do not fit one another, a pickle of anything else, a sparse matrix above the memory
/// limit.
///
/// # Complexity
///
/// Time O(entries + edges + nodes × features written); memory O(entries of the sparse matrices). Dense features are
/// streamed.
pub fn import(source: &Path, target: &Path, options: &Options, progress: &dyn Progress) -> Result<PathBuf> {
    Format::Npz.refuse_others(source)?;
    let options = Options { symmetrise: true, drop_self_loops: true, drop_duplicates: true, ..options.clone() };
    let mut archive = Archive::open(source)?;
    progress.stage("read graph", None);
    let Some(adjacency) = sparse(&mut archive, "adj", "adj_matrix", options.memory)? else {
        let what = format!("no adj_matrix and no adj_data among the arrays {:?}", archive.names());
        let cure = "this is no gnn-benchmark file; arrays of your own are read by `morphgl import numpy`";
        return invalid(source, what, cure);
    };
    let num_nodes = adjacency.num_rows;
    if adjacency.num_cols != num_nodes {
        let what = format!("the adjacency matrix is {num_nodes} x {}", adjacency.num_cols);
        return invalid(source, what, "a graph needs a square one: download the file again");
    }
    let labels = ["labels", "node_label"].into_iter().find(|name| archive.has(name));
    let labels = labels.map(|name| read_labels(&mut archive, name, num_nodes)).transpose()?;
    let mut ingest = Ingest::new(source, target, &options, progress)?;
    push_edges(&mut ingest, source, &adjacency)?;
    drop(adjacency);
    if let Some(features) = sparse(&mut archive, "attr", "node_attr", options.memory)? {
        push_sparse(&mut ingest, source, &features, num_nodes)?;
    } else if let Some(name) = ["attr_matrix", "node_attr"].into_iter().find(|name| archive.has(name)) {
        let exact = options.feature_dtype.is_none() && has_small_integers(archive.array(name)?)?;
        let wide = if exact { Dtype::U8 } else { Dtype::F32 };
        features::push_array(&mut ingest, archive.array(name)?, wide)?;
    }
    if let Some(labels) = labels {
        ingest.labels(source, &labels, None)?;
    }
    let unread = archive.unknown(KNOWN);
    if !unread.is_empty() {
        ingest.note(format!("arrays of unknown names were left out: {}", unread.join(", ")));
    }
    ingest.provenance("format", "npz");
    ingest.finish()
}

/// The matrix of the plain arrays `{prefix}_data` … or of the pickled object `object`, whichever exists.
fn sparse(archive: &mut Archive, prefix: &str, object: &str, memory: u64) -> Result<Option<SparseRows>> {
    if archive.has(&format!("{prefix}_data")) {
        let mut ints = |part: &str| archive.array(&format!("{prefix}_{part}"))?.fits(memory)?.all_ints();
        let (shape, indptr, indices) = (ints("shape")?, ints("indptr")?, ints("indices")?);
        let mut data = archive.array(&format!("{prefix}_data"))?.fits(memory)?;
        let mut values = vec![];
        data.floats(u64::MAX, &mut values)?;
        let fail = |what: String| invalid(&data.path, what, DOWNLOAD);
        let [rows, cols] = shape[..] else { return fail(format!("{prefix}_shape holds {} numbers", shape.len())) };
        return SparseRows::new([rows, cols], indptr, indices, values).map(Some).or_else(fail);
    }
    if !archive.has(object) {
        return Ok(None);
    }
    let mut array = archive.array(object)?;
    if array.ty.kind != Kind::Object {
        return Ok(None);
    }
    let bytes = array.object_bytes(memory)?;
    let pickle = pickle::read(&array.path, &bytes)?;
    pickle.csr(pickle.unwrap_object(pickle.root), object).map(Some)
}

fn read_labels(archive: &mut Archive, name: &str, num_nodes: usize) -> Result<Vec<i32>> {
    let mut array = archive.array(name)?;
    if array.shape != [num_nodes as u64] {
        return invalid(&array.path, format!("labels of shape {:?} for {num_nodes} nodes", array.shape), DOWNLOAD);
    }
    array.labels()
}

fn push_edges(ingest: &mut Ingest<'_>, source: &Path, adjacency: &SparseRows) -> Result<()> {
    let weighted = adjacency.values().iter().any(|&v| v != 1.0);
    let mut sink = ingest.edges(source, Some(adjacency.num_rows as u64), weighted)?;
    for row in 0..adjacency.num_rows {
        let (cols, values) = adjacency.row(row);
        sink.push(&vec![row as u32; cols.len()], cols, weighted.then_some(values))?;
    }
    sink.finish()?;
    Ok(())
}

fn push_sparse(ingest: &mut Ingest<'_>, source: &Path, features: &SparseRows, num_nodes: usize) -> Result<()> {
    if features.num_rows != num_nodes {
        let what = format!("{} feature rows for {num_nodes} nodes", features.num_rows);
        return invalid(source, what, DOWNLOAD);
    }
    features::check_dim(source, features.num_cols as u64)?;
    let bytes = (num_nodes as u64).saturating_mul(features.num_cols as u64).saturating_mul(4);
    ingest.refuse_large(&format!("features of {} columns", features.num_cols), bytes, "check the file")?;
    let stored = if features.has_small_integers() { Dtype::U8 } else { Dtype::F32 };
    let mut sink = ingest.features(source, features.num_cols, stored)?;
    sink.push_rows(num_nodes, |node, row| features.dense_row(node, row))?;
    sink.finish()
}

/// Whether u8 represents every value exactly; takes a pass over the values.
fn has_small_integers(mut array: ArrayReader<'_>) -> Result<bool> {
    let mut values = vec![];
    while array.remaining() > 0 {
        values.clear();
        array.floats(BATCH_VALUES as u64, &mut values)?;
        if !values.iter().all(|&v| is_small_integer(v)) {
            return Ok(false);
        }
    }
    Ok(true)
}
