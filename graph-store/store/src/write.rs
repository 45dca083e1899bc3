//! Writes a dataset to a temporary directory, which is renamed to its target when complete.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use morphgl_platform::ReplacementDir;
use rayon::prelude::*;

use crate::meta::MAX_DESCRIPTION;
use crate::npy_writer::Unsynced;
use crate::written::check_written;
use crate::{ArrayMeta, DATASET_FORMAT, Element, Error, Meta, NpyWriter, Position, Result, Types};

/// A dataset directory being written. Dropped unfinished, it is removed.
#[derive(Debug)]
pub struct DatasetWriter {
    target: PathBuf,
    replacement: ReplacementDir,
    replace: bool,
    arrays: BTreeMap<String, ArrayMeta>,
    types: Option<Types>,
    /// Arrays that are not synced yet.
    unsynced: Unsynced,
}

impl DatasetWriter {
    /// Starts a dataset for `target`. With `replace`, an existing dataset is replaced when the new one is finished; of a
    /// symbolic link, the dataset that it names.
    ///
    /// # Errors
    ///
    /// `target` exists and `replace` is false, or is not a dataset; the directory cannot be created.
    pub fn create(target: impl AsRef<Path>, replace: bool) -> Result<Self> {
        let target = target.as_ref().to_path_buf();
        let refuse = |what: &str, cure: &str| Err(Error::invalid(&target, Position::File, what, cure));
        if target.file_name().is_none() {
            return refuse("not a directory name", "name the output directory");
        }
        ReplacementDir::restore(&target);
        if target.exists() && !replace {
            return refuse("the output exists", "choose another output or pass --force to replace it");
        }
        if target.exists() && !target.join("graph.json").exists() {
            let cure = "choose another output: only a dataset is ever replaced";
            return refuse("the output exists and is not a dataset", cure);
        }
        let replacement = ReplacementDir::new(&target).map_err(|e| Error::io(&target, e))?;
        let (arrays, types, unsynced) = (BTreeMap::new(), None, Unsynced::default());
        Ok(Self { target, replacement, replace, arrays, types, unsynced })
    }

    /// The directory of the unfinished dataset, which an ingest may use for spill files.
    pub fn dir(&self) -> &Path {
        self.replacement.path()
    }

    /// Opens the stream of one array; its description at the end goes to [`DatasetWriter::add`].
    pub fn stream<T: Element>(&self, name: &str) -> Result<NpyWriter<T>> {
        NpyWriter::new(self.dir().join(format!("{name}.npy")), Some(Arc::clone(&self.unsynced)))
    }

    /// Adds the array `name`, written by a finished stream.
    pub fn add(&mut self, name: &str, meta: ArrayMeta) {
        self.arrays.insert(name.to_string(), meta);
    }

    /// The description of an array that was added.
    pub fn array_meta(&self, name: &str) -> Option<&ArrayMeta> {
        self.arrays.get(name)
    }

    /// Describes an array that was added under other names, which share its file. Nothing happens where there is no such array.
    pub fn rename(&mut self, name: &str, to: impl IntoIterator<Item = String>) {
        if let Some(meta) = self.arrays.remove(name) {
            self.arrays.extend(to.into_iter().map(|name| (name, meta.clone())));
        }
    }

    /// Writes a whole array; `dim` gives a matrix its row length.
    pub fn array<T: Element>(&mut self, name: &str, values: &[T], dim: Option<usize>) -> Result<()> {
        let mut stream = self.stream(name)?;
        stream.write(values)?;
        self.add(name, stream.finish(dim)?);
        Ok(())
    }

    /// Makes the dataset one of a typed graph; the array `edge_types` has the number of each edge's type.
    pub fn set_types(&mut self, types: Types) {
        self.types = Some(types);
    }

    /// The types of the graph, where it is typed.
    pub fn types(&self) -> Option<&Types> {
        self.types.as_ref()
    }

    /// Takes back an array that was added, to write it anew under its name: its file is renamed, and removed by the caller. `None`
    /// where there is no such array.
    ///
    /// # Errors
    ///
    /// The file cannot be renamed.
    pub fn take_back(&mut self, name: &str) -> Result<Option<PathBuf>> {
        let Some(meta) = self.arrays.remove(name) else { return Ok(None) };
        let (path, renamed) = (self.dir().join(&meta.file), self.dir().join(format!("{name}.replaced.npy")));
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner).retain(|(file, ..)| *file != path);
        std::fs::rename(&path, &renamed).map_err(|e| Error::io(&path, e))?;
        Ok(Some(renamed))
    }

    /// Writes `graph.json`, syncs all files, and puts the directory in its place; an old dataset is removed after that.
    ///
    /// # Errors
    ///
    /// Arrays that [`Dataset::open`](crate::Dataset::open) would refuse, and errors of the disk.
    pub fn finish(
        self,
        name: &str,
        num_classes: usize,
        provenance: BTreeMap<String, serde_json::Value>,
    ) -> Result<PathBuf> {
        let count = |array: &str| self.arrays.get(array).map_or(0, |a| a.shape[0]);
        let meta = Meta {
            format: DATASET_FORMAT.into(),
            version: Meta::version_of(self.types.as_ref(), &self.arrays),
            name: name.into(),
            num_nodes: count("indptr").saturating_sub(1),
            num_edges: count("indices"),
            num_classes,
            arrays: self.arrays.clone(),
            types: self.types.clone(),
            provenance,
        };
        crate::meta::check_shapes(&self.target, &meta)?;
        let unsynced = std::mem::take(&mut *self.unsynced.lock().unwrap_or_else(PoisonError::into_inner));
        let summary = |file: &str| unsynced.iter().rev().find(|u| u.0 == self.dir().join(file)).map(|u| u.2);
        check_written(self.dir(), &meta, summary).map_err(|e| e.at(self.dir(), &self.target))?;
        let json = self.dir().join("graph.json");
        let text = serde_json::to_string_pretty(&meta).expect("a Meta is valid JSON") + "\n";
        if text.len() as u64 > MAX_DESCRIPTION {
            let what = format!("a description of {} bytes, at most {MAX_DESCRIPTION} are read", text.len());
            return Err(Error::invalid(&self.target, Position::File, what, "give classes shorter names"));
        }
        let mut file = File::create_new(&json).map_err(|e| Error::io(&json, e))?;
        file.write_all(text.as_bytes()).map_err(|e| Error::io(&json, e))?;
        // Everything that the rename makes visible is synced before it.
        unsynced.par_iter().try_for_each(|(path, file, _)| file.sync_all().map_err(|e| Error::io(path, e)))?;
        file.sync_all().map_err(|e| Error::io(&json, e))?;
        self.replacement.finish(self.replace).map_err(|e| Error::io(&self.target, e))?;
        Ok(self.target)
    }
}
