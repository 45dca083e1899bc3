//! Examples that are no nodes: pairs of links, labelled edges, rows of a task.

use std::sync::Arc;

use morphgl_graph_store::{Dataset, EdgeSplits, PairTargets, Splits, TaskRows};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::borrowed;
use crate::buffer::{Buffer, Kind};
use crate::graph::{Graph, num_classes, shared, target_matrix};

/// An array of the caller's for each of several splits.
type OfSplits<'py, const SPLITS: usize> = [Option<Bound<'py, PyAny>>; SPLITS];

/// The same graph with pairs `[pairs, 2]`, in the order of `EdgeSplits::ARRAYS`; and of those to train, validate and test on the numbers
/// of their edge types, their classes, and their values `[pairs, K]`.
#[pyfunction]
pub(crate) fn with_pairs(
    py: Python<'_>,
    graph: &Graph,
    pairs: OfSplits<'_, { EdgeSplits::ARRAYS.len() }>,
    types: OfSplits<'_, 3>,
    classes: OfSplits<'_, 3>,
    values: OfSplits<'_, 3>,
) -> PyResult<Graph> {
    let mut arrays = [const { None }; EdgeSplits::ARRAYS.len()];
    for ((array, name), given) in arrays.iter_mut().zip(EdgeSplits::ARRAYS).zip(&pairs) {
        *array = given.as_ref().map(|given| borrowed::<u32>(name, given)).transpose()?;
    }
    let mut edges = EdgeSplits::of_arrays(arrays, Default::default());
    for (at, name) in EdgeSplits::TYPE_ARRAYS.into_iter().enumerate() {
        edges.types[at] = types[at].as_ref().map(|types| borrowed::<u16>(name, types)).transpose()?;
        let labels = classes[at].as_ref().map(|classes| borrowed::<i32>("edge_label", classes)).transpose()?;
        let values = values[at].as_ref().map(|values| target_matrix("edge_label", values, "pair", None)).transpose()?;
        edges.targets[at] = PairTargets { labels, values };
    }
    let topology = &graph.0.topology;
    let types = topology.types().map(|types| &**types);
    py.detach(|| edges.check(topology.num_nodes()).and_then(|()| edges.check_types(types)))
        .map_err(PyValueError::new_err)?;
    Ok(Graph(Arc::new(Dataset { edges, ..Dataset::clone(&graph.0) })))
}

/// Of the pairs to train, validate and test on: numbers of their edge types, classes, values; each `None` where there are none.
#[pyfunction]
pub(crate) fn of_pairs(graph: &Graph) -> [[Option<Buffer>; 3]; 3] {
    let edges = &graph.0.edges;
    std::array::from_fn(|at| {
        let PairTargets { labels, values } = &edges.targets[at];
        [
            edges.types[at].as_ref().map(|types| shared(types, None, Kind::U16)),
            labels.as_ref().map(|labels| shared(labels, None, Kind::I32)),
            values.as_ref().map(|values| shared(values.values(), Some(values.dim()), Kind::F32)),
        ]
    })
}

/// The same graph with rows of a task, a node and a time each, their classes and targets `[rows, K]`, and the numbers of the rows to
/// train, validate and test on.
#[pyfunction]
pub(crate) fn with_task(
    py: Python<'_>,
    graph: &Graph,
    nodes: &Bound<'_, PyAny>,
    times: &Bound<'_, PyAny>,
    labels: Option<&Bound<'_, PyAny>>,
    targets: Option<&Bound<'_, PyAny>>,
    splits: [Bound<'_, PyAny>; 3],
) -> PyResult<Graph> {
    let (nodes, times) = (borrowed::<u32>("task node", nodes)?, borrowed::<i64>("task time", times)?);
    let rows = TaskRows::new(nodes, times, graph.0.num_nodes()).map_err(PyValueError::new_err)?;
    let labels = labels.map(|labels| borrowed::<i32>("task y", labels)).transpose()?;
    let num_classes = labels.as_deref().map_or(Ok(0), |labels| num_classes("task y", labels, "row", rows.len()))?;
    let targets = targets.map(|targets| target_matrix("task targets", targets, "row", Some(rows.len()))).transpose()?;
    let [train, valid, test] = &splits;
    let splits =
        Splits { train: borrowed("train", train)?, valid: borrowed("valid", valid)?, test: borrowed("test", test)? };
    py.detach(|| splits.check(rows.len())).map_err(PyValueError::new_err)?;
    let whole = Dataset::clone(&graph.0);
    Ok(Graph(Arc::new(Dataset { task_rows: Some(rows), labels, num_classes, targets, splits, ..whole })))
}

/// Rows of a task: nodes, times, classes, targets, and the row indices of the training, validation and test splits.
type Task = (Buffer, Buffer, Option<Buffer>, Option<Buffer>, [Buffer; 3]);

/// The rows of the graph's task, where it has one.
#[pyfunction]
pub(crate) fn task_of(graph: &Graph) -> Option<Task> {
    let Dataset { task_rows, labels, targets, splits: Splits { train, valid, test }, .. } = &*graph.0;
    task_rows.as_ref().map(|rows| {
        (
            shared(rows.nodes(), None, Kind::I32),
            shared(rows.times(), None, Kind::I64),
            labels.as_ref().map(|labels| shared(labels, None, Kind::I32)),
            targets.as_ref().map(|targets| shared(targets.values(), Some(targets.dim()), Kind::F32)),
            [train, valid, test].map(|rows| shared(rows, None, Kind::I32)),
        )
    })
}
