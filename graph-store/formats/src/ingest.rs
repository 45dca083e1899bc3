//! The pipeline of every import: edges, features, labels and splits, checked, into one dataset.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{
    Array, ArrayMeta, DatasetWriter, Dtype, Element, Error, Load, Position, Result, TaskRows, read_npy,
};
use morphgl_ingest::SplitType;
use serde_json::Value;

use crate::files::{file_name, invalid, stem};
use crate::tabular::lists;
use crate::{Options, Progress, random};
use features::FEATURES;
use labelled_edges::LabelledEdges;
use links::PairIds;
use nodes::{FeatureColumns, NodeTable};
use types::TwoTypes;

mod edges;
pub(crate) mod feature_rows;
pub(crate) mod features;
mod id_columns;
mod labelled_edges;
mod labelled_rows;
mod leaks;
pub(crate) mod links;
pub(crate) mod nodes;
mod size;
mod standardise;
pub(crate) mod types;
pub(crate) mod unlisted;

pub use edges::EdgeSink;
pub use features::FeatureSink;
pub use nodes::is_id_column;

/// Names of the splits, as arrays of the dataset.
const SPLITS: [&str; 3] = ["train", "valid", "test"];

/// The remark about training examples, nodes or rows as `of` says, that repeat: `num_repeats` of `num_train` listed.
pub fn oversampling(num_repeats: usize, num_train: usize, of: &str) -> String {
    format!("{num_repeats} of {num_train} training {of}s are repeats: a {of} is trained on as often as it is listed")
}

/// More classes than labelled nodes are plausible up to this number: a small sample of a set.
const PLAUSIBLE_CLASSES: usize = 1000;

/// An import in progress. Dropping it unfinished leaves nothing on disk.
pub struct Ingest<'a> {
    source: PathBuf,
    pub(crate) writer: DatasetWriter,
    options: &'a Options,
    progress: &'a dyn Progress,
    provenance: BTreeMap<String, Value>,
    /// `None` until the edges are finished.
    pub(crate) num_nodes: Option<u64>,
    /// Lower bound of the number of nodes, from the node files.
    pub(crate) min_nodes: u64,
    /// Number of edges that the source's header announces.
    pub(crate) announced_edges: Option<u64>,
    /// Number of edges that were left out since the node table does not list one of their ends.
    left_out_edges: u64,
    /// Options that import the nodes of the node table alone, for messages; `None` for formats whose nodes are rows.
    pub(crate) listed_alone: Option<String>,
    /// How files of pairs name nodes.
    pub(crate) pair_ids: PairIds,
    /// Of sources and targets that are two kinds of nodes.
    pub(crate) two_types: Option<TwoTypes>,
    /// Of a typed graph, the edge types that pairs are drawn of.
    pub(crate) split_types: Vec<SplitType>,
    /// Arrays of pairs that are written.
    links: Vec<&'static str>,
    /// Labelled edges that are not drawn yet.
    labelled_edges: Option<LabelledEdges>,
    /// Content of the node files; `None` until they are read.
    pub(crate) nodes: Option<Vec<NodeTable>>,
    /// Arrays with one row per node: name, file and number of rows, which is compared with the number of nodes at the
    /// end.
    rows: Vec<(&'static str, PathBuf, u64)>,
    /// Highest node of a split, by the file it came from.
    splits: Option<(PathBuf, Option<u32>)>,
    num_classes: Option<usize>,
    /// Number of rows of the task, which labels, targets and splits are of then.
    task_rows: Option<u64>,
    /// Files that were read besides the source.
    pub(crate) inputs: Vec<PathBuf>,
    has_features_by_type: bool,
    /// Whether edges have features, whose rows are those of the edges in the order in which they are pushed.
    pub(crate) numbers_edges: bool,
    /// Number of edges that were pushed.
    pushed_edges: u64,
    /// Stored type of the features, once they are written, and their columns, where they are those of a table.
    feature_dtype: Option<Dtype>,
    feature_columns: Option<FeatureColumns>,
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
            min_nodes: 0,
            announced_edges: None,
            left_out_edges: 0,
            listed_alone: None,
            pair_ids: PairIds::default(),
            two_types: None,
            split_types: Vec::new(),
            links: Vec::new(),
            labelled_edges: None,
            nodes: None,
            rows: Vec::new(),
            splits: None,
            num_classes: None,
            task_rows: None,
            inputs: Vec::new(),
            has_features_by_type: false,
            numbers_edges: false,
            pushed_edges: 0,
            feature_dtype: None,
            feature_columns: None,
            notes: Vec::new(),
        };
        ingest.provenance("source", file_name(source));
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

    /// The listener to the import's progress.
    pub fn progress(&self) -> &'a dyn Progress {
        self.progress
    }

    /// Directory for temporary files of an importer, which removes them before the end.
    pub fn dir(&self) -> &Path {
        self.writer.dir()
    }

    /// Adds an array with a row for each node, which was written already.
    pub(crate) fn add_rows(&mut self, name: &'static str, source: &Path, num_rows: u64, meta: ArrayMeta) {
        self.writer.add(name, meta);
        self.rows.push((name, source.to_path_buf(), num_rows));
    }

    /// Writes and adds a vector with an element for each node.
    fn write_rows<T: Element>(&mut self, name: &'static str, source: &Path, values: &[T]) -> Result<()> {
        let mut stream = self.writer.stream(name)?;
        stream.write(values)?;
        let meta = stream.finish(None)?;
        self.add_rows(name, source, values.len() as u64, meta);
        Ok(())
    }

    /// Refuses an array that another file contained already.
    fn refuse_second(&self, array: &str, source: &Path) -> Result<()> {
        let Some((_, first, _)) = self.rows.iter().find(|(name, ..)| *name == array) else { return Ok(()) };
        invalid(source, format!("{array} are given by {} already", first.display()), "leave out one of the two")
    }

    /// Takes rows of a task, node and time of each: labels, targets and splits that are given from here on are of these rows.
    ///
    /// # Errors
    ///
    /// An IO error.
    pub(crate) fn task(&mut self, nodes: &[u32], times: &[i64]) -> Result<()> {
        let [of_nodes, of_times] = TaskRows::ARRAYS;
        self.writer.array(of_nodes, nodes, None)?;
        self.writer.array(of_times, times, None)?;
        self.task_rows = Some(nodes.len() as u64);
        Ok(())
    }

    /// What labels, targets and splits are of, `node` or `row`, and the number of these.
    pub(crate) fn examples(&self) -> (&'static str, u64) {
        self.task_rows.map_or(("node", self.num_nodes.unwrap_or(0)), |rows| ("row", rows))
    }

    /// Takes the class of each node, or row of the task, -1 for none; the number of classes is the highest plus one when `None`.
    ///
    /// # Errors
    ///
    /// A label outside -1 and the classes; an IO error.
    pub fn labels(&mut self, source: &Path, labels: &[i32], num_classes: Option<usize>) -> Result<()> {
        self.refuse_second("labels", source)?;
        let highest = labels.iter().max().map_or(0, |&l| i64::from(l) + 1) as usize;
        let num_classes = num_classes.unwrap_or(highest);
        let outside = |&l: &i32| l < -1 || i64::from(l) >= num_classes as i64 || l == i32::MAX;
        if let Some(i) = labels.iter().position(outside) {
            let of = self.examples().0;
            let what = format!("the label of {of} {i} is {}, outside -1 (none) and 0..{num_classes}", labels[i]);
            let cure = format!("number the classes from 0, and write -1 for {of}s without a label");
            return Err(Error::invalid(source, Position::Element(i as u64), what, cure));
        }
        let labelled = labels.iter().filter(|&&l| l >= 0).count();
        if num_classes > labelled && num_classes > PLAUSIBLE_CLASSES {
            let cure =
                "number them without gaps, numpy.unique(y, return_inverse=True)[1], if they are ids or measurements";
            self.note(format!("{num_classes} classes for {labelled} labelled {}s: {cure}", self.examples().0));
        } else {
            self.note_empty_classes(labels, num_classes);
        }
        self.num_classes = Some(num_classes);
        self.write_rows("labels", source, labels)
    }

    /// Notes the classes without a node.
    fn note_empty_classes(&mut self, labels: &[i32], num_classes: usize) {
        let mut has_node = vec![false; num_classes];
        let labelled = labels.iter().filter(|l| **l >= 0).inspect(|l| has_node[**l as usize] = true).count();
        let empty: Vec<usize> = (0..num_classes).filter(|&c| !has_node[c]).collect();
        let (used, of) = (num_classes - empty.len(), self.examples().0);
        if used > 2 && 2 * used > labelled {
            let cure =
                format!("if they are names, dates or measurements of {of}s, take another column (--label-column)");
            self.note(format!("{used} classes for {labelled} labelled {of}s, fewer than two for each: {cure}"));
        }
        if has_node.first() == Some(&false) && empty.len() < num_classes {
            self.note(format!("no {of} is of class 0; if labels count from 1, take 1 off them"));
        } else if !empty.is_empty() && empty.len() < num_classes {
            let some = empty.iter().take(5).map(usize::to_string).collect::<Vec<_>>().join(", ");
            let more = if empty.len() > 5 { ", …" } else { "" };
            self.note(format!("{} of {num_classes} classes have no {of}: {some}{more}", empty.len()));
        }
    }

    /// Takes the source's own splits (ignored when the options name a random one).
    ///
    /// # Errors
    ///
    /// An IO error; [`Ingest::finish`] finds nodes that do not exist.
    pub fn splits(&mut self, source: &Path, train: &[u32], valid: &[u32], test: &[u32]) -> Result<()> {
        if self.options.split.is_some() {
            self.note("the source's own split was left out for a random one (--split)");
            return Ok(());
        }
        if let Some((first, _)) = &self.splits {
            let what = format!("splits are given by {} already", first.display());
            return invalid(source, what, "leave out one of the two");
        }
        let highest = [train, valid, test].into_iter().flatten().max().copied();
        self.splits = Some((source.to_path_buf(), highest));
        self.write_splits([train, valid, test])
    }

    fn write_splits(&mut self, splits: [&[u32]; 3]) -> Result<()> {
        SPLITS.into_iter().zip(splits).try_for_each(|(name, nodes)| self.writer.array(name, nodes, None))
    }

    /// Takes the ids the nodes had in the source.
    ///
    /// # Errors
    ///
    /// An IO error.
    pub fn node_ids(&mut self, source: &Path, ids: &[u64]) -> Result<()> {
        self.write_rows("node_ids", source, ids)
    }

    /// Adds a fact about the origin of the data to `graph.json`.
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
    /// When no edges were pushed.
    pub fn finish(mut self) -> Result<PathBuf> {
        let (options, num_nodes) =
            (self.options, self.num_nodes.expect("an importer gives the edges before it finishes"));
        self.attach_nodes(num_nodes)?;
        self.attach_links(num_nodes)?;
        self.draw_links()?;
        for (name, path, rows) in &self.rows {
            let is_of_rows = self.task_rows.is_some() && matches!(*name, "labels" | "targets");
            if *rows != num_nodes && !is_of_rows {
                let what = format!("{} for {rows} nodes, but the graph has {num_nodes}", name.replace('_', " "));
                return invalid(path, what, "give every node its row");
            }
        }
        if let Some((path, highest)) = self.splits.clone() {
            let (of, count) = self.examples();
            if let Some(highest) = highest.filter(|&highest| u64::from(highest) >= count) {
                let what = format!("the split has {of} {highest}, but there are {count} {of}s");
                return invalid(path, what, "correct the split or pass a random one");
            }
            self.check_splits(&path)?;
        }
        self.note_known_links()?;
        self.note_id_columns(num_nodes)?;
        self.note_leaks()?;
        for (option, array, given) in [
            ("--random-labels", "labels", options.random_labels.is_some()),
            ("--random-features", "features", options.random_features.is_some()),
        ] {
            if given && (self.has(array) || array == FEATURES && self.has_features_by_type) {
                self.note(format!("the graph has {array} of its own: {option} was left out"));
            }
        }
        let source = self.source.clone();
        if let (Some(random_labels), false) = (&options.random_labels, self.has("labels")) {
            let labels: Vec<i32> = (0..self.examples().1).map(|v| random::class(random_labels, v)).collect();
            self.labels(&source, &labels, Some(random_labels.num_classes))?;
            self.provenance("random_labels_seed", random_labels.seed);
        }
        if let Some(shares) = options.split {
            let splits = random::split(self.labelled()?, &shares);
            self.write_splits(splits.each_ref().map(Vec::as_slice))?;
            self.provenance("split_seed", shares.seed);
        }
        self.note_labels_of_splits()?;
        self.note_targets_of_splits()?;
        if let (Some(random_features), false) =
            (&options.random_features, self.has(FEATURES) || self.has_features_by_type)
        {
            features::random(&mut self, &source, num_nodes, random_features)?;
            self.provenance("random_features_seed", random_features.seed);
        }
        self.standardise()?;
        self.write_types(num_nodes)?;
        if let Some(columns) = self.feature_columns.take().filter(|columns| columns.are_named) {
            self.provenance("feature_names", columns.names);
        }
        if !self.notes.is_empty() {
            let notes = std::mem::take(&mut self.notes);
            self.provenance("notes", notes);
        }
        let name = options.name.clone().or_else(|| stem(&source)).unwrap_or_else(|| "graph".into());
        self.writer.finish(&name, self.num_classes.unwrap_or(0), self.provenance)
    }

    /// Refuses a validation or test node that repeats; notes training nodes that repeat, and how many nodes the source's splits have
    /// in common.
    fn check_splits(&mut self, source: &Path) -> Result<()> {
        let (of, count) = self.examples();
        let mut seen = vec![0u8; count as usize];
        let (mut repeated, mut oversampled, mut num_train) = (0, 0, 0);
        for (mark, name) in (1..).zip(SPLITS) {
            let nodes = self.array::<u32>(name)?;
            for &v in nodes.iter() {
                match std::mem::replace(&mut seen[v as usize], mark) {
                    0 => {}
                    before if before == mark && name == "train" => oversampled += 1,
                    before if before == mark => {
                        let what = format!("{of} {v} is twice in the split {name}; only training {of}s may repeat");
                        return invalid(source, what, "correct the split or pass a random one");
                    }
                    _ => repeated += 1,
                }
            }
            if name == "train" {
                num_train = nodes.len();
            }
        }
        if oversampled > 0 {
            self.note(oversampling(oversampled, num_train, of));
        }
        if repeated > 0 {
            let what = format!("{of}s are in more than one split: their accuracy says nothing of unseen {of}s");
            self.note(format!("{repeated} {what}"));
        }
        Ok(())
    }

    /// Notes the nodes of each split that have no label, and the classes that no training node has.
    fn note_labels_of_splits(&mut self) -> Result<()> {
        if !self.has("labels") || !self.has_splits() {
            return Ok(());
        }
        let (labels, of) = (self.array::<i32>("labels")?, self.examples().0);
        let mut classes = [const { BTreeSet::new() }; 3];
        for ((split, name), classes) in SPLITS.into_iter().zip(["training", "validation", "test"]).zip(&mut classes) {
            let nodes = self.array::<u32>(split)?;
            let unlabelled = nodes.iter().filter(|&&v| labels[v as usize] < 0).count();
            if unlabelled > 0 {
                let so = if split == "train" { "and teach nothing" } else { "and are not scored" };
                self.note(format!("{unlabelled} of {} {name} {of}s have no label, {so}", nodes.len()));
            }
            classes.extend(nodes.iter().map(|&v| labels[v as usize]).filter(|&label| label >= 0));
        }
        let [train, valid, test] = classes;
        let untrained: Vec<String> = (&valid | &test).difference(&train).map(i32::to_string).collect();
        if !untrained.is_empty() && !train.is_empty() {
            let names = self.provenance.get("class_names").and_then(Value::as_array);
            let name = |class: &String| names.and_then(|names| names.get(class.parse::<usize>().ok()?)?.as_str());
            let untrained: Vec<&str> = untrained.iter().map(|class| name(class).unwrap_or(class)).collect();
            let (count, classes) = (untrained.len(), lists::list(&untrained));
            let what = format!("classes without a training {of}, which are never predicted rightly");
            self.note(format!("{what}: {count} ({classes})"));
        }
        Ok(())
    }

    /// Whether there are splits, the source's or drawn.
    fn has_splits(&self) -> bool {
        self.splits.is_some() || self.options.split.is_some()
    }

    fn has(&self, array: &str) -> bool {
        self.rows.iter().any(|(name, ..)| *name == array)
    }

    /// An array that was written already.
    pub(crate) fn array<T: Element>(&self, name: &str) -> Result<Array<T>> {
        Ok(read_npy(&self.dir().join(format!("{name}.npy")), Load::Mmap)?.0)
    }

    /// Nodes, or rows of the task, with a label or a known target; all of them where there are neither labels nor targets.
    fn labelled(&self) -> Result<Vec<u32>> {
        let nodes = 0..self.examples().1 as u32;
        if !self.has("labels") && !self.has("targets") {
            return Ok(nodes.collect());
        }
        let labels = self.has("labels").then(|| self.array::<i32>("labels")).transpose()?;
        let is_known = self.has_known_targets()?;
        let has_label = |v: u32| labels.as_ref().is_some_and(|labels| labels[v as usize] >= 0);
        Ok(nodes.filter(|&v| has_label(v) || is_known.get(v as usize) == Some(&true)).collect())
    }
}

impl fmt::Debug for Ingest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ingest({} in {})", self.source.display(), self.dir().display())
    }
}
