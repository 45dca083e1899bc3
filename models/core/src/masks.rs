//! The nodes that dropout masks are keyed by: those of input rows and of given rows.

use std::borrow::Cow;

use crate::ModelSpec;
use morphgl_graph_store::Topology;
use morphgl_registry::{BatchId, Error, HostBatch, Key, Result};

/// The node of each of a mini-batch's `rows` input rows, of which dropout reads the masks: the number that the node had before
/// the graph was reordered, as samplers draw by it. Empty for a model without dropout.
///
/// # Errors
///
/// Fewer input nodes than rows, or one that the graph does not have.
///
/// # Complexity
///
/// O(1), and O(rows) where the graph was reordered.
pub fn mask_nodes<'a>(
    key: Key,
    model: &ModelSpec,
    topology: &Topology,
    batch: &'a HostBatch,
    rows: usize,
) -> Result<Cow<'a, [u32]>> {
    if !model.has_dropout() {
        return Ok(Cow::default());
    }
    let wrong = |what: String| Error::setting(format!("{key}, {}", batch.id), what);
    let nodes = batch.input_nodes.get(..rows).ok_or_else(|| {
        let count = batch.input_nodes.len();
        wrong(format!("it has {count} input nodes, its blocks read {rows}, and dropout needs all; batch it again"))
    })?;
    draw_keys(key, batch.id, topology, nodes)
}

/// The number that each of a mini-batch's nodes had before the graph was reordered.
///
/// # Errors
///
/// A node that the graph does not have.
fn draw_keys<'a>(key: Key, id: BatchId, topology: &Topology, nodes: &'a [u32]) -> Result<Cow<'a, [u32]>> {
    let Some(keys) = topology.draw_keys() else { return Ok(nodes.into()) };
    let key_of = |&node: &u32| {
        let found = keys.get(node as usize).copied();
        let what = || format!("node {node} is not in the graph, which has {}", keys.len());
        found.ok_or_else(|| Error::setting(format!("{key}, {id}"), what()))
    };
    nodes.iter().map(key_of).collect::<Result<Vec<u32>>>().map(Cow::from)
}

/// The nodes of given rows, by which the second layer's input reads the first layer's dropout; empty for a model without dropout.
///
/// # Errors
///
/// A node that the graph does not have.
///
/// # Complexity
///
/// O(1), and O(given nodes) where the graph was reordered.
pub fn given_mask_nodes<'a>(
    key: Key,
    model: &ModelSpec,
    topology: &Topology,
    batch: &'a HostBatch,
) -> Result<Cow<'a, [u32]>> {
    match &batch.given {
        Some(given) if model.has_dropout() => draw_keys(key, batch.id, topology, &given.nodes),
        _ => Ok(Cow::default()),
    }
}
