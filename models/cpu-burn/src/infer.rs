//! Full-neighbour inference: layer by layer over all nodes, in chunks of rows that fit a budget.

use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};
use morphgl_graph_store::{Dataset, FeatureMatrix, Topology};
use morphgl_layers::{Features, Pass, adjacency, values};
use morphgl_model_spec::ModelKind;
use morphgl_registry::{BatchFeatures, Block, Error, Result};
use rayon::prelude::*;

use crate::KEY;

/// Bytes of input rows a chunk gathers at most, unless one row alone has more neighbours than that.
const CHUNK_BYTES: usize = 256 << 20;
/// Edges of a chunk at most, alike.
const CHUNK_EDGES: u64 = 4 << 20;
/// Destination rows of a chunk at most.
const CHUNK_ROWS: usize = 1 << 17;

/// Logits of `nodes`, in their order.
pub(crate) fn infer(pass: &Pass<'_>, dataset: &Dataset, nodes: &[u32]) -> Result<Vec<f32>> {
    let (num_nodes, spec) = (dataset.num_nodes(), pass.spec);
    if let Some(node) = nodes.iter().find(|v| **v as usize >= num_nodes) {
        return Err(Error::setting(KEY, format!("there is no node {node} to infer, there are {num_nodes}")));
    }
    let features = dataset.features.as_ref().ok_or_else(|| {
        Error::setting(KEY, "the dataset has no features; import it with features, or with --random-features")
    })?;
    let everything: Vec<u32> = (0..num_nodes as u32).collect();
    let (asked, places) = distinct(nodes, num_nodes);
    let degrees = in_degrees(&dataset.topology);
    let mut chunker = Chunker::new(&dataset.topology, &degrees, spec.kind != ModelKind::Mlp);
    let mut x: Option<Vec<f32>> = None;
    for layer in 0..spec.layers {
        let shape = spec.layer(layer);
        let rows = if shape.last { &asked } else { &everything };
        let width = if layer == 0 { features.row_bytes() } else { 4 * shape.in_dim };
        let mut out = Vec::with_capacity(rows.len() * shape.out_dim);
        let mut done = 0;
        while done < rows.len() {
            let chunk = chunker.next(&rows[done..], CHUNK_BYTES / (width + 4 * shape.out_dim).max(1));
            done += chunk.block.num_dst;
            let input = match &x {
                None => read(pass, features, &chunk.nodes),
                Some(x) => Features::Dense(gather(x, shape.in_dim, &chunk.nodes)),
            };
            let block = adjacency(spec, &chunk.block, &chunk.degrees);
            let y = pass.layer(layer, &input, block.as_ref(), &mut Vec::new());
            out.extend(values(y));
        }
        x = Some(out);
    }
    let (logits, classes) = (x.unwrap_or_default(), spec.num_classes);
    if asked.len() == nodes.len() {
        return Ok(logits);
    }
    Ok(places.iter().flat_map(|&p| &logits[p as usize * classes..(p as usize + 1) * classes]).copied().collect())
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

/// In-degree of every node, or the sum of its edges' weights: what batching states of input nodes.
fn in_degrees(topology: &Topology) -> Vec<f32> {
    let degree = |v: u32| match topology.weights() {
        Some(weights) => weights[topology.edge_range(v)].iter().sum(),
        None => topology.degree(v) as f32,
    };
    (0..topology.num_nodes() as u32).into_par_iter().map(degree).collect()
}

/// Input rows of some nodes, from the dataset.
fn read(pass: &Pass<'_>, features: &FeatureMatrix, nodes: &[u32]) -> Features {
    let (view, row) = (features.view(), features.row_bytes());
    let mut rows = BatchFeatures::like(features);
    let out = rows.resize(nodes.len(), features.dim(), features.dtype());
    copy_rows(view.as_bytes(), row, nodes, out);
    pass.read_features(rows.view(), nodes.len(), &Device::flex())
}

/// Rows of some nodes, from a layer's output.
fn gather(x: &[f32], width: usize, nodes: &[u32]) -> Tensor<2> {
    let mut rows = vec![0.0; nodes.len() * width];
    copy_rows(x, width, nodes, &mut rows);
    Tensor::from_data(TensorData::new(rows, [nodes.len(), width]), &Device::flex())
}

fn copy_rows<T: Copy + Send + Sync>(from: &[T], width: usize, nodes: &[u32], to: &mut [T]) {
    if width > 0 {
        to.par_chunks_mut(width).zip(nodes).with_min_len(64).for_each(|(row, &v)| {
            row.copy_from_slice(&from[v as usize * width..(v as usize + 1) * width]);
        });
    }
}

/// Some destination nodes with all their neighbours.
struct Chunk {
    nodes: Vec<u32>,
    degrees: Vec<f32>,
    block: Block,
}

/// Cuts rows into chunks.
struct Chunker<'a> {
    topology: &'a Topology,
    degrees: &'a [f32],
    neighbours: bool,
    /// Local id of a node where `seen` is the chunk's number.
    local: Vec<u32>,
    seen: Vec<u32>,
    number: u32,
}

impl<'a> Chunker<'a> {
    fn new(topology: &'a Topology, degrees: &'a [f32], neighbours: bool) -> Self {
        let n = topology.num_nodes();
        Self { topology, degrees, neighbours, local: vec![0; n], seen: vec![0; n], number: 0 }
    }

    /// The next chunk: as many of `rows` as read at most `limit` nodes, at least one.
    fn next(&mut self, rows: &[u32], limit: usize) -> Chunk {
        let rows = &rows[..self.fitting(rows, limit)];
        self.number += 1;
        let mut nodes = rows.to_vec();
        for (i, &v) in rows.iter().enumerate() {
            (self.local[v as usize], self.seen[v as usize]) = (i as u32, self.number);
        }
        let mut block = Block { num_dst: rows.len(), indptr: vec![0], ..Block::default() };
        let weights = self.topology.weights();
        let mut kept = weights.map(|_| Vec::new());
        for &v in rows {
            let edges = self.edges(v);
            for &u in &self.topology.indices()[edges.clone()] {
                if self.seen[u as usize] != self.number {
                    (self.local[u as usize], self.seen[u as usize]) = (nodes.len() as u32, self.number);
                    nodes.push(u);
                }
                block.indices.push(self.local[u as usize]);
            }
            if let (Some(kept), Some(weights)) = (&mut kept, weights) {
                kept.extend_from_slice(&weights[edges]);
            }
            block.indptr.push(block.indices.len() as u32);
        }
        (block.num_src, block.weights) = (nodes.len(), kept);
        let degrees = nodes.iter().map(|&v| self.degrees[v as usize]).collect();
        Chunk { nodes, degrees, block }
    }

    /// Number of the first rows that read at most `limit` nodes, at least one row.
    fn fitting(&mut self, rows: &[u32], limit: usize) -> usize {
        self.number += 1;
        let (mut count, mut edges) = (0, 0);
        for (i, &v) in rows.iter().enumerate() {
            let row = self.edges(v);
            edges += row.len() as u64;
            for &u in std::iter::once(&v).chain(&self.topology.indices()[row]) {
                count += usize::from(self.seen[u as usize] != self.number);
                self.seen[u as usize] = self.number;
            }
            if i > 0 && (count > limit || edges > CHUNK_EDGES || i == CHUNK_ROWS) {
                return i;
            }
        }
        rows.len()
    }

    fn edges(&self, v: u32) -> Range<usize> {
        if self.neighbours { self.topology.edge_range(v) } else { 0..0 }
    }
}
