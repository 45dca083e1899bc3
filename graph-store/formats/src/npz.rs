//! The `.npz` collections of Shchur et al. ("Pitfalls of graph neural network evaluation", §A) and their relatives.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dtype, Error, Position, Result};

use crate::archive::Archive;
use crate::dense::{self, Choice};
use crate::ingest::features::BATCH_VALUES;
use crate::pickle;
use crate::sparse::SparseRows;
use crate::{Ingest, Options, Progress};

/// Imports `source`, an `.npz` file of one attributed graph, into a dataset at `target`.
///
/// Two layouts are read: plain arrays (`adj_data`, `adj_indices`, `adj_indptr`, `adj_shape`, `attr_*` or
/// `attr_matrix`, `labels`) and pickled objects (`adj_matrix`, `node_attr` as scipy `csr_matrix`, `node_label`),
/// the latter by an allow-list that executes nothing. Other arrays, such as `metadata`, are not opened.
/// The graph becomes undirected, without self-loops and duplicates, whatever the options say, as PyG and DGL load these
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
    let options = Options { symmetrise: true, drop_self_loops: true, drop_duplicates: true, ..options.clone() };
    let mut archive = Archive::open(source)?;
    progress.stage("read graph", None);
    let Some(adjacency) = sparse(&mut archive, "adj", "adj_matrix", options.memory)? else {
        let what = format!("no adj_matrix and no adj_data among the arrays {:?}", archive.names());
        let cure = "this is no gnn-benchmark file; arrays of your own are read by `morphgl import numpy`";
        return Err(Error::invalid(source, Position::File, what, cure));
    };
    let num_nodes = adjacency.num_rows;
    if adjacency.num_cols != num_nodes {
        let what = format!("the adjacency matrix is {num_nodes} x {}", adjacency.num_cols);
        return Err(Error::invalid(
            source,
            Position::File,
            what,
            "a graph needs a square one: download the file again",
        ));
    }
    let labels = match ["labels", "node_label"].into_iter().find(|name| archive.has(name)) {
        Some(name) => Some(read_labels(&mut archive, name, num_nodes)?),
        None => None,
    };
    let mut ingest = Ingest::new(source, target, &options, progress)?;
    push_edges(&mut ingest, source, &adjacency)?;
    drop(adjacency);
    match sparse(&mut archive, "attr", "node_attr", options.memory)? {
        Some(features) => push_sparse(&mut ingest, source, &features, num_nodes)?,
        None => push_dense(&mut ingest, &mut archive, num_nodes)?,
    }
    if let Some(labels) = labels {
        ingest.labels(source, &labels, None)?;
    }
    ingest.provenance("format", "npz");
    ingest.finish()
}

/// The matrix of the plain arrays `{prefix}_data` … or of the pickled object `object`, whichever is there.
fn sparse(archive: &mut Archive, prefix: &str, object: &str, memory: u64) -> Result<Option<SparseRows>> {
    if archive.has(&format!("{prefix}_data")) {
        let mut ints = |part: &str| archive.member(&format!("{prefix}_{part}"))?.fits(memory)?.all_ints();
        let (shape, indptr, indices) = (ints("shape")?, ints("indptr")?, ints("indices")?);
        let mut data = archive.member(&format!("{prefix}_data"))?.fits(memory)?;
        let mut values = vec![];
        data.floats(u64::MAX, &mut values)?;
        let path = data.path.clone();
        let fail = |what: String| Err(Error::invalid(&path, Position::File, what, "download the file again"));
        let [rows, cols] = shape[..] else { return fail(format!("{prefix}_shape holds {} numbers", shape.len())) };
        return SparseRows::new([rows, cols], indptr, indices, values).map(Some).or_else(fail);
    }
    if !archive.has(object) {
        return Ok(None);
    }
    let mut member = archive.member(object)?;
    if member.ty.kind != crate::elements::Kind::Object {
        return Ok(None);
    }
    let bytes = member.object_bytes(memory)?;
    let pickle = pickle::read(&member.path, &bytes)?;
    pickle.csr(pickle.unwrap_object(pickle.root), object).map(Some)
}

fn read_labels(archive: &mut Archive, name: &str, num_nodes: usize) -> Result<Vec<i32>> {
    let mut member = archive.member(name)?;
    if member.shape != [num_nodes as u64] {
        let what = format!("labels of shape {:?} for {num_nodes} nodes", member.shape);
        return Err(Error::invalid(&member.path, Position::File, what, "download the file again"));
    }
    member.labels()
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
        return Err(Error::invalid(source, Position::File, what, "download the file again"));
    }
    let dim = features.num_cols;
    let mut rows = vec![0.0; (BATCH_VALUES / dim.max(1)).clamp(1, num_nodes.max(1)) * dim];
    // Entries of one column add up, so the sums are what has to fit.
    let small = features.has_small_integers();
    let mut sink = ingest.features(source, dim, if small { Dtype::U8 } else { Dtype::F32 })?;
    let step = rows.len() / dim.max(1);
    for start in (0..num_nodes).step_by(step.max(1)) {
        let count = step.min(num_nodes - start);
        for (i, row) in rows.chunks_exact_mut(dim.max(1)).take(count).enumerate() {
            features.dense_row(start + i, row);
        }
        sink.push(&rows[..count * dim])?;
    }
    sink.finish()
}

/// Streams a dense `attr_matrix` or `node_attr`, where there is one.
fn push_dense(ingest: &mut Ingest<'_>, archive: &mut Archive, num_nodes: usize) -> Result<()> {
    let Some(name) = ["attr_matrix", "node_attr"].into_iter().find(|name| archive.has(name)) else { return Ok(()) };
    dense::push_matrix(ingest, archive, name, num_nodes as u64, Choice::Exact)
}
