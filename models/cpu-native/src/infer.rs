//! Full-neighbour inference: layer by layer over all nodes, in chunks of rows that fit a budget.

use std::ops::Range;

use morphgl_graph_store::{Dataset, Topology};
use morphgl_model_spec::ModelSpec;
use morphgl_registry::{Block, Error, Result};

use crate::KEY;
use crate::network::{Network, part, reads_graph};
use crate::parallel;

/// What a chunk holds at most, unless one row alone holds more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of gathered input rows and of output rows.
    pub(crate) bytes: usize,
    /// Edges.
    pub(crate) edges: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 256 << 20, edges: 4 << 20 }
    }
}

/// Logits of `nodes`, in their order.
pub(crate) fn infer(
    (network, spec, parameters): (&mut Network, &ModelSpec, &[f32]),
    dataset: &Dataset,
    nodes: &[u32],
    limits: Limits,
) -> Result<Vec<f32>> {
    let num_nodes = dataset.num_nodes();
    if let Some(node) = nodes.iter().find(|v| **v as usize >= num_nodes) {
        return Err(Error::setting(KEY, format!("there is no node {node} to infer, there are {num_nodes}")));
    }
    let features = dataset.features.as_ref().ok_or_else(|| {
        Error::setting(KEY, "the dataset has no features; import it with features, or with --random-features")
    })?;
    let everything: Vec<u32> = (0..num_nodes as u32).collect();
    let (asked, places) = distinct(nodes, num_nodes);
    let topology = &dataset.topology;
    let mut degrees = vec![0.0; num_nodes];
    parallel::pieces(&mut degrees, 1 << 12, &|task, degrees| {
        for (i, d) in degrees.iter_mut().enumerate() {
            let v = (task << 12 | i) as u32;
            *d = topology.weights().map_or(topology.degree(v) as f32, |w| w[topology.edge_range(v)].iter().sum());
        }
    });
    let mut chunker = Chunker::new(topology, reads_graph(spec));
    let mut x: Vec<f32> = Vec::new();
    for layer in 0..spec.layers {
        let shape = spec.layer(layer);
        let rows = if shape.last { &asked } else { &everything };
        let row_bytes = 4 * (shape.in_dim + 2 * shape.out_dim.max(shape.heads * shape.head_dim));
        let mut out = Vec::with_capacity(rows.len() * shape.out_dim);
        let (mut done, mut input, mut of_nodes) = (0, Vec::new(), Vec::new());
        while done < rows.len() {
            chunker.next(&rows[done..], limits.bytes / row_bytes, limits.edges);
            let (block, nodes, dim) = (&chunker.block, &chunker.nodes, shape.in_dim);
            done += block.num_dst;
            input.resize(nodes.len() * dim, 0.0);
            parallel::tasks(nodes.len().div_ceil(64), [(&mut input[..], 64 * dim)], &|task, [out]| {
                for (out, &v) in out.chunks_exact_mut(dim).zip(&nodes[64 * task..]) {
                    match layer {
                        0 => part(features.view(), v as usize * dim, dim).to_f32(out),
                        _ => out.copy_from_slice(&x[v as usize * dim..(v as usize + 1) * dim]),
                    }
                }
            });
            of_nodes.clear();
            of_nodes.extend(nodes.iter().map(|&v| degrees[v as usize]));
            let graph = (reads_graph(spec).then_some(block), &of_nodes[..], block.num_dst);
            out.extend_from_slice(network.evaluate_layer(layer, parameters, graph, &input));
        }
        x = out;
    }
    if asked.len() == nodes.len() {
        return Ok(x);
    }
    let classes = spec.num_classes;
    Ok(places.iter().flat_map(|&p| &x[p as usize * classes..(p as usize + 1) * classes]).copied().collect())
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

/// Cuts rows into chunks: some destination nodes with all their neighbours.
struct Chunker<'a> {
    topology: &'a Topology,
    neighbours: bool,
    block: Block,
    /// Node of each local id.
    nodes: Vec<u32>,
    /// Local id of a node where `seen` is the chunk's number.
    local: Vec<u32>,
    seen: Vec<u32>,
    number: u32,
}

impl<'a> Chunker<'a> {
    fn new(topology: &'a Topology, neighbours: bool) -> Self {
        let n = topology.num_nodes();
        let block = Block { weights: topology.weights().map(|_| Vec::new()), ..Block::default() };
        Self { topology, neighbours, block, nodes: Vec::new(), local: vec![0; n], seen: vec![0; n], number: 0 }
    }

    fn edges(&self, v: u32) -> Range<usize> {
        if self.neighbours { self.topology.edge_range(v) } else { 0..0 }
    }

    /// Number of the first rows that read at most `num_src` nodes and `num_edges` edges, at least one row.
    fn fitting(&mut self, rows: &[u32], num_src: usize, num_edges: usize) -> usize {
        self.number += 1;
        let (mut count, mut edges) = (0, 0);
        for (i, &v) in rows.iter().enumerate() {
            let row = self.edges(v);
            edges += row.len();
            for &u in std::iter::once(&v).chain(&self.topology.indices()[row]) {
                count += usize::from(self.seen[u as usize] != self.number);
                self.seen[u as usize] = self.number;
            }
            if i > 0 && (count > num_src || edges > num_edges) {
                return i;
            }
        }
        rows.len()
    }

    /// Makes `block` and `nodes` of the next chunk of `rows`.
    fn next(&mut self, rows: &[u32], num_src: usize, num_edges: usize) {
        let rows = &rows[..self.fitting(rows, num_src, num_edges)];
        self.number += 1;
        self.nodes.clear();
        self.nodes.extend_from_slice(rows);
        for (i, &v) in rows.iter().enumerate() {
            (self.local[v as usize], self.seen[v as usize]) = (i as u32, self.number);
        }
        self.block.indptr.clear();
        self.block.indptr.push(0);
        self.block.indices.clear();
        self.block.weights.iter_mut().for_each(Vec::clear);
        for &v in rows {
            let edges = self.edges(v);
            for &u in &self.topology.indices()[edges.clone()] {
                if self.seen[u as usize] != self.number {
                    (self.local[u as usize], self.seen[u as usize]) = (self.nodes.len() as u32, self.number);
                    self.nodes.push(u);
                }
                self.block.indices.push(self.local[u as usize]);
            }
            if let (Some(kept), Some(weights)) = (&mut self.block.weights, self.topology.weights()) {
                kept.extend_from_slice(&weights[edges]);
            }
            self.block.indptr.push(self.block.indices.len() as u32);
        }
        (self.block.num_dst, self.block.num_src) = (rows.len(), self.nodes.len());
    }
}
