//! Graphs: over arrays of numpy, or opened from a dataset's directory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use morphgl_graph_store::{
    Array, Dataset, DatasetWriter, EdgeSplits, EdgeType, Element, FeatureMatrix, Load, NodeNames, NodeType,
    OpenOptions, Splits, TargetMatrix, Topology, Types,
};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::array::borrowed;
use crate::buffer::{Buffer, Kind};

/// A dataset in memory, shared with the loaders that read it.
#[pyclass(frozen, module = "morphgl._morphgl")]
pub(crate) struct Graph(pub(crate) Arc<Dataset>);

#[pymethods]
impl Graph {
    /// Opens a dataset, mapped or in memory.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, mmap: bool, verify: bool) -> PyResult<Self> {
        let load = if mmap { Load::Mmap } else { Load::Ram };
        let opened = py.detach(|| Dataset::open(path, OpenOptions { load, verify }));
        Ok(Self(Arc::new(opened.map_err(failed)?)))
    }

    /// The same graph without its directory, which may be removed: it was read to memory.
    fn detached(&self) -> Self {
        Self(Arc::new(Dataset { path: Default::default(), ..Dataset::clone(&self.0) }))
    }

    /// The nodes' names in the directory, where their ids are text.
    fn names(&self, py: Python<'_>) -> PyResult<Option<Vec<String>>> {
        let names = py.detach(|| NodeNames::of(&self.0.path)).map_err(failed)?;
        let name = |names: &NodeNames, v| String::from_utf8_lossy(names.get(v)).into_owned();
        Ok(names.map(|names| (0..self.0.num_nodes() as u32).map(|v| name(&names, v)).collect()))
    }

    /// Ids of the nodes in the source, where they were numbered anew.
    #[getter]
    fn node_ids(&self) -> Option<Buffer> {
        self.0.node_ids.as_ref().map(|ids| shared(ids, None, Kind::I64))
    }

    /// A graph over arrays that stay where they are. `splits` are nodes to train, validate and test on.
    #[staticmethod]
    #[pyo3(signature = (indptr, indices, weights, features, bf16, labels, targets, splits))]
    #[expect(clippy::too_many_arguments, reason = "the arrays of a dataset")]
    fn from_csc(
        py: Python<'_>,
        indptr: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        weights: Option<&Bound<'_, PyAny>>,
        features: Option<&Bound<'_, PyAny>>,
        bf16: bool,
        labels: Option<&Bound<'_, PyAny>>,
        targets: Option<&Bound<'_, PyAny>>,
        splits: [Bound<'_, PyAny>; 3],
    ) -> PyResult<Self> {
        let indptr = borrowed::<u64>("indptr", indptr)?;
        let indices = borrowed::<u32>("indices", indices)?;
        let weights = weights.map(|weights| borrowed::<f32>("weights", weights)).transpose()?;
        if indptr.is_empty() {
            return Err(PyValueError::new_err("indptr: it is empty; give one offset per node and one more"));
        }
        let topology = py.detach(|| Topology::new(indptr, indices, weights)).map_err(PyValueError::new_err)?;
        let num_nodes = topology.num_nodes();
        let features = features.map(|features| matrix(features, bf16, num_nodes)).transpose()?;
        let labels = labels.map(|labels| borrowed::<i32>("labels", labels)).transpose()?;
        let num_classes = labels.as_deref().map_or(Ok(0), |labels| num_classes("y", labels, "node", num_nodes))?;
        let targets = targets.map(|targets| target_matrix("targets", targets, "node", Some(num_nodes))).transpose()?;
        let [train, valid, test] = &splits;
        let splits = Splits {
            train: borrowed("train", train)?,
            valid: borrowed("valid", valid)?,
            test: borrowed("test", test)?,
        };
        py.detach(|| splits.check(num_nodes)).map_err(PyValueError::new_err)?;
        let whole = Dataset::new("graph".to_string(), topology);
        Ok(Self(Arc::new(Dataset { features, labels, num_classes, targets, splits, ..whole })))
    }

    /// The same graph with the types of its nodes, `[(name, count)]` in the order of their ids, and of its edges, `[(source, name,
    /// target)]` with the number of each edge's type; with features of each node type, and whether they are bfloat16, and times of
    /// nodes and edges.
    #[pyo3(signature = (node_types, edge_types, types, features, node_times, edge_times))]
    #[expect(clippy::too_many_arguments, reason = "the arrays of a dataset")]
    fn with_types(
        &self,
        py: Python<'_>,
        node_types: Vec<(String, u64)>,
        edge_types: Vec<(String, String, String)>,
        types: &Bound<'_, PyAny>,
        features: Vec<Option<(Bound<'_, PyAny>, bool)>>,
        node_times: Option<&Bound<'_, PyAny>>,
        edge_times: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let nodes = node_types.into_iter().map(|(name, count)| NodeType { name, count }).collect();
        let edges = edge_types.into_iter().map(|(source, name, target)| EdgeType { source, name, target }).collect();
        let named = Types::new(nodes, edges).map_err(PyValueError::new_err)?;
        let types = borrowed::<u16>("edge types", types)?;
        let times =
            |name, times: Option<&Bound<'_, PyAny>>| times.map(|times| borrowed::<i64>(name, times)).transpose();
        let (node_times, edge_times) = (times("node times", node_times)?, times("edge times", edge_times)?);
        let matrices = features.iter().zip(named.node_types());
        let matrices = matrices.map(|(given, of_type)| {
            given.as_ref().map(|(features, bf16)| matrix(features, *bf16, of_type.count as usize)).transpose()
        });
        let mut features_by_type = matrices.collect::<PyResult<Vec<_>>>()?;
        if features_by_type.iter().all(Option::is_none) {
            features_by_type.clear();
        }
        let whole = Dataset::clone(&self.0);
        let topology = whole.topology.clone();
        let topology = py.detach(|| topology.with_types(named, types)?.with_times(node_times, edge_times));
        let topology = topology.map_err(PyValueError::new_err)?;
        Ok(Self(Arc::new(Dataset { topology, features_by_type, ..whole })))
    }

    /// The same graph with features of edges: the row of each edge, in the order of the indices, in those of its type, and for each edge
    /// type, or for all edges without types, a matrix and whether it is bfloat16.
    fn with_edge_features(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        features: Vec<Option<(Bound<'_, PyAny>, bool)>>,
    ) -> PyResult<Self> {
        let ids = borrowed::<u32>("edge ids", ids)?;
        let of_type = |given: &Option<(Bound<'_, PyAny>, bool)>| {
            let matrix = |(features, bf16): &(Bound<'_, PyAny>, bool)| {
                let rows = features.getattr("shape")?.get_item(0)?.extract()?;
                matrix(features, *bf16, rows)
            };
            given.as_ref().map(matrix).transpose()
        };
        let features = features.iter().map(of_type).collect::<PyResult<Vec<_>>>()?;
        let whole = Dataset::clone(&self.0);
        let with = py.detach(|| whole.with_edge_features(ids, features));
        Ok(Self(Arc::new(with.map_err(PyValueError::new_err)?)))
    }

    /// Names and numbers of nodes of the node types, in the order of their ids; none without types.
    #[getter]
    fn node_types(&self) -> Vec<(String, u64)> {
        let types = self.0.topology.types();
        types.map_or(Vec::new(), |types| types.node_types().iter().map(|t| (t.name.clone(), t.count)).collect())
    }

    /// Source, name and target of the edge types; none without types.
    #[getter]
    fn edge_types(&self) -> Vec<(String, String, String)> {
        let of_type = |t: &EdgeType| (t.source.clone(), t.name.clone(), t.target.clone());
        self.0.topology.types().map_or(Vec::new(), |types| types.edge_types().iter().map(of_type).collect())
    }

    /// Writes the graph as a dataset, with the names and the source that its directory has, or else with these: the provenance as
    /// JSON, ids of the nodes as numbers, and names of the nodes, ascending in the order of the draw keys.
    #[pyo3(signature = (path, replace, provenance, node_ids, names))]
    fn save(
        &self,
        py: Python<'_>,
        path: PathBuf,
        replace: bool,
        provenance: &str,
        node_ids: Option<Vec<u64>>,
        names: Option<Vec<String>>,
    ) -> PyResult<()> {
        let provenance = serde_json::from_str(provenance).map_err(|e| PyValueError::new_err(e.to_string()))?;
        let given = Given { provenance, node_ids, names };
        py.detach(|| write(&self.0, given, path, replace)).map_err(failed)
    }

    /// The same graph with draw keys: the place of each node in the order in which random numbers take the nodes.
    fn with_draw_keys(&self, keys: Vec<u32>) -> PyResult<Self> {
        let topology = self.0.topology.clone().with_draw_keys(keys).map_err(PyValueError::new_err)?;
        Ok(Self(Arc::new(Dataset { topology, ..Dataset::clone(&self.0) })))
    }

    /// The directory that the graph was opened from; empty for one of arrays.
    #[getter]
    fn path(&self) -> &std::ffi::OsStr {
        self.0.path.as_os_str()
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn num_nodes(&self) -> usize {
        self.0.num_nodes()
    }

    #[getter]
    fn num_edges(&self) -> u64 {
        self.0.topology.num_edges()
    }

    #[getter]
    fn num_self_loops(&self, py: Python<'_>) -> usize {
        let topology = &self.0.topology;
        let of_node = |v: u32| topology.neighbors(v).iter().filter(|&&u| u == v).count();
        py.detach(|| (0..topology.num_nodes() as u32).map(of_node).sum())
    }

    #[getter]
    fn num_classes(&self) -> usize {
        self.0.num_classes
    }

    #[getter]
    fn indptr(&self) -> Buffer {
        shared(self.0.topology.indptr(), None, Kind::I64)
    }

    #[getter]
    fn indices(&self) -> Buffer {
        shared(self.0.topology.indices(), None, Kind::I32)
    }

    #[getter]
    fn weights(&self) -> Option<Buffer> {
        self.0.topology.weights().map(|weights| shared(weights, None, Kind::F32))
    }

    #[getter]
    fn features(&self) -> Option<Buffer> {
        self.0.features.as_ref().map(matrix_of)
    }

    /// Features of each node type, `None` for a type without; empty where all nodes have rows in one matrix, and without types.
    #[getter]
    fn features_by_type(&self) -> Vec<Option<Buffer>> {
        self.0.features_by_type.iter().map(|features| features.as_ref().map(matrix_of)).collect()
    }

    /// Features of each edge type, or of all edges without types; empty where no edges have any.
    #[getter]
    fn edge_features(&self) -> Vec<Option<Buffer>> {
        self.0.edge_features.iter().map(|features| features.as_ref().map(matrix_of)).collect()
    }

    /// The row of each edge in the features of its type, in the order of `indices`.
    #[getter]
    fn edge_ids(&self) -> Option<Buffer> {
        self.0.topology.edge_ids().map(|ids| shared(ids, None, Kind::I32))
    }

    /// Number of the type of each edge, in the order of `indices`.
    #[getter]
    fn type_of_edges(&self) -> Option<Buffer> {
        self.0.topology.edge_types().map(|types| shared(types, None, Kind::U16))
    }

    /// Time of each node.
    #[getter]
    fn node_times(&self) -> Option<Buffer> {
        self.0.topology.node_times().map(|times| shared(times, None, Kind::I64))
    }

    /// Time of each edge, in the order of `indices`.
    #[getter]
    fn edge_times(&self) -> Option<Buffer> {
        self.0.topology.edge_times().map(|times| shared(times, None, Kind::I64))
    }

    #[getter]
    fn labels(&self) -> Option<Buffer> {
        self.0.node_labels().map(|labels| shared(labels, None, Kind::I32))
    }

    #[getter]
    fn targets(&self) -> Option<Buffer> {
        self.0.node_targets().map(|targets| shared(targets.values(), Some(targets.dim()), Kind::F32))
    }

    /// Pairs `[pairs, 2]` of links: those to train on, which are the graph's edges where it names none, or the array `name` of
    /// `EdgeSplits::ARRAYS`, where there is one.
    fn pairs(&self, py: Python<'_>, name: &str) -> PyResult<Option<Buffer>> {
        let edges = &self.0.edges;
        let Some(at) = EdgeSplits::ARRAYS.iter().position(|array| *array == name) else {
            let what = format!("pairs {name:?}: give one of {}", EdgeSplits::ARRAYS.join(", "));
            return Err(PyValueError::new_err(what));
        };
        if at == 0 && edges.train.is_none() {
            let pairs = py.detach(|| self.0.train_pairs().into_owned());
            return Ok(Some(shared(&pairs.into_flattened().into(), Some(2), Kind::I32)));
        }
        Ok(edges.arrays()[at].map(|pairs| shared(pairs, Some(2), Kind::I32)))
    }

    /// The nodes of the split `name`: train, valid or test.
    fn split(&self, name: &str) -> PyResult<Buffer> {
        let Splits { train, valid, test } = &self.0.splits;
        if self.0.task_rows.is_some() {
            let what = "the graph has a task: its splits are of rows, which train and the command line read";
            return Err(PyValueError::new_err(format!("split {name:?}: {what}")));
        }
        let nodes = match name {
            "train" => train,
            "valid" => valid,
            "test" => test,
            _ => return Err(PyValueError::new_err(format!("split {name:?}: give 'train', 'valid' or 'test'"))),
        };
        Ok(shared(nodes, None, Kind::I32))
    }
}

fn failed(error: morphgl_graph_store::Error) -> PyErr {
    PyOSError::new_err(error.to_string())
}

/// A view of a matrix of features.
fn matrix_of(features: &FeatureMatrix) -> Buffer {
    match features {
        FeatureMatrix::F32 { data, dim } => shared(data, Some(*dim), Kind::F32),
        FeatureMatrix::F16 { data, dim } => shared(data, Some(*dim), Kind::F16),
        FeatureMatrix::Bf16 { data, dim } => shared(data, Some(*dim), Kind::BF16),
        FeatureMatrix::U8 { data, dim } => shared(data, Some(*dim), Kind::U8),
    }
}

/// A view of a dataset's array, whose ids fit into signed integers of the same size.
pub(crate) fn shared<T: Element>(array: &Array<T>, dim: Option<usize>, kind: Kind) -> Buffer {
    let owner = Arc::new(array.clone());
    let shape = dim.map_or(vec![array.len()], |dim| vec![array.len().checked_div(dim).unwrap_or(0), dim]);
    // SAFETY: the owner keeps the array's memory, which does not move, and the view is read-only.
    unsafe { Buffer::new(bytemuck::cast_slice(array), shape, kind, true, owner) }
}

/// A feature matrix over an array of shape `[nodes, dim]`.
fn matrix(features: &Bound<'_, PyAny>, bf16: bool, num_nodes: usize) -> PyResult<FeatureMatrix> {
    let shape: Vec<usize> = features.getattr("shape")?.extract()?;
    let [rows, dim] = shape[..] else {
        return Err(PyValueError::new_err(format!("x: its shape is {shape:?}, give one of [nodes, features]")));
    };
    if rows != num_nodes || dim == 0 {
        let what = format!("x: its shape is {shape:?}, give [{num_nodes}, features]: one row per node");
        return Err(PyValueError::new_err(what));
    }
    let dtype: String = features.getattr("dtype")?.getattr("name")?.extract()?;
    let matrix = match (&*dtype, bf16) {
        ("float32", false) => FeatureMatrix::F32 { data: borrowed("x", features)?, dim },
        ("float16", false) => FeatureMatrix::F16 { data: borrowed("x", features)?, dim },
        ("uint16", true) => FeatureMatrix::Bf16 { data: borrowed("x", features)?, dim },
        ("uint8", false) => FeatureMatrix::U8 { data: borrowed("x", features)?, dim },
        _ => {
            return Err(PyValueError::new_err(format!(
                "x: {dtype} is no feature type; give float32, float16 or uint8"
            )));
        }
    };
    match features.py().detach(|| matrix.first_invalid(0..rows)) {
        Some(node) => {
            Err(PyValueError::new_err(format!("x: a feature of node {node} is NaN or infinite; clean the data")))
        }
        None => Ok(matrix),
    }
}

/// Targets over an array `name` of shape `[rows, targets]`; the rows are of nodes, pairs or what else `of` is.
pub(crate) fn target_matrix(
    name: &str,
    targets: &Bound<'_, PyAny>,
    of: &str,
    rows: Option<usize>,
) -> PyResult<TargetMatrix> {
    let shape: Vec<usize> = targets.getattr("shape")?.extract()?;
    match shape[..] {
        [given, dim] if rows.is_none_or(|rows| rows == given) => {
            TargetMatrix::new(borrowed(name, targets)?, dim).map_err(PyValueError::new_err)
        }
        _ => {
            let rows = rows.map_or_else(|| format!("{of}s"), |rows| rows.to_string());
            let what = format!("{name}: their shape is {shape:?}, give [{rows}, targets]: one row per {of}");
            Err(PyValueError::new_err(what))
        }
    }
}

/// One more than the highest of the labels `name` of `count` nodes or rows; -1 is none.
pub(crate) fn num_classes(name: &str, labels: &[i32], of: &str, count: usize) -> PyResult<usize> {
    if labels.len() != count {
        let what = format!("{name}: {} labels for {count} {of}s; give one per {of}, -1 for none", labels.len());
        return Err(PyValueError::new_err(what));
    }
    if let Some(at) = labels.iter().position(|&label| label < -1) {
        return Err(PyValueError::new_err(format!("{name}: {of} {at} has label {}; give -1 for none", labels[at])));
    }
    Ok(labels.iter().max().map_or(0, |&highest| (highest + 1) as usize))
}

/// What a graph without a directory is known by besides its arrays.
struct Given {
    provenance: BTreeMap<String, serde_json::Value>,
    node_ids: Option<Vec<u64>>,
    names: Option<Vec<String>>,
}

fn write(dataset: &Dataset, given: Given, path: PathBuf, replace: bool) -> morphgl_graph_store::Result<()> {
    let Given { mut provenance, node_ids, names } = given;
    if let Some(meta) = dataset.path.meta() {
        provenance.clone_from(&meta.provenance);
    }
    let mut writer = DatasetWriter::create(path, replace)?;
    let topology = &dataset.topology;
    if let Some(types) = topology.types() {
        writer.set_types((**types).clone());
    }
    dataset.visit_arrays(&mut writer)?;
    if let Some(ids) = node_ids.as_deref().filter(|_| dataset.node_ids.is_none()) {
        writer.array("node_ids", ids, None)?;
    }
    if let (Some(names), Some(ends)) = (dataset.path.array("node_names")?, dataset.path.array("node_name_ends")?) {
        writer.array("node_names", &names.read::<u8>(Load::Mmap)?, None)?;
        writer.array("node_name_ends", &ends.read::<u64>(Load::Mmap)?, None)?;
    } else if let Some(names) = names {
        let (bytes, ends) = stored_names(topology, &names);
        writer.array("node_names", &bytes, None)?;
        writer.array("node_name_ends", &ends, None)?;
    }
    provenance.insert("made_by".to_string(), "Graph.save of the Python package".into());
    writer.finish(&dataset.name, dataset.num_classes, provenance)?;
    Ok(())
}

/// The bytes of the nodes' names in the order of the draw keys, and where each name ends.
fn stored_names(topology: &Topology, names: &[String]) -> (Vec<u8>, Vec<u64>) {
    let mut nodes: Vec<u32> = (0..topology.num_nodes() as u32).collect();
    nodes.sort_unstable_by_key(|&node| topology.draw_key(node));
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for node in nodes {
        bytes.extend_from_slice(names[node as usize].as_bytes());
        ends.push(bytes.len() as u64);
    }
    (bytes, ends)
}
