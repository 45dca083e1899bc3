//! Chunks of rows within limits: destination nodes with all their neighbours.

use std::ops::Range;

use morphgl_graph_store::{Result, Topology};
use morphgl_registry::Block;
use rayon::prelude::*;

/// Maximum size of a chunk, unless a single row exceeds it.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of input and output rows. Default 256 MiB.
    pub bytes: usize,
    /// Edges. Default 4 Mi.
    pub edges: usize,
    /// Destination rows. Default unlimited.
    pub rows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 256 << 20, edges: 4 << 20, rows: usize::MAX }
    }
}

/// Destination nodes with all their neighbours.
#[derive(Debug, Default)]
pub struct Chunk {
    /// Node of each local id, the destination nodes first.
    pub nodes: Vec<u32>,
    /// In-degree of each node in the whole graph; with weights, the sum of its in-edges' weights.
    pub degrees: Vec<f32>,
    /// The edges; none for a model that reads no graph.
    pub block: Block,
}

/// Splits rows into chunks, all built in the same memory.
#[derive(Debug)]
pub(crate) struct Chunker<'a> {
    topology: &'a Topology,
    neighbours: bool,
    degrees: Vec<f32>,
    chunk: Chunk,
    /// Local id of a node, valid if `seen` is the chunk's number.
    local: Vec<u32>,
    seen: Vec<u32>,
    number: u32,
}

impl<'a> Chunker<'a> {
    pub(crate) fn new(topology: &'a Topology, neighbours: bool) -> Self {
        let n = topology.num_nodes();
        let degrees = in_degrees(topology);
        Self { topology, neighbours, degrees, chunk: Chunk::default(), local: vec![0; n], seen: vec![0; n], number: 0 }
    }

    /// The next chunk: the longest prefix of `rows`, at least one row, that reads at most `num_src` nodes.
    ///
    /// # Errors
    ///
    /// A neighbour does not exist: the mapped file was changed.
    pub(crate) fn next(&mut self, rows: &[u32], num_src: usize, limits: Limits) -> Result<&Chunk> {
        let rows = &rows[..self.fitting(rows, num_src, limits)?];
        self.number += 1;
        let topology = self.topology;
        let mut chunk = std::mem::take(&mut self.chunk);
        let Chunk { nodes, degrees, block } = &mut chunk;
        nodes.clear();
        nodes.extend_from_slice(rows);
        for (i, &v) in rows.iter().enumerate() {
            (self.local[v as usize], self.seen[v as usize]) = (i as u32, self.number);
        }
        block.indptr.clear();
        block.indptr.push(0);
        block.indices.clear();
        let weights = topology.weights();
        let mut chunk_weights = weights.map(|_| block.weights.take().unwrap_or_default());
        chunk_weights.iter_mut().for_each(Vec::clear);
        let edge_types = topology.edge_types();
        let mut chunk_types = edge_types.map(|_| block.edge_types.take().unwrap_or_default());
        chunk_types.iter_mut().for_each(Vec::clear);
        let edge_ids = topology.edge_ids();
        let mut chunk_ids = edge_ids.map(|_| block.edge_ids.take().unwrap_or_default());
        chunk_ids.iter_mut().for_each(Vec::clear);
        for &v in rows {
            let edges = self.edges(v);
            for &u in &topology.indices()[edges.clone()] {
                let Some((local, seen)) = self.local.get_mut(u as usize).zip(self.seen.get_mut(u as usize)) else {
                    return Err(topology.unknown_neighbor(u));
                };
                if *seen != self.number {
                    (*local, *seen) = (nodes.len() as u32, self.number);
                    nodes.push(u);
                }
                block.indices.push(*local);
            }
            if let (Some(chunk_weights), Some(weights)) = (&mut chunk_weights, weights) {
                chunk_weights.extend_from_slice(&weights[edges.clone()]);
            }
            if let (Some(chunk_types), Some(edge_types)) = (&mut chunk_types, edge_types) {
                chunk_types.extend_from_slice(&edge_types[edges.clone()]);
            }
            if let (Some(chunk_ids), Some(edge_ids)) = (&mut chunk_ids, edge_ids) {
                chunk_ids.extend_from_slice(&edge_ids[edges]);
            }
            block.indptr.push(block.indices.len() as u32);
        }
        (block.num_dst, block.num_src) = (rows.len(), nodes.len());
        (block.weights, block.edge_types, block.edge_ids) = (chunk_weights, chunk_types, chunk_ids);
        degrees.clear();
        degrees.extend(nodes.iter().map(|&v| self.degrees[v as usize]));
        self.chunk = chunk;
        Ok(&self.chunk)
    }

    /// Number of the first rows that read at most `num_src` nodes, at least one row.
    fn fitting(&mut self, rows: &[u32], num_src: usize, limits: Limits) -> Result<usize> {
        self.number += 1;
        let (mut count, mut edges) = (0, 0);
        for (i, &v) in rows.iter().enumerate() {
            let row = self.edges(v);
            edges += row.len();
            for &u in std::iter::once(&v).chain(&self.topology.indices()[row]) {
                let seen = self.seen.get_mut(u as usize).ok_or_else(|| self.topology.unknown_neighbor(u))?;
                count += usize::from(*seen != self.number);
                *seen = self.number;
            }
            if i > 0 && (count > num_src || edges > limits.edges || i == limits.rows) {
                return Ok(i);
            }
        }
        Ok(rows.len())
    }

    fn edges(&self, v: u32) -> Range<usize> {
        if self.neighbours { self.topology.edge_range(v) } else { 0..0 }
    }
}

/// Degrees as batching reports them for input nodes: in-degree, or with weights the sum of the in-edges' weights.
fn in_degrees(topology: &Topology) -> Vec<f32> {
    let degree = |v: u32| match topology.weights() {
        Some(weights) => weights[topology.edge_range(v)].iter().sum(),
        None => topology.degree(v) as f32,
    };
    (0..topology.num_nodes() as u32).into_par_iter().map(degree).collect()
}

#[cfg(test)]
mod tests;
