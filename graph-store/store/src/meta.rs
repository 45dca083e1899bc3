//! `graph.json`: the description of a dataset's arrays.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use morphgl_platform::{HeldDir, ReplacementDir, bounded_text, excerpt};
use serde::{Deserialize, Serialize};

use crate::{Dtype, EdgeSplits, Error, ErrorKind, MAX_NODES, Position, Result, TaskRows, Types};

/// Maximum bytes of a file's name: that of most file systems.
const MAX_FILE_NAME: usize = 255;

/// Marks a `graph.json` as ours.
pub const DATASET_FORMAT: &str = "morphgl-dataset";
/// The newest version of the format this build reads. Version 2 has types or times, which readers of version 1 would not see, and
/// version 3 rows of a task, which labels, targets and splits then are of; a dataset without any is written as version 1.
pub const DATASET_VERSION: u32 = 3;

/// Maximum bytes of a `graph.json`: the names of millions of classes fit.
pub(crate) const MAX_DESCRIPTION: u64 = 256 << 20;

/// The content of `graph.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Always [`DATASET_FORMAT`].
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// The dataset's name.
    pub name: String,
    /// Number of nodes.
    pub num_nodes: u64,
    /// Number of directed edges.
    pub num_edges: u64,
    /// Number of classes, 0 without labels.
    pub num_classes: usize,
    /// The arrays by name: `indptr`, `indices`, `weights`, `features`, `labels`, `targets`, `train`, `valid`, `test`, `node_ids`,
    /// `node_names`, `node_name_ends`, `draw_keys`, those of [`EdgeSplits::ARRAYS`](crate::EdgeSplits::ARRAYS) and
    /// [`EdgeSplits::TARGET_ARRAYS`](crate::EdgeSplits::TARGET_ARRAYS), and `node_times`, `edge_times`, and of typed graphs
    /// `edge_types`, those of [`EdgeSplits::TYPE_ARRAYS`](crate::EdgeSplits::TYPE_ARRAYS), and `features.T`, rows of the nodes of type
    /// number T. With the arrays of [`TaskRows::ARRAYS`], `labels`, `targets`, `train`, `valid` and `test` are of rows of the task.
    pub arrays: BTreeMap<String, ArrayMeta>,
    /// Types of nodes and edges; absent in a graph without types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<Types>,
    /// Source and processing of the data, as recorded by the program that wrote it.
    #[serde(default)]
    pub provenance: BTreeMap<String, serde_json::Value>,
}

impl Meta {
    /// The version that a dataset of these types and arrays is written as.
    pub(crate) fn version_of(types: Option<&Types>, arrays: &BTreeMap<String, ArrayMeta>) -> u32 {
        let is_newer =
            types.is_some() || ["node_times", "edge_times", "edge_ids"].iter().any(|&name| arrays.contains_key(name));
        match () {
            () if arrays.contains_key(TaskRows::ARRAYS[0]) => DATASET_VERSION,
            () if is_newer => 2,
            () => 1,
        }
    }

    /// Number of examples that labels, targets and splits are of: rows of the task, or nodes.
    pub fn num_examples(&self) -> u64 {
        let rows = self.arrays.get(TaskRows::ARRAYS[0]).and_then(|array| array.shape.first());
        rows.copied().unwrap_or(self.num_nodes)
    }

    /// What an example is, and the number of examples.
    pub(crate) fn examples(&self) -> (&'static str, usize) {
        let of = if self.arrays.contains_key(TaskRows::ARRAYS[0]) { "row" } else { "node" };
        (of, usize::try_from(self.num_examples()).unwrap_or(usize::MAX))
    }

    /// Name of the array of features of the nodes of a type, by its number.
    pub fn features_of(node_type: usize) -> String {
        format!("features.{node_type}")
    }

    /// Name of the array with the features of an edge type; `None` for all edges of a graph without types.
    pub fn edge_features_of(edge_type: Option<usize>) -> String {
        edge_type.map_or("edge_features".to_string(), |number| format!("edge_features.{number}"))
    }

    /// Reads and checks the `graph.json` of the dataset at `path`.
    ///
    /// # Errors
    ///
    /// No dataset there, a newer version, or arrays of mismatched shapes.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self::open(path.as_ref())?.1)
    }

    /// Opens the directory of the dataset at `path`, and reads its description.
    pub(crate) fn open(path: &Path) -> Result<(HeldDir, Self)> {
        let dir = HeldDir::open(path).map_err(|e| unreadable(path, e))?;
        let meta = Self::of(&dir)?;
        Ok((dir, meta))
    }

    /// Reads the description in an open directory.
    pub(crate) fn of(dir: &HeldDir) -> Result<Self> {
        let text = dir.open_file("graph.json".as_ref()).and_then(|file| bounded_text(file, MAX_DESCRIPTION));
        Self::parse(dir.path(), &text.map_err(|e| unreadable(dir.path(), e))?)
    }

    /// The description that a `graph.json` has as its text; errors name the dataset at `path`.
    ///
    /// # Errors
    ///
    /// As of [`Meta::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self> {
        let file = path.join("graph.json");
        let broken = |e: serde_json::Error| {
            let what = format!("not a dataset description ({e})");
            Error::invalid(&file, Position::Line(e.line() as u64), what, "import the dataset again")
        };
        let value: serde_json::Value = serde_json::from_str(text).map_err(broken)?;
        // The version is checked before the rest: a newer file may have another structure.
        let version = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if value.get("format").and_then(|f| f.as_str()) == Some(DATASET_FORMAT) && version > u64::from(DATASET_VERSION)
        {
            let found = u32::try_from(version).unwrap_or(u32::MAX);
            return Err(Error { path: file, kind: ErrorKind::Newer { found, supported: DATASET_VERSION } });
        }
        let meta: Meta = serde_json::from_value(value).map_err(broken)?;
        if meta.format != DATASET_FORMAT || version == 0 {
            let what = format!("the format is {:?} version {version}", excerpt(&meta.format, 100));
            return Err(Error::invalid(&file, Position::File, what, "import the dataset again"));
        }
        // Names are quoted in messages.
        let names = meta.arrays.iter().flat_map(|(name, array)| [name, &array.file]);
        if let Some(name) = names.into_iter().find(|name| name.len() > MAX_FILE_NAME) {
            let what = format!("the name of an array or of its file has {} bytes", name.len());
            return Err(Error::invalid(&file, Position::File, what, "import the dataset again"));
        }
        check_shapes(path, &meta)?;
        Ok(meta)
    }
}

/// The error of a dataset at `path` whose description cannot be read.
fn unreadable(path: &Path, error: io::Error) -> Error {
    let file = path.join("graph.json");
    if error.kind() == io::ErrorKind::NotFound && path.is_dir() {
        let cure = "name a directory that `morphgl import` or `morphgl generate` wrote";
        Error::invalid(path, Position::File, "not a dataset (it has no graph.json)", cure)
    } else if error.kind() == io::ErrorKind::NotFound && ReplacementDir::aside(path).exists() {
        let old = ReplacementDir::aside(path);
        let what = format!("a process was killed while it replaced this dataset; the old one is {}", old.display());
        Error::invalid(path, Position::File, what, "rename it back, or write the dataset again")
    } else if error.kind() == io::ErrorKind::NotFound {
        let cure = "check the path, or create a dataset with `morphgl import` or `morphgl generate`";
        Error::invalid(path, Position::File, "there is no such dataset", cure)
    } else if error.kind() == io::ErrorKind::InvalidData {
        let what = format!("not a dataset description ({error})");
        Error::invalid(&file, Position::File, what, "import the dataset again")
    } else {
        Error::io(&file, error)
    }
}

/// One array of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArrayMeta {
    /// File name within the directory.
    pub file: String,
    /// Element type.
    pub dtype: Dtype,
    /// Lengths of the dimensions, slowest first.
    pub shape: Vec<u64>,
    /// XXH3-64 of the elements' bytes (the npy header is left out), 16 hexadecimal digits.
    pub xxh3: String,
}

impl ArrayMeta {
    /// Checks the shape in the header of the file `path`.
    pub(crate) fn check_shape(&self, path: &Path, shape: &[u64]) -> Result<()> {
        if shape == self.shape {
            return Ok(());
        }
        let what = format!("the shape is {shape:?}, graph.json says {:?}", self.shape);
        Err(Error::invalid(path, Position::File, what, "the file was replaced: import the dataset again"))
    }
}

/// Checks that the arrays' shapes match, and that all of them together have a size that can be counted.
pub(crate) fn check_shapes(path: &Path, meta: &Meta) -> Result<()> {
    let wrong = |file: &str, what: String| {
        Err(Error::invalid(path.join(file), Position::File, what, "import the dataset again"))
    };
    if i32::try_from(meta.num_classes).is_err() {
        return wrong("graph.json", format!("{} classes are more than labels of 32 bits can tell", meta.num_classes));
    }
    if meta.num_nodes > MAX_NODES {
        let what = format!("{} nodes are more than the {MAX_NODES} that ids of 32 bits allow", meta.num_nodes);
        return wrong("graph.json", what);
    }
    let mut bytes = 0u64;
    for (name, array) in &meta.arrays {
        if Path::new(&array.file).file_name().is_none_or(|file| file != array.file.as_str()) {
            return wrong("graph.json", format!("the array {name} is not in a file of this directory"));
        }
        let size = array.shape.iter().try_fold(array.dtype.size() as u64, |n, &dim| n.checked_mul(dim));
        bytes = match size.and_then(|size| bytes.checked_add(size)) {
            Some(bytes) => bytes,
            None => return wrong("graph.json", format!("the shape {:?} of {name} is impossibly large", array.shape)),
        };
    }
    let [has_rows, has_times] = TaskRows::ARRAYS.map(|name| meta.arrays.contains_key(name));
    if has_rows != has_times {
        return wrong("graph.json", "rows of a task have both task_nodes and task_times".into());
    }
    let pairs = |name: &str| meta.arrays.get(name).map_or(Some(0), |pairs| pairs.shape.first().copied());
    for (name, rank, rows) in [
        ("indptr", 1, Some(meta.num_nodes.saturating_add(1))),
        ("indices", 1, Some(meta.num_edges)),
        ("weights", 1, Some(meta.num_edges)),
        ("features", 2, Some(meta.num_nodes)),
        ("task_nodes", 1, None),
        ("task_times", 1, Some(meta.num_examples())),
        ("labels", 1, Some(meta.num_examples())),
        ("targets", 2, Some(meta.num_examples())),
        ("node_ids", 1, Some(meta.num_nodes)),
        ("node_name_ends", 1, Some(meta.num_nodes)),
        ("node_names", 1, None),
        ("draw_keys", 1, Some(meta.num_nodes)),
        ("node_times", 1, Some(meta.num_nodes)),
        ("edge_times", 1, Some(meta.num_edges)),
        ("edge_types", 1, Some(meta.num_edges)),
        ("edge_ids", 1, Some(meta.num_edges)),
        ("train", 1, None),
        ("valid", 1, None),
        ("test", 1, None),
        ("train_edges", 2, None),
        ("valid_edges", 2, None),
        ("test_edges", 2, None),
        ("train_edges_negatives", 2, None),
        ("valid_edges_negatives", 2, None),
        ("test_edges_negatives", 2, None),
        ("train_edges_labels", 1, pairs("train_edges")),
        ("valid_edges_labels", 1, pairs("valid_edges")),
        ("test_edges_labels", 1, pairs("test_edges")),
        ("train_edges_types", 1, pairs("train_edges")),
        ("valid_edges_types", 1, pairs("valid_edges")),
        ("test_edges_types", 1, pairs("test_edges")),
        ("train_edges_targets", 2, pairs("train_edges")),
        ("valid_edges_targets", 2, pairs("valid_edges")),
        ("test_edges_targets", 2, pairs("test_edges")),
    ] {
        let Some(array) = meta.arrays.get(name) else {
            if matches!(name, "indptr" | "indices") {
                return wrong("graph.json", format!("the array {name} is missing"));
            }
            continue;
        };
        if array.shape.len() != rank {
            return wrong(&array.file, format!("{name} has {} dimensions, expected {rank}", array.shape.len()));
        }
        if EdgeSplits::ARRAYS.contains(&name) && array.shape[1] != 2 {
            return wrong(&array.file, format!("{name} has {} columns, expected 2: source and target", array.shape[1]));
        }
        if name.ends_with("targets") && array.shape[1] == 0 {
            return wrong(&array.file, format!("{name} has no columns, expected at least 1"));
        }
        if rows.is_some_and(|rows| array.shape[0] != rows) {
            let rows = rows.unwrap_or(0);
            let of = match name {
                _ if name.contains("_edges_") => "its pairs".to_string(),
                "task_times" | "labels" | "targets" if has_rows => format!("{rows} rows of the task"),
                _ => format!("{} nodes", meta.num_nodes),
            };
            let what = format!("{name} has {} rows, expected {rows} for {of}", array.shape[0]);
            return wrong(&array.file, what);
        }
    }
    check_types(path, meta)
}

/// Checks that types, and the arrays that only typed graphs have, belong together.
/// Whether an array has features of edges.
pub(crate) fn is_edge_features(name: &str) -> bool {
    name == "edge_features" || name.starts_with("edge_features.")
}

fn check_types(path: &Path, meta: &Meta) -> Result<()> {
    let wrong = |file: &str, what: String| {
        Err(Error::invalid(path.join(file), Position::File, what, "import the dataset again"))
    };
    let of_types = |name: &String| {
        let of_pairs = EdgeSplits::TYPE_ARRAYS.contains(&name.as_str());
        of_pairs || name == "edge_types" || name.starts_with("features.") || name.starts_with("edge_features.")
    };
    for (name, array) in meta.arrays.iter().filter(|(name, _)| is_edge_features(name)) {
        if array.shape.len() != 2 {
            return wrong(&array.file, format!("{name} has {} dimensions, expected 2", array.shape.len()));
        }
        if !meta.arrays.contains_key("edge_ids") {
            return wrong(&array.file, format!("there is {name}, but no edge_ids, the rows of the edges in it"));
        }
        if name == "edge_features" && meta.types.is_some() {
            return wrong(&array.file, format!("{name} of a typed graph are one array per edge type"));
        }
        let number = name.strip_prefix("edge_features.").map(|number| number.parse::<usize>().ok());
        if let (Some(number), Some(types)) = (number, &meta.types) {
            let count = types.edge_types().len();
            if number.is_none_or(|number| number >= count) {
                return wrong(&array.file, format!("{name} is of no edge type, there are {count}"));
            }
        }
    }
    let Some(types) = &meta.types else {
        return match meta.arrays.iter().find(|(name, _)| of_types(name)) {
            Some((name, array)) => wrong(&array.file, format!("there is {name}, but graph.json names no types")),
            None => Ok(()),
        };
    };
    if types.num_nodes() as u64 != meta.num_nodes {
        let what = format!("the types have {} nodes, the graph {}", types.num_nodes(), meta.num_nodes);
        return wrong("graph.json", what);
    }
    if !meta.arrays.contains_key("edge_types") {
        return wrong("graph.json", "the array edge_types of a typed graph is missing".into());
    }
    for (name, array) in meta.arrays.iter().filter(|(name, _)| name.starts_with("features.")) {
        let number = name["features.".len()..].parse::<usize>().ok();
        let Some(node_type) = number.and_then(|number| types.node_types().get(number)) else {
            return wrong(&array.file, format!("{name} is of no node type, there are {}", types.node_types().len()));
        };
        if meta.arrays.contains_key("features") {
            return wrong(&array.file, format!("there are both features and {name}"));
        }
        if array.shape.len() != 2 || array.shape[0] != node_type.count {
            let (shape, name_of_type) = (&array.shape, &node_type.name);
            let what =
                format!("{name} has the shape {shape:?}, expected {} rows for {name_of_type:?}", node_type.count);
            return wrong(&array.file, what);
        }
    }
    Ok(())
}
