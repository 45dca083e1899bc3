//! Graphs by value, as pickle keeps those that have no directory: what they have beside the arrays that `Graph` gives.

use std::sync::Arc;

use morphgl_graph_store::{Dataset, EdgeSplits};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::borrowed;
use crate::buffer::{Buffer, Kind};
use crate::graph::{Graph, shared};

/// Pairs that a graph names itself, in the order of `EdgeSplits::ARRAYS`, and the draw keys.
type Rest = ([Option<Buffer>; EdgeSplits::ARRAYS.len()], Option<Buffer>);

#[pyfunction]
pub(crate) fn rest_of(graph: &Graph) -> Rest {
    let pairs = graph.0.edges.arrays().map(|pairs| pairs.map(|pairs| shared(pairs, Some(2), Kind::I32)));
    let keys = graph.0.topology.draw_keys().map(|keys| shared(keys, None, Kind::I32));
    (pairs, keys)
}

/// The same graph with a name, a number of classes, ids of the nodes in its source, draw keys, and times where it has no
/// types.
#[pyfunction]
pub(crate) fn with_rest(
    graph: &Graph,
    name: String,
    num_classes: usize,
    node_ids: Option<&Bound<'_, PyAny>>,
    draw_keys: Option<&Bound<'_, PyAny>>,
    node_times: Option<&Bound<'_, PyAny>>,
    edge_times: Option<&Bound<'_, PyAny>>,
) -> PyResult<Graph> {
    let mut topology = graph.0.topology.clone();
    if let Some(keys) = draw_keys {
        topology = topology.with_draw_keys(borrowed::<u32>("draw keys", keys)?).map_err(PyValueError::new_err)?;
    }
    if node_times.is_some() || edge_times.is_some() {
        let times = |what, times: Option<&Bound<'_, PyAny>>| times.map(|times| borrowed(what, times)).transpose();
        let (of_nodes, of_edges) = (times("node times", node_times)?, times("edge times", edge_times)?);
        topology = topology.with_times(of_nodes, of_edges).map_err(PyValueError::new_err)?;
    }
    let node_ids = node_ids.map(|ids| borrowed::<u64>("node ids", ids)).transpose()?;
    Ok(Graph(Arc::new(Dataset { name, num_classes, node_ids, topology, ..Dataset::clone(&graph.0) })))
}
