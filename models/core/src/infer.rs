//! Full-neighbour inference: layer by layer over all nodes, in chunks of rows that fit a budget.

use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_model_spec::ModelSpec;
use morphgl_registry::{Error, Key, Result};

use crate::chunks::{Chunk, Chunker, Limits};

/// What a layer reads.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// The first one: the dataset's features.
    Features(&'a FeatureMatrix),
    /// The others: the output of the layer before, a row a node of the graph.
    Rows(&'a [f32]),
}

/// A model's layers, computed without dropout.
pub trait Layers {
    /// Bytes that a node of a chunk takes in a layer, its input row among them.
    fn row_bytes(&self, layer: usize, features: &FeatureMatrix) -> usize;

    /// Adds a layer's output rows of the chunk's destination nodes to `out`.
    fn evaluate(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>);
}

/// A model's layers, computed without dropout by work that is queued: it may fail, and its rows may come later.
pub trait QueuedLayers {
    /// As [`Layers::row_bytes`].
    fn row_bytes(&self, layer: usize, features: &FeatureMatrix) -> usize;

    /// Queues a layer of the chunk's destination nodes. Rows of chunks before it that are there by now may be added to
    /// `out`, in order.
    ///
    /// # Errors
    ///
    /// The work cannot be queued, or what was queued before has failed.
    fn queue(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>) -> Result<()>;

    /// Waits for what was queued, and adds the rows that `out` lacks.
    ///
    /// # Errors
    ///
    /// What was queued has failed.
    fn finish(&mut self, out: &mut Vec<f32>) -> Result<()>;
}

/// Layers that queue nothing.
struct AtOnce<'a, L>(&'a mut L);

impl<L: Layers> QueuedLayers for AtOnce<'_, L> {
    fn row_bytes(&self, layer: usize, features: &FeatureMatrix) -> usize {
        self.0.row_bytes(layer, features)
    }

    fn queue(&mut self, layer: usize, input: Input<'_>, chunk: &Chunk, out: &mut Vec<f32>) -> Result<()> {
        self.0.evaluate(layer, input, chunk, out);
        Ok(())
    }

    fn finish(&mut self, _out: &mut Vec<f32>) -> Result<()> {
        Ok(())
    }
}

/// Logits of `nodes`, in their order, computed with all their neighbours.
///
/// # Errors
///
/// A node that does not exist, or a dataset without features.
///
/// # Complexity
///
/// Every layer once over all nodes, but for the last, which is computed of `nodes` alone.
pub fn infer(
    operator: (Key, &ModelSpec),
    layers: &mut impl Layers,
    dataset: &Dataset,
    nodes: &[u32],
    limits: Limits,
) -> Result<Vec<f32>> {
    infer_queued(operator, &mut AtOnce(layers), dataset, nodes, limits)
}

/// The same by work that is queued: the next chunk is made while the one before is computed.
///
/// # Errors
///
/// As [`infer`], and layers that fail.
///
/// # Complexity
///
/// As [`infer`].
pub fn infer_queued(
    (key, model): (Key, &ModelSpec),
    layers: &mut impl QueuedLayers,
    dataset: &Dataset,
    nodes: &[u32],
    limits: Limits,
) -> Result<Vec<f32>> {
    let num_nodes = dataset.num_nodes();
    if let Some(node) = nodes.iter().find(|v| **v as usize >= num_nodes) {
        return Err(Error::setting(key, format!("there is no node {node} to infer, there are {num_nodes}")));
    }
    let features = dataset.features.as_ref().ok_or_else(|| {
        Error::setting(key, "the dataset has no features; import it with features, or with --random-features")
    })?;
    let everything: Vec<u32> = (0..num_nodes as u32).collect();
    let (asked, places) = distinct(nodes, num_nodes);
    let mut chunker = Chunker::new(&dataset.topology, model.reads_graph());
    let mut x: Vec<f32> = Vec::new();
    for layer in 0..model.layers {
        let shape = model.layer(layer);
        let rows = if shape.last { &asked } else { &everything };
        let num_src = limits.bytes / layers.row_bytes(layer, features).max(1);
        let input = if layer == 0 { Input::Features(features) } else { Input::Rows(&x) };
        let mut out = Vec::with_capacity(rows.len() * shape.out_dim);
        let mut done = 0;
        while done < rows.len() {
            let chunk = chunker.next(&rows[done..], num_src, limits);
            done += chunk.block.num_dst;
            layers.queue(layer, input, chunk, &mut out)?;
        }
        layers.finish(&mut out)?;
        x = out;
    }
    if asked.len() == nodes.len() {
        return Ok(x);
    }
    let classes = model.num_classes;
    Ok(places.iter().flat_map(|&p| &x[p as usize * classes..(p as usize + 1) * classes]).copied().collect())
}

/// Bytes that [`infer`] takes at most, of all nodes of `dataset` and as many logits.
///
/// # Complexity
///
/// O(layers).
pub fn infer_bytes(model: &ModelSpec, dataset: &Dataset, limits: Limits) -> u64 {
    let (nodes, edges) = (dataset.num_nodes() as u64, dataset.topology.num_edges());
    let floats = |width: usize| 4 * width as u64;
    let of_layer = |l: usize| {
        let shape = model.layer(l);
        let (input, output) = (if l == 0 { 0 } else { shape.in_dim }, shape.out_dim);
        // Of a chunk: its rows as they come and, of a layer without a fixed shape, twice as they go.
        let row = floats(shape.in_dim + 2 * output.max(shape.heads * shape.head_dim));
        nodes * floats(input + output) + (nodes * row).min(limits.bytes as u64)
    };
    let rows = (0..model.layers).map(of_layer).max().unwrap_or(0);
    // Ids, places, degrees, local ids and marks of nodes; the edges of a chunk, with weights.
    rows + nodes * 28 + edges.min(limits.edges as u64) * 8
}

/// Each node once, by first appearance, and the place of each of `nodes` among them.
fn distinct(nodes: &[u32], num_nodes: usize) -> (Vec<u32>, Vec<u32>) {
    let (mut asked, mut place) = (Vec::new(), vec![u32::MAX; num_nodes]);
    let places = nodes.iter().map(|&v| {
        if place[v as usize] == u32::MAX {
            place[v as usize] = asked.len() as u32;
            asked.push(v);
        }
        place[v as usize]
    });
    let places = places.collect();
    (asked, places)
}

#[cfg(test)]
mod tests;
