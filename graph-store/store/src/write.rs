//! Writes a dataset to a temporary directory, which is renamed to its target when complete.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use rayon::prelude::*;

use crate::meta::MAX_DESCRIPTION;
use crate::npy_writer::{Unsynced, sync_dir};
use crate::written::check_written;
use crate::{ArrayMeta, DATASET_FORMAT, DATASET_VERSION, Element, Error, Meta, NpyWriter, Position, Result};

/// A dataset directory being written. Dropped unfinished, it is removed.
#[derive(Debug)]
pub struct DatasetWriter {
    target: PathBuf,
    partial: PathBuf,
    replace: bool,
    arrays: BTreeMap<String, ArrayMeta>,
    /// Arrays that are not synced yet.
    unsynced: Unsynced,
    finished: bool,
}

impl DatasetWriter {
    /// Starts a dataset for `target`. With `replace`, an existing dataset is replaced when the new one is finished.
    ///
    /// # Errors
    ///
    /// `target` exists and `replace` is false, or is not a dataset; the directory cannot be created.
    pub fn create(target: impl AsRef<Path>, replace: bool) -> Result<Self> {
        let target = target.as_ref().to_path_buf();
        restore(&target, &Self::old(&target));
        let refuse = |what: &str, cure: &str| Err(Error::invalid(&target, Position::File, what, cure));
        if target.exists() && !replace {
            return refuse("the output exists", "choose another output or pass --force to replace it");
        }
        if target.exists() && !target.join("graph.json").exists() {
            let cure = "choose another output: only a dataset is ever replaced";
            return refuse("the output exists and is not a dataset", cure);
        }
        if target.file_name().is_none() {
            return refuse("not a directory name", "name the output directory");
        }
        let partial = Self::partial(&target);
        remove_stale(&partial);
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(|e| Error::io(&partial, e))?;
        }
        fs::create_dir_all(&partial).map_err(|e| Error::io(&partial, e))?;
        Ok(Self { target, partial, replace, arrays: BTreeMap::new(), unsynced: Unsynced::default(), finished: false })
    }

    /// The unfinished dataset of `target` in this process, for a Ctrl-C handler to remove.
    pub fn partial(target: &Path) -> PathBuf {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        target.with_file_name(format!(".{name}.partial-{}", std::process::id()))
    }

    /// The path of the old dataset while it is being replaced.
    fn old(target: &Path) -> PathBuf {
        target.with_file_name(format!(".{}.old", target.file_name().unwrap_or_default().to_string_lossy()))
    }

    /// The directory of the unfinished dataset, which an ingest may use for spill files.
    pub fn dir(&self) -> &Path {
        &self.partial
    }

    /// Opens the stream of one array; its description at the end goes to [`DatasetWriter::add`].
    pub fn stream<T: Element>(&self, name: &str) -> Result<NpyWriter<T>> {
        NpyWriter::new(self.partial.join(format!("{name}.npy")), Some(Arc::clone(&self.unsynced)))
    }

    /// Adds the array `name`, written by a finished stream.
    pub fn add(&mut self, name: &str, meta: ArrayMeta) {
        self.arrays.insert(name.to_string(), meta);
    }

    /// Writes a whole array; `dim` gives a matrix its row length.
    pub fn array<T: Element>(&mut self, name: &str, values: &[T], dim: Option<usize>) -> Result<()> {
        let mut stream = self.stream(name)?;
        stream.write(values)?;
        self.add(name, stream.finish(dim)?);
        Ok(())
    }

    /// Writes `graph.json`, and renames the directory to its target.
    ///
    /// # Errors
    ///
    /// Arrays that [`Dataset::open`](crate::Dataset::open) would refuse, and errors of the disk.
    pub fn finish(
        mut self,
        name: &str,
        num_classes: usize,
        provenance: BTreeMap<String, serde_json::Value>,
    ) -> Result<PathBuf> {
        let count = |array: &str| self.arrays.get(array).map_or(0, |a| a.shape[0]);
        let meta = Meta {
            format: DATASET_FORMAT.into(),
            version: DATASET_VERSION,
            name: name.into(),
            num_nodes: count("indptr").saturating_sub(1),
            num_edges: count("indices"),
            num_classes,
            arrays: self.arrays.clone(),
            provenance,
        };
        crate::meta::check_shapes(&self.target, &meta)?;
        let unsynced = std::mem::take(&mut *self.unsynced.lock().unwrap_or_else(PoisonError::into_inner));
        let summary = |file: &str| unsynced.iter().rev().find(|u| u.0 == self.partial.join(file)).map(|u| u.2);
        check_written(&self.partial, &meta, summary).map_err(|e| e.at(&self.partial, &self.target))?;
        let json = self.partial.join("graph.json");
        let text = serde_json::to_string_pretty(&meta).expect("a Meta is valid JSON") + "\n";
        if text.len() as u64 > MAX_DESCRIPTION {
            let what = format!("a description of {} bytes, at most {MAX_DESCRIPTION} are read", text.len());
            return Err(Error::invalid(&self.target, Position::File, what, "give classes shorter names"));
        }
        fs::write(&json, text).map_err(|e| Error::io(&json, e))?;
        // Everything that the rename makes visible is synced before it: all arrays in parallel, then the directory.
        unsynced.par_iter().try_for_each(|(path, file, _)| file.sync_all().map_err(|e| Error::io(path, e)))?;
        File::open(&json).and_then(|f| f.sync_all()).map_err(|e| Error::io(&json, e))?;
        sync_dir(&self.partial)?;
        let old = Self::old(&self.target);
        let replaced = self.replace && self.target.exists();
        if replaced {
            fs::rename(&self.target, &old).map_err(|e| Error::io(&self.target, e))?;
        }
        if let Err(e) = fs::rename(&self.partial, &self.target) {
            if replaced {
                // If renaming the old dataset back fails too, the next writer does it.
                let _ = fs::rename(&old, &self.target);
            }
            return Err(Error::io(&self.target, e));
        }
        self.finished = true;
        // The new name is synced before the old dataset is removed.
        sync_dir(parent(&self.target))?;
        if replaced {
            // An old dataset that cannot be removed now is removed by the next writer.
            let _ = fs::remove_dir_all(&old);
        }
        Ok(self.target.clone())
    }
}

/// Recovers from a process killed while it replaced a dataset: renames the old one back if there is no new one.
fn restore(target: &Path, old: &Path) {
    if old.exists() {
        // A failure here occurs again, with a message, when the target is written.
        let _ = if target.exists() { fs::remove_dir_all(old) } else { fs::rename(old, target) };
    }
}

/// Removes unfinished datasets of killed processes beside `partial`, where the system has `/proc`.
fn remove_stale(partial: &Path) {
    let name = partial.file_name().unwrap_or_default().to_string_lossy();
    let Some((stem, _)) = name.rsplit_once('-').filter(|_| Path::new("/proc/self").exists()) else { return };
    for entry in fs::read_dir(parent(partial)).into_iter().flatten().flatten() {
        let other = entry.file_name();
        let pid = other.to_string_lossy().strip_prefix(stem).and_then(|p| p.strip_prefix('-')?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // A directory that cannot be removed does no harm: its name marks it as partial.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The directory of `path`.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Drop for DatasetWriter {
    fn drop(&mut self) {
        if !self.finished {
            // A directory that cannot be removed does no harm: its name marks it as partial.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}
