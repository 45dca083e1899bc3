//! Full-neighbour inference: layer by layer over all nodes, in chunks of rows that fit a budget.

use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};
use morphgl_graph_store::{Dataset, Topology};
use morphgl_layers::{Features, Pass, adjacency, values};
use morphgl_model_spec::ModelKind;
use morphgl_registry::{Block, Error, Result};
use rayon::prelude::*;

use crate::KEY;

/// What a chunk holds at most, unless one row alone holds more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of gathered input rows.
    bytes: usize,
    /// Edges.
    edges: usize,
    /// Destination rows.
    rows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 256 << 20, edges: 4 << 20, rows: 1 << 17 }
    }
}

/// Logits of `nodes`, in their order.
pub(crate) fn infer(pass: &Pass<'_>, dataset: &Dataset, nodes: &[u32], limits: Limits) -> Result<Vec<f32>> {
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
        let width =
            if layer == 0 { Features::gathered_row_bytes(features.view(), spec.in_dim) } else { 4 * shape.in_dim };
        let mut out = Vec::with_capacity(rows.len() * shape.out_dim);
        let mut done = 0;
        while done < rows.len() {
            let chunk = chunker.next(&rows[done..], limits.bytes / (width + 4 * shape.out_dim).max(1), limits);
            done += chunk.block.num_dst;
            let input = match &x {
                None => Features::gather(features.view(), spec.in_dim, &chunk.nodes, &Device::flex()),
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

/// Rows of some nodes, from a layer's output.
fn gather(x: &[f32], width: usize, nodes: &[u32]) -> Tensor<2> {
    let mut rows = vec![0.0; nodes.len() * width];
    if width > 0 {
        rows.par_chunks_mut(width).zip(nodes).with_min_len(64).for_each(|(row, &v)| {
            row.copy_from_slice(&x[v as usize * width..(v as usize + 1) * width]);
        });
    }
    Tensor::from_data(TensorData::new(rows, [nodes.len(), width]), &Device::flex())
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

    /// The next chunk: as many of `rows` as read at most `num_src` nodes, at least one.
    fn next(&mut self, rows: &[u32], num_src: usize, limits: Limits) -> Chunk {
        let rows = &rows[..self.fitting(rows, num_src, limits)];
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

    /// Number of the first rows that read at most `num_src` nodes, at least one row.
    fn fitting(&mut self, rows: &[u32], num_src: usize, limits: Limits) -> usize {
        self.number += 1;
        let (mut count, mut edges) = (0, 0);
        for (i, &v) in rows.iter().enumerate() {
            let row = self.edges(v);
            edges += row.len();
            for &u in std::iter::once(&v).chain(&self.topology.indices()[row]) {
                count += usize::from(self.seen[u as usize] != self.number);
                self.seen[u as usize] = self.number;
            }
            if i > 0 && (count > num_src || edges > limits.edges || i == limits.rows) {
                return i;
            }
        }
        rows.len()
    }

    fn edges(&self, v: u32) -> Range<usize> {
        if self.neighbours { self.topology.edge_range(v) } else { 0..0 }
    }
}

#[cfg(test)]
mod tests {
    use morphgl_conformance::training::tiny;
    use morphgl_layers::{Mode, Parameters};
    use morphgl_model_spec::{ModelSpec, initial_parameters};

    use super::*;

    #[test]
    fn chunks_of_any_size_give_the_same_logits() {
        let dataset = tiny();
        let all: Vec<u32> = (0..12).rev().collect();
        for kind in ModelKind::ALL {
            let spec = ModelSpec { hidden: 8, heads: 2, ..ModelSpec::new(kind, dataset.feature_dim(), 2) };
            let parameters = Parameters::new(&initial_parameters(&spec, 1), &Device::flex());
            let pass = Pass { spec: &spec, parameters: &parameters, mode: Mode::Evaluation };
            let whole = infer(&pass, &dataset, &all, Limits::default()).expect("logits");
            let large = Limits::default();
            for limits in [
                Limits { bytes: 1, ..large },
                Limits { bytes: 300, ..large },
                Limits { edges: 4, ..large },
                Limits { rows: 5, ..large },
            ] {
                let parts = infer(&pass, &dataset, &all, limits).expect("logits");
                let near = parts.iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-5 * b.abs().max(1.0));
                assert!(near && parts.len() == whole.len(), "{kind}, {limits:?}: {parts:?}, in one chunk {whole:?}");
            }
        }
    }

    #[test]
    fn a_chunk_keeps_its_limits() {
        let dataset = tiny();
        let degrees = in_degrees(&dataset.topology);
        let mut chunker = Chunker::new(&dataset.topology, &degrees, true);
        let rows: Vec<u32> = (0..12).collect();
        let mut done = 0;
        while done < rows.len() {
            let chunk = chunker.next(&rows[done..], 6, Limits { edges: 7, rows: 4, ..Limits::default() });
            let block = &chunk.block;
            assert!(block.num_src <= 6 && block.num_edges() <= 7 && (1..=4).contains(&block.num_dst), "{block:?}");
            assert_eq!(chunk.nodes[..block.num_dst], rows[done..done + block.num_dst]);
            for row in 0..block.num_dst {
                let sources: Vec<u32> = block.row(row).iter().map(|&u| chunk.nodes[u as usize]).collect();
                assert_eq!(sources, dataset.topology.neighbors(rows[done + row]));
            }
            done += block.num_dst;
        }
    }
}
