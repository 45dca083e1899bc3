//! Full-neighbour inference: layer by layer over all nodes, in chunks of rows that fit a budget.

use std::ops::Range;

use crate::ModelSpec;
use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_registry::{Block, Error, GatherRows, HostBatch, Key, Result};

use crate::chunks::{Chunk, Chunker, Limits};
use crate::parts::divide;

/// Input rows of a layer, one per node of the graph.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// The dataset's features, for the first layer.
    Features(&'a FeatureMatrix),
    /// The output of the previous layer, or the first layer's inputs per node type.
    Rows(&'a [f32]),
}

/// Layers of a model, computed at once and without dropout.
pub trait Layers {
    /// Bytes per node of a chunk in a layer, including its input row.
    fn row_bytes(&self, layer: usize, input: Input<'_>) -> usize;

    /// Appends the first layer's input rows of the nodes of one type, of a model with inputs per node type.
    ///
    /// # Panics
    ///
    /// Always, where the operator refuses such models.
    fn inputs(&mut self, node_type: usize, nodes: Range<u32>, _out: &mut Vec<f32>) {
        panic!("the operator has no inputs of node type {node_type}, of which nodes {nodes:?} are")
    }

    /// Appends the layer's output rows of the chunk's destination nodes to `out`.
    fn evaluate(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>);
}

/// Layers of a model, computed without dropout by queued work, which may fail and may finish later.
pub trait QueuedLayers {
    /// As [`Layers::row_bytes`].
    fn row_bytes(&self, layer: usize, input: Input<'_>) -> usize;

    /// As [`Layers::inputs`].
    ///
    /// # Errors
    ///
    /// The work fails.
    ///
    /// # Panics
    ///
    /// Always, where the operator refuses such models.
    fn inputs(&mut self, node_type: usize, nodes: Range<u32>, _out: &mut Vec<f32>) -> Result<()> {
        panic!("the operator has no inputs of node type {node_type}, of which nodes {nodes:?} are")
    }

    /// Queues a layer of the chunk's destination nodes. May append finished rows of earlier chunks to `out`, in order.
    ///
    /// # Errors
    ///
    /// The work cannot be queued, or earlier work has failed.
    fn queue(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>) -> Result<()>;

    /// Waits for all queued work, and appends the remaining rows to `out`.
    ///
    /// # Errors
    ///
    /// Queued work has failed.
    fn finish(&mut self, out: &mut Vec<f32>) -> Result<()>;
}

/// Checks a mini-batch whose first layer is computed alone, and returns the dataset's features and its block; `key` is the
/// operator's key.
///
/// # Errors
///
/// A dataset without features; a model that reads no graph; not one block, or one that does not fit the dataset.
pub fn check_first_layer<'a>(
    key: Key,
    spec: &ModelSpec,
    dataset: &'a Dataset,
    batch: &'a HostBatch,
) -> Result<(&'a FeatureMatrix, &'a Block)> {
    let wrong = |what: String| Err(Error::setting(format!("{key}, {}", batch.id), what));
    let Some(features) = &dataset.features else {
        return wrong("the dataset has no features".to_string());
    };
    let [block] = &batch.blocks[..] else {
        return wrong(format!("it has {} blocks, and one layer is computed", batch.blocks.len()));
    };
    let fits = batch.input_nodes.len() == block.num_src && batch.degrees.len() == block.num_src;
    let exist = batch.input_nodes.iter().all(|&v| (v as usize) < features.num_rows());
    if !spec.reads_graph() || !fits || !exist || block.indptr.len() != block.num_dst + 1 {
        return wrong("its block does not fit the model and the dataset; batch it again".to_string());
    }
    Ok((features, block))
}

impl<L: Layers> QueuedLayers for L {
    fn row_bytes(&self, layer: usize, input: Input<'_>) -> usize {
        Layers::row_bytes(self, layer, input)
    }

    fn inputs(&mut self, node_type: usize, nodes: Range<u32>, out: &mut Vec<f32>) -> Result<()> {
        Layers::inputs(self, node_type, nodes, out);
        Ok(())
    }

    fn queue(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>) -> Result<()> {
        self.evaluate(layer, input, chunk, out);
        Ok(())
    }

    fn finish(&mut self, _out: &mut Vec<f32>) -> Result<()> {
        Ok(())
    }
}

/// The rows of `nodes`, in their order, after the first `depth` layers, computed with all their neighbours: after all of them, logits.
/// With [`QueuedLayers`], the next chunk is built while the previous one is computed.
///
/// This process computes its part of the rows of every layer, and gathers those of its `peers`, all of which make the call.
///
/// # Errors
///
/// No layer, or more than the model has; a node that does not exist, a neighbour that does not (in a mapped file that was changed), a dataset without features, layers
/// that fail, or peers that do not come.
///
/// # Complexity
///
/// Each of these layers once over all nodes, divided by the number of peers; the last of them over the distinct `nodes` alone.
pub fn infer(
    (key, model): (Key, &ModelSpec),
    layers: &mut impl QueuedLayers,
    (dataset, nodes): (&Dataset, &[u32]),
    depth: usize,
    limits: Limits,
    peers: &mut dyn GatherRows,
) -> Result<Vec<f32>> {
    let num_nodes = dataset.num_nodes();
    if let Some(node) = nodes.iter().find(|v| **v as usize >= num_nodes) {
        return Err(Error::setting(key, format!("there is no node {node} to infer, there are {num_nodes}")));
    }
    if depth == 0 || depth > model.layers {
        return Err(Error::setting(key, format!("there is no layer {depth}; use one from 1 to {}", model.layers)));
    }
    let mut x: Vec<f32> = Vec::new();
    let features = match &dataset.features {
        _ if !model.input_widths.is_empty() => {
            let what = "the graph has no types, of which the model has inputs; infer on one with the same types";
            let types = dataset.topology.types().ok_or_else(|| Error::setting(&key, what))?;
            x.reserve_exact(num_nodes * model.in_dim);
            for of_type in 0..types.node_types().len() {
                layers.inputs(of_type, types.range(of_type), &mut x)?;
            }
            None
        }
        Some(features) => Some(features),
        None => {
            let what = "the dataset has no features; import it with features, or with --random-features";
            return Err(Error::setting(&key, what));
        }
    };
    let all: Vec<u32> = (0..num_nodes as u32).collect();
    let (requested, positions) = distinct(nodes, num_nodes);
    let mut chunker = Chunker::new(&dataset.topology, model.reads_graph());
    for layer in 0..depth {
        let shape = model.layer(layer);
        let rows = if layer + 1 == depth { &requested } else { &all };
        let input = features.filter(|_| layer == 0).map_or(Input::Rows(&x), Input::Features);
        let num_src = limits.bytes / layers.row_bytes(layer, input).max(1);
        let graph = model.reads_graph().then_some(&dataset.topology);
        let mut parts = divide(rows, graph, shape.out_dim, peers.size());
        let Range { mut start, end } = parts[peers.rank()];
        let mut out = Vec::with_capacity(rows.len() * shape.out_dim);
        out.resize(start * shape.out_dim, 0.0);
        while start < end {
            let chunk = chunker.next(&rows[start..end], num_src, limits).map_err(|e| Error::failed(&key, e))?;
            start += chunk.block.num_dst;
            layers.queue(layer, input, chunk, &mut out)?;
        }
        layers.finish(&mut out)?;
        out.resize(rows.len() * shape.out_dim, 0.0);
        parts.iter_mut().for_each(|part| *part = part.start * shape.out_dim..part.end * shape.out_dim);
        peers.gather(&mut out, &parts)?;
        x = out;
    }
    if requested.len() == nodes.len() {
        return Ok(x);
    }
    let width = model.layer(depth - 1).out_dim;
    Ok(positions.iter().flat_map(|&p| &x[p as usize * width..(p as usize + 1) * width]).copied().collect())
}

/// Maximum bytes that [`infer`] takes for all nodes of `dataset`, including the logits.
///
/// # Complexity
///
/// O(layers).
pub fn infer_bytes(model: &ModelSpec, dataset: &Dataset, limits: Limits) -> u64 {
    let (nodes, edges) = (dataset.num_nodes() as u64, dataset.topology.num_edges());
    let floats = |width: usize| 4 * width as u64;
    let of_layer = |l: usize| {
        let shape = model.layer(l);
        let reads_features = l == 0 && model.input_widths.is_empty();
        let (input, output) = (if reads_features { 0 } else { shape.in_dim }, shape.out_dim);
        // Rows of a chunk: its input, and twice its output, for layers with an intermediate result.
        let row = floats(shape.in_dim + 2 * output.max(shape.heads * shape.head_dim));
        nodes * floats(input + output) + (nodes * row).min(limits.bytes as u64)
    };
    let rows = (0..model.layers).map(of_layer).max().unwrap_or(0);
    // Per node: ids, positions, degrees, local ids and marks; per edge of a chunk: index and weight.
    rows + nodes * 28 + edges.min(limits.edges as u64) * 8
}

/// The distinct nodes in order of first appearance, and the position of each of `nodes` among them.
fn distinct(nodes: &[u32], num_nodes: usize) -> (Vec<u32>, Vec<u32>) {
    let (mut distinct, mut position) = (Vec::new(), vec![u32::MAX; num_nodes]);
    for &v in nodes {
        if position[v as usize] == u32::MAX {
            position[v as usize] = distinct.len() as u32;
            distinct.push(v);
        }
    }
    (distinct, nodes.iter().map(|&v| position[v as usize]).collect())
}

#[cfg(test)]
mod tests;
