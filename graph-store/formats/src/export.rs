//! A dataset as plain arrays for other tools.

use std::fs;
use std::path::{Path, PathBuf};

use half::slice::HalfFloatSliceExt;
use morphgl_graph_store::{Dataset, Element, Error, FeatureView, NpyWriter, Position, Result};

/// Elements converted at a time.
const STEP: usize = 1 << 18;

/// Writes `dataset` as a directory of `.npy` files that numpy, PyTorch, DGL and PyG take as they are.
///
/// `indptr`, `indices`, `labels`, `train`, `valid` and `test` become i64, the type those libraries index with (torch
/// has no u32 worth the name); features keep their type, but for bf16, which numpy lacks and which becomes f32.
/// [`crate::numpy::import`] reads the directory back.
///
/// # Errors
///
/// `target` exists; a disk that refuses. Nothing is left behind then.
pub fn export_numpy(dataset: &Dataset, target: &Path) -> Result<PathBuf> {
    if target.exists() {
        let cure = "choose another output or remove it first";
        return Err(Error::invalid(target, Position::File, "the output exists", cure));
    }
    let Some(name) = target.file_name() else {
        return Err(Error::invalid(target, Position::File, "not a directory name", "name the output directory"));
    };
    let name = format!(".{}.partial-{}", name.to_string_lossy(), std::process::id());
    let partial = Partial(target.with_file_name(name));
    fs::create_dir_all(&partial.0).map_err(|e| Error::io(&partial.0, e))?;
    let dir = partial.0.as_path();
    let topology = &dataset.topology;
    write(dir, "indptr", topology.indptr(), |&v| v as i64)?;
    write(dir, "indices", topology.indices(), |&v| i64::from(v))?;
    if let Some(weights) = topology.weights() {
        write(dir, "weights", weights, |&w| w)?;
    }
    if let Some(features) = &dataset.features {
        let dim = features.dim();
        match features.view() {
            FeatureView::F32(values) => matrix(dir, values, dim, |v, out| out.copy_from_slice(v))?,
            FeatureView::F16(values) => matrix(dir, values, dim, |v, out| out.copy_from_slice(v))?,
            FeatureView::U8(values) => matrix(dir, values, dim, |v, out| out.copy_from_slice(v))?,
            FeatureView::Bf16(values) => matrix(dir, values, dim, |v, out: &mut [f32]| v.convert_to_f32_slice(out))?,
        }
    }
    if let Some(labels) = &dataset.labels {
        write(dir, "labels", labels, |&v| i64::from(v))?;
    }
    let splits = &dataset.splits;
    for (name, nodes) in [("train", &splits.train), ("valid", &splits.valid), ("test", &splits.test)] {
        if !nodes.is_empty() {
            write(dir, name, nodes, |&v| i64::from(v))?;
        }
    }
    if let Some(ids) = &dataset.node_ids {
        write(dir, "node_ids", ids, |&v| v)?;
    }
    fs::rename(&partial.0, target).map_err(|e| Error::io(target, e))?;
    Ok(target.to_path_buf())
}

fn write<T, U: Element>(dir: &Path, name: &str, values: &[T], convert: impl Fn(&T) -> U) -> Result<()> {
    let mut out = NpyWriter::create(dir.join(format!("{name}.npy")))?;
    let mut buffer = Vec::with_capacity(STEP.min(values.len()));
    for values in values.chunks(STEP) {
        buffer.clear();
        buffer.extend(values.iter().map(&convert));
        out.write(&buffer)?;
    }
    out.finish(None)?;
    Ok(())
}

fn matrix<T, U: Element>(dir: &Path, values: &[T], dim: usize, convert: impl Fn(&[T], &mut [U])) -> Result<()> {
    let mut out = NpyWriter::create(dir.join("features.npy"))?;
    let mut buffer = vec![U::zeroed(); STEP.min(values.len())];
    for values in values.chunks(STEP) {
        convert(values, &mut buffer[..values.len()]);
        out.write(&buffer[..values.len()])?;
    }
    out.finish(Some(dim))?;
    Ok(())
}

/// A directory that is removed unless it was renamed.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // Renamed, there is nothing to remove; and a directory that cannot be removed tells by its name what it is.
        let _ = fs::remove_dir_all(&self.0);
    }
}
