//! Writing a dataset: beside its place first, renamed into it when whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use rayon::prelude::*;

use crate::npy_writer::{Unsynced, sync_dir};
use crate::{ArrayMeta, DATASET_FORMAT, DATASET_VERSION, Element, Error, Meta, NpyWriter, Position, Result};

/// A dataset directory in the making. Dropping it unfinished removes every trace.
#[derive(Debug)]
pub struct DatasetWriter {
    target: PathBuf,
    partial: PathBuf,
    replace: bool,
    arrays: BTreeMap<String, ArrayMeta>,
    /// Arrays the disk may not have yet.
    unsynced: Unsynced,
    finished: bool,
}

impl DatasetWriter {
    /// Starts a dataset for `target`. With `replace`, an existing dataset there is replaced at the end.
    ///
    /// # Errors
    ///
    /// `target` exists and `replace` is false, or is something other than a dataset; the directory cannot be made.
    pub fn create(target: impl AsRef<Path>, replace: bool) -> Result<Self> {
        let target = target.as_ref().to_path_buf();
        restore(&target, &Self::old(&target));
        if target.exists() {
            if !replace {
                let cure = "choose another output or pass --force to replace it";
                return Err(Error::invalid(&target, Position::File, "the output exists", cure));
            }
            if !target.join("graph.json").exists() {
                let cure = "choose another output: only a dataset is ever replaced";
                return Err(Error::invalid(&target, Position::File, "the output exists and is not a dataset", cure));
            }
        }
        if target.file_name().is_none() {
            return Err(Error::invalid(&target, Position::File, "not a directory name", "name the output directory"));
        }
        let partial = Self::partial(&target);
        remove_stale(&partial);
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(|e| Error::io(&partial, e))?;
        }
        fs::create_dir_all(&partial).map_err(|e| Error::io(&partial, e))?;
        Ok(Self { target, partial, replace, arrays: BTreeMap::new(), unsynced: Unsynced::default(), finished: false })
    }

    /// Where this process keeps the unfinished dataset of `target`; for a handler of Ctrl-C to remove.
    pub fn partial(target: &Path) -> PathBuf {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        target.with_file_name(format!(".{name}.partial-{}", std::process::id()))
    }

    /// Where a dataset that is being replaced waits for its successor.
    fn old(target: &Path) -> PathBuf {
        target.with_file_name(format!(".{}.old", target.file_name().unwrap_or_default().to_string_lossy()))
    }

    /// The directory the files lie in until the dataset is finished: also the room for an ingest's own spill files.
    pub fn dir(&self) -> &Path {
        &self.partial
    }

    /// Opens the stream of one array; hand what it returns at its end to [`DatasetWriter::add`].
    pub fn stream<T: Element>(&self, name: &str) -> Result<NpyWriter<T>> {
        NpyWriter::create_unsynced(self.partial.join(format!("{name}.npy")), &self.unsynced)
    }

    /// Takes a finished stream's description as the array `name`.
    pub fn add(&mut self, name: &str, meta: ArrayMeta) {
        self.arrays.insert(name.to_string(), meta);
    }

    /// Writes a whole array; `dim` gives a matrix its row length.
    pub fn array<T: Element>(&mut self, name: &str, values: &[T], dim: Option<usize>) -> Result<()> {
        let mut stream = self.stream(name)?;
        stream.write(values)?;
        let meta = stream.finish(dim)?;
        self.add(name, meta);
        Ok(())
    }

    /// Writes `graph.json`, and moves the directory to its place in one rename.
    ///
    /// # Errors
    ///
    /// Arrays that do not fit one another, and whatever the disk refuses.
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
        let json = self.partial.join("graph.json");
        let text = serde_json::to_string_pretty(&meta).expect("a Meta holds only what JSON can say") + "\n";
        fs::write(&json, text).map_err(|e| Error::io(&json, e))?;
        // What a rename makes visible has to be on the disk before it: all arrays at the same time, then their names.
        let unsynced = std::mem::take(&mut *self.unsynced.lock().unwrap_or_else(PoisonError::into_inner));
        unsynced.par_iter().try_for_each(|(path, file)| file.sync_all().map_err(|e| Error::io(path, e)))?;
        File::open(&json).and_then(|f| f.sync_all()).map_err(|e| Error::io(&json, e))?;
        sync_dir(&self.partial)?;
        let old = Self::old(&self.target);
        let replaced = self.replace && self.target.exists();
        if replaced {
            fs::rename(&self.target, &old).map_err(|e| Error::io(&self.target, e))?;
        }
        if let Err(e) = fs::rename(&self.partial, &self.target) {
            if replaced {
                // The old dataset is renamed back; should that fail too, the next writer does it.
                let _ = fs::rename(&old, &self.target);
            }
            return Err(Error::io(&self.target, e));
        }
        self.finished = true;
        // The new name is synced before the old dataset is removed.
        sync_dir(self.target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
        if replaced {
            // The new dataset is in place; an old one that cannot be removed now is removed by the next writer.
            let _ = fs::remove_dir_all(&old);
        }
        Ok(self.target.clone())
    }
}

/// Recovers from a process killed while it replaced a dataset: the old one is renamed back where there is no new one.
fn restore(target: &Path, old: &Path) {
    if old.exists() {
        // Whatever fails here fails again, with a message, when the target is written.
        let _ = if target.exists() { fs::remove_dir_all(old) } else { fs::rename(old, target) };
    }
}

/// Removes what killed processes left beside `partial`, where the system lists its processes.
fn remove_stale(partial: &Path) {
    let (Some(parent), Some(name)) = (partial.parent(), partial.file_name().map(|n| n.to_string_lossy())) else {
        return;
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let Some((stem, _)) = name.rsplit_once('-') else { return };
    if !Path::new("/proc/self").exists() {
        return;
    }
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let other = entry.file_name();
        let pid = other.to_string_lossy().strip_prefix(stem).and_then(|p| p.strip_prefix('-')?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // What cannot be removed is in nobody's way: its name says that it is partial.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for DatasetWriter {
    fn drop(&mut self) {
        if !self.finished {
            // Nothing better can be done about a directory that cannot be removed than to leave it: its name says it is partial.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}
