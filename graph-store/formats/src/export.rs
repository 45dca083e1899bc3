//! A dataset as plain arrays for other tools.

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use morphgl_graph_store::{Dataset, EdgeSplits, Element, Error, FeatureView, NpyWriter, Result};
use morphgl_platform::ReplacementDir;

use crate::files::invalid;

/// Elements converted at a time.
const STEP: usize = 1 << 18;

/// Writes `dataset` as a directory of `.npy` files that numpy, PyTorch, DGL and PyG read directly.
///
/// `indptr`, `indices`, `labels`, `train`, `valid`, `test` and the pairs of link prediction become i64, the type those libraries index with (torch
/// hardly supports u32); features and targets keep their type, but for bf16, which numpy lacks and which becomes f32. `edge_features`
/// has a row per edge, in the order of `indices`.
/// [`crate::numpy::import`] reads the directory back.
///
/// # Errors
///
/// `target` exists; features of edges of a typed graph, which have an array per edge type; rows of a task; an IO error. Nothing is left behind then.
pub fn export_numpy(dataset: &Dataset, target: &Path) -> Result<PathBuf> {
    if target.exists() {
        return invalid(target, "the output exists", "choose another output or remove it first");
    }
    if target.file_name().is_none() {
        return invalid(target, "not a directory name", "name the output directory");
    }
    if dataset.topology.types().is_some() && !dataset.edge_features.is_empty() {
        let what = "features of edges by edge type, which are not exported";
        return invalid(target, what, "read edge_ids.npy and edge_features.T.npy of the dataset itself");
    }
    if dataset.task_rows.is_some() {
        let what = "labels, targets and splits of rows of a task, which are not exported";
        return invalid(target, what, "read task_nodes.npy, task_times.npy and the other arrays of the dataset itself");
    }
    let replacement = ReplacementDir::new(target).map_err(|e| Error::io(target, e))?;
    let dir = replacement.path();
    let topology = &dataset.topology;
    write(dir, "indptr", None, topology.indptr(), |v: u64| v as i64)?;
    write(dir, "indices", None, topology.indices(), |v: u32| i64::from(v))?;
    if let Some(weights) = topology.weights() {
        write(dir, "weights", None, weights, |w: f32| w)?;
    }
    if let Some(features) = &dataset.features {
        let dim = Some(features.dim());
        match features.view() {
            FeatureView::F32(values) => write(dir, "features", dim, values, |v: f32| v)?,
            FeatureView::F16(values) => write(dir, "features", dim, values, |v: f16| v)?,
            FeatureView::U8(values) => write(dir, "features", dim, values, |v: u8| v)?,
            FeatureView::Bf16(values) => write(dir, "features", dim, values, bf16::to_f32)?,
        }
    }
    if let (Some(Some(features)), Some(ids)) = (dataset.edge_features.first(), topology.edge_ids()) {
        let dim = features.dim();
        match features.view() {
            FeatureView::F32(values) => write_rows(dir, ids, dim, values, |v: f32| v)?,
            FeatureView::F16(values) => write_rows(dir, ids, dim, values, |v: f16| v)?,
            FeatureView::U8(values) => write_rows(dir, ids, dim, values, |v: u8| v)?,
            FeatureView::Bf16(values) => write_rows(dir, ids, dim, values, bf16::to_f32)?,
        }
    }
    if let Some(labels) = &dataset.labels {
        write(dir, "labels", None, labels, |v: i32| i64::from(v))?;
    }
    if let Some(targets) = &dataset.targets {
        write(dir, "targets", Some(targets.dim()), targets.values(), |v: f32| v)?;
    }
    let splits = &dataset.splits;
    for (name, nodes) in [("train", &splits.train), ("valid", &splits.valid), ("test", &splits.test)] {
        if !nodes.is_empty() {
            write(dir, name, None, nodes, |v: u32| i64::from(v))?;
        }
    }
    for (name, pairs) in EdgeSplits::ARRAYS.into_iter().zip(dataset.edges.arrays()) {
        if let Some(pairs) = pairs {
            write(dir, name, Some(2), pairs, |v: u32| i64::from(v))?;
        }
    }
    for (targets, [labels, values]) in dataset.edges.targets.iter().zip(EdgeSplits::TARGET_ARRAYS) {
        if let Some(array) = &targets.labels {
            write(dir, labels, None, array, |v: i32| i64::from(v))?;
        }
        if let Some(matrix) = &targets.values {
            write(dir, values, Some(matrix.dim()), matrix.values(), |v: f32| v)?;
        }
    }
    if let Some(ids) = &dataset.node_ids {
        write(dir, "node_ids", None, ids, |v: u64| v)?;
    }
    replacement.finish(false).map_err(|e| Error::io(target, e))?;
    Ok(target.to_path_buf())
}

/// Writes the features of edges: for each of `ids` its row of `values`.
fn write_rows<T: Copy, U: Element>(
    dir: &Path,
    ids: &[u32],
    dim: usize,
    values: &[T],
    convert: impl Fn(T) -> U,
) -> Result<()> {
    let mut out = NpyWriter::create(dir.join("edge_features.npy"))?;
    let mut buffer = Vec::new();
    for ids in ids.chunks((STEP / dim.max(1)).max(1)) {
        buffer.clear();
        let rows = ids.iter().flat_map(|&id| &values[id as usize * dim..][..dim]);
        buffer.extend(rows.map(|&v| convert(v)));
        out.write(&buffer)?;
    }
    out.finish(Some(dim))?;
    Ok(())
}

fn write<T: Copy, U: Element>(
    dir: &Path,
    name: &str,
    dim: Option<usize>,
    values: &[T],
    convert: impl Fn(T) -> U,
) -> Result<()> {
    let mut out = NpyWriter::create(dir.join(format!("{name}.npy")))?;
    let mut buffer = Vec::with_capacity(STEP.min(values.len()));
    for values in values.chunks(STEP) {
        buffer.clear();
        buffer.extend(values.iter().map(|&v| convert(v)));
        out.write(&buffer)?;
    }
    out.finish(dim)?;
    Ok(())
}
