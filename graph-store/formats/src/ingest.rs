//! The pipeline of every import: edges, features, labels and splits, checked, into one dataset.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{ArrayMeta, DatasetWriter, Dtype, Error, Load, Position, Result, read_npy};
use serde_json::Value;

use crate::{Options, Progress, random};
use nodes::NodeTable;

mod edges;
pub(crate) mod features;
pub(crate) mod nodes;

pub use edges::EdgeSink;
pub use features::FeatureSink;

/// An import in progress. Dropping it unfinished leaves nothing on disk.
pub struct Ingest<'a> {
    source: PathBuf,
    pub(crate) writer: DatasetWriter,
    options: &'a Options,
    progress: &'a dyn Progress,
    provenance: BTreeMap<String, Value>,
    /// Known when the edges are finished.
    pub(crate) num_nodes: Option<u64>,
    /// Lower bound of the number of nodes, from the node files.
    pub(crate) least_nodes: u64,
    /// The node files' content, once they are read.
    pub(crate) nodes: Option<Vec<NodeTable>>,
    /// Arrays with one row a node, and how many rows they have: compared with the number of nodes at the end.
    rows: Vec<(&'static str, PathBuf, u64)>,
    /// Highest node of a split, by the file it came from.
    splits: Option<(PathBuf, Option<u32>)>,
    num_classes: Option<usize>,
    notes: Vec<String>,
}

impl<'a> Ingest<'a> {
    /// Starts the import of `source` into a dataset at `target`.
    ///
    /// # Errors
    ///
    /// Options that contradict themselves; a source that is missing; a target that exists or cannot be made.
    pub fn new(source: &Path, target: &Path, options: &'a Options, progress: &'a dyn Progress) -> Result<Self> {
        options.check()?;
        let mut ingest = Self {
            source: source.to_path_buf(),
            writer: DatasetWriter::create(target, options.replace)?,
            options,
            progress,
            provenance: BTreeMap::new(),
            num_nodes: None,
            least_nodes: 0,
            nodes: None,
            rows: Vec::new(),
            splits: None,
            num_classes: None,
            notes: Vec::new(),
        };
        ingest.provenance("source", source.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned()));
        for (name, set) in options.changes() {
            if set {
                ingest.provenance(name, true);
            }
        }
        Ok(ingest)
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
    ///
    /// # Errors
    ///
    /// More nodes than ids of 32 bits allow.
    pub fn edges<'s>(&'s mut self, source: &Path, num_nodes: Option<u64>, weighted: bool) -> Result<EdgeSink<'s, 'a>> {
        EdgeSink::new(source, self, num_nodes, weighted)
    }

    /// Opens the stream of feature rows of `dim` values. `stored` is their type in `source`, kept unless the options
    /// name another.
    ///
    /// # Errors
    ///
    /// No columns; a disk that refuses.
    pub fn features<'s>(&'s mut self, source: &Path, dim: usize, stored: Dtype) -> Result<FeatureSink<'s, 'a>> {
        self.refuse_second("features", source)?;
        FeatureSink::new(source, self, dim, stored)
    }

    pub(crate) fn add_features(&mut self, source: &Path, num_rows: u64, meta: ArrayMeta) {
        self.writer.add("features", meta);
        self.rows.push(("features", source.to_path_buf(), num_rows));
    }

    /// Refuses an array that another file has given already.
    fn refuse_second(&self, array: &str, source: &Path) -> Result<()> {
        let Some((_, first, _)) = self.rows.iter().find(|(name, ..)| *name == array) else { return Ok(()) };
        let what = format!("{array} are given by {} already", first.display());
        Err(Error::invalid(source, Position::File, what, "leave out one of the two"))
    }

    /// Takes the class of each node, -1 for none; the number of classes is the highest plus one when `None`.
    ///
    /// # Errors
    ///
    /// A label outside -1 and the classes; a disk that refuses.
    pub fn labels(&mut self, source: &Path, labels: &[i32], num_classes: Option<usize>) -> Result<()> {
        self.refuse_second("labels", source)?;
        let highest = labels.iter().max().map_or(0, |&l| i64::from(l) + 1) as usize;
        let num_classes = num_classes.unwrap_or(highest);
        if let Some(i) = labels.iter().position(|&l| l < -1 || i64::from(l) >= num_classes as i64) {
            let what = format!("the label of node {i} is {}, outside -1 (none) and 0..{num_classes}", labels[i]);
            return Err(Error::invalid(source, Position::Element(i as u64), what, "correct the labels"));
        }
        let mut known = vec![false; num_classes];
        labels.iter().filter(|l| **l >= 0).for_each(|&l| known[l as usize] = true);
        let without: Vec<String> = (0..num_classes).filter(|&c| !known[c]).map(|c| c.to_string()).collect();
        if known.first() == Some(&false) && without.len() < num_classes {
            self.note("no node is of class 0; if labels count from 1, take 1 off them");
        } else if !without.is_empty() && without.len() < num_classes {
            let some = without.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
            let more = if without.len() > 5 { ", …" } else { "" };
            self.note(format!("{} of {num_classes} classes have no node: {some}{more}", without.len()));
        }
        self.writer.array("labels", labels, None)?;
        self.rows.push(("labels", source.to_path_buf(), labels.len() as u64));
        self.num_classes = Some(num_classes);
        Ok(())
    }

    /// Takes the source's own splits (ignored when the options ask for a random one).
    ///
    /// # Errors
    ///
    /// A disk that refuses; nodes that do not exist are found by [`Ingest::finish`].
    pub fn splits(&mut self, source: &Path, train: &[u32], valid: &[u32], test: &[u32]) -> Result<()> {
        if self.options.split.is_some() {
            self.note("the source's own split was left out for a random one (--split)");
            return Ok(());
        }
        if let Some((first, _)) = &self.splits {
            let what = format!("splits are given by {} already", first.display());
            return Err(Error::invalid(source, Position::File, what, "leave out one of the two"));
        }
        for (name, nodes) in [("train", train), ("valid", valid), ("test", test)] {
            self.writer.array(name, nodes, None)?;
        }
        let highest = [train, valid, test].into_iter().flatten().max().copied();
        self.splits = Some((source.to_path_buf(), highest));
        Ok(())
    }

    /// Takes the ids the nodes had in the source.
    ///
    /// # Errors
    ///
    /// A disk that refuses.
    pub fn node_ids(&mut self, source: &Path, ids: &[u64]) -> Result<()> {
        self.writer.array("node_ids", ids, None)?;
        self.rows.push(("node ids", source.to_path_buf(), ids.len() as u64));
        Ok(())
    }

    pub(crate) fn add_node_ids(&mut self, source: &Path, num_rows: u64, meta: ArrayMeta) {
        self.writer.add("node_ids", meta);
        self.rows.push(("node ids", source.to_path_buf(), num_rows));
    }

    /// Notes where the data came from, for `graph.json`.
    pub fn provenance(&mut self, key: &str, value: impl Into<Value>) {
        self.provenance.insert(key.into(), value.into());
    }

    /// Adds a line to the provenance's notes: what was interpreted, changed or left out.
    pub fn note(&mut self, what: impl Into<String>) {
        self.notes.push(what.into());
    }

    /// Checks that all arrays fit together, adds random features, labels and splits, and renames the dataset to its target.
    ///
    /// # Errors
    ///
    /// Features, labels or ids for another number of nodes; a split with a node that does not exist.
    ///
    /// # Panics
    ///
    /// When the edges were not given.
    pub fn finish(mut self) -> Result<PathBuf> {
        let num_nodes = self.num_nodes.expect("an importer gives the edges before it finishes");
        self.attach_nodes(num_nodes)?;
        for (name, path, rows) in &self.rows {
            if *rows != num_nodes {
                let what = format!("{name} for {rows} nodes, but the graph has {num_nodes}");
                return Err(Error::invalid(path, Position::File, what, "give every node its row"));
            }
        }
        if let Some((path, Some(highest))) = &self.splits
            && u64::from(*highest) >= num_nodes
        {
            let what = format!("the split has node {highest}, but there are {num_nodes} nodes");
            return Err(Error::invalid(path, Position::File, what, "correct the split or pass a random one"));
        }
        if self.splits.is_some() {
            self.look_at_splits(num_nodes)?;
        }
        for (option, array, given) in [
            ("--random-labels", "labels", self.options.random_labels.is_some()),
            ("--random-features", "features", self.options.random_features.is_some()),
        ] {
            if given && self.has(array) {
                self.note(format!("the graph has {array} of its own: {option} was left out"));
            }
        }
        if let (Some(wanted), false) = (&self.options.random_labels, self.has("labels")) {
            let labels: Vec<i32> = (0..num_nodes).map(|v| random::class(wanted, v)).collect();
            let source = self.source.clone();
            self.labels(&source, &labels, Some(wanted.num_classes))?;
            self.provenance("random_labels_seed", wanted.seed);
        }
        if let Some(shares) = self.options.split {
            let nodes = self.labelled(num_nodes)?;
            for (name, nodes) in ["train", "valid", "test"].into_iter().zip(random::split(nodes, &shares)) {
                self.writer.array(name, &nodes, None)?;
            }
            self.provenance("split_seed", shares.seed);
        }
        if let (Some(wanted), false) = (&self.options.random_features, self.has("features")) {
            let meta = features::random(&self, num_nodes, wanted)?;
            self.writer.add("features", meta);
            self.provenance("random_features_seed", wanted.seed);
        }
        if !self.notes.is_empty() {
            let notes = std::mem::take(&mut self.notes);
            self.provenance("notes", notes);
        }
        let stem = self.source.file_stem().map(|n| n.to_string_lossy().into_owned());
        let name = self.options.name.clone().or(stem).unwrap_or_else(|| "graph".into());
        self.writer.finish(&name, self.num_classes.unwrap_or(0), self.provenance)
    }

    /// Notes what is odd about the source's splits: nodes in several of them, training nodes without a label.
    fn look_at_splits(&mut self, num_nodes: u64) -> Result<()> {
        let mut seen = vec![false; num_nodes as usize];
        let mut twice = 0;
        for name in ["train", "valid", "test"] {
            let (nodes, _) = read_npy::<u32>(&self.dir().join(format!("{name}.npy")), Load::Mmap)?;
            twice += nodes.iter().filter(|&&v| std::mem::replace(&mut seen[v as usize], true)).count();
        }
        if twice > 0 {
            self.note(format!("{twice} nodes are in more than one split: their accuracy says nothing of unseen nodes"));
        }
        if self.has("labels") {
            let (labels, _) = read_npy::<i32>(&self.dir().join("labels.npy"), Load::Mmap)?;
            let (train, _) = read_npy::<u32>(&self.dir().join("train.npy"), Load::Mmap)?;
            let without = train.iter().filter(|&&v| labels[v as usize] < 0).count();
            if without > 0 {
                self.note(format!("{without} of {} training nodes have no label, and teach nothing", train.len()));
            }
        }
        Ok(())
    }

    fn has(&self, array: &str) -> bool {
        self.rows.iter().any(|(name, ..)| *name == array)
    }

    /// Nodes with a label; all of them where there are no labels.
    fn labelled(&self, num_nodes: u64) -> Result<Vec<u32>> {
        if !self.has("labels") {
            return Ok((0..num_nodes as u32).collect());
        }
        let (labels, _) = read_npy::<i32>(&self.dir().join("labels.npy"), Load::Mmap)?;
        Ok((0..).zip(labels.iter()).filter(|&(_, &l)| l >= 0).map(|(v, _)| v).collect())
    }
}

impl fmt::Debug for Ingest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ingest({} in {})", self.source.display(), self.dir().display())
    }
}
