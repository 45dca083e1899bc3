//! Destination nodes with all their neighbours, in chunks that fit a budget.

use std::ops::Range;

use morphgl_graph_store::Topology;

/// What a chunk holds at most, unless one row alone holds more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of gathered input rows and of the layer's output.
    pub(crate) bytes: usize,
    /// Edges.
    pub(crate) edges: usize,
    /// Destination rows.
    pub(crate) rows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 256 << 20, edges: 4 << 20, rows: 1 << 17 }
    }
}

/// Some destination nodes with all their neighbours; the destination nodes are the first of `nodes`.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) nodes: Vec<u32>,
    pub(crate) degrees: Vec<f32>,
    pub(crate) num_dst: usize,
    pub(crate) indptr: Vec<u32>,
    pub(crate) indices: Vec<u32>,
    pub(crate) weights: Option<Vec<f32>>,
}

/// Cuts rows into chunks.
#[derive(Debug)]
pub(crate) struct Chunker<'a> {
    topology: &'a Topology,
    neighbours: bool,
    limits: Limits,
    /// Local id of a node where `seen` is the chunk's number.
    local: Vec<u32>,
    seen: Vec<u32>,
    number: u32,
}

impl<'a> Chunker<'a> {
    /// `neighbours` says whether the model reads the graph.
    pub(crate) fn new(topology: &'a Topology, neighbours: bool, limits: Limits) -> Self {
        let n = topology.num_nodes();
        Self { topology, neighbours, limits, local: vec![0; n], seen: vec![0; n], number: 0 }
    }

    /// The next chunk: as many of `rows` as the limits allow with `row_bytes` a node read, at least one.
    pub(crate) fn next(&mut self, rows: &[u32], row_bytes: usize) -> Chunk {
        let rows = &rows[..self.fitting(rows, self.limits.bytes / row_bytes.max(1))];
        let number = self.begin();
        let mut chunk = Chunk { nodes: rows.to_vec(), num_dst: rows.len(), indptr: vec![0], ..Chunk::default() };
        for (i, &v) in rows.iter().enumerate() {
            (self.local[v as usize], self.seen[v as usize]) = (i as u32, number);
        }
        let weights = self.topology.weights();
        let mut kept = weights.map(|_| Vec::new());
        for &v in rows {
            let edges = self.edges(v);
            for &u in &self.topology.indices()[edges.clone()] {
                if self.seen[u as usize] != number {
                    (self.local[u as usize], self.seen[u as usize]) = (chunk.nodes.len() as u32, number);
                    chunk.nodes.push(u);
                }
                chunk.indices.push(self.local[u as usize]);
            }
            if let (Some(kept), Some(weights)) = (&mut kept, weights) {
                kept.extend_from_slice(&weights[edges]);
            }
            chunk.indptr.push(chunk.indices.len() as u32);
        }
        chunk.weights = kept;
        chunk.degrees = chunk.nodes.iter().map(|&v| self.degree(v)).collect();
        chunk
    }

    /// A node's in-degree, or the sum of its edges' weights: what batching states of input nodes.
    fn degree(&self, v: u32) -> f32 {
        match self.topology.weights() {
            Some(weights) => weights[self.topology.edge_range(v)].iter().sum(),
            None => self.topology.degree(v) as f32,
        }
    }

    /// Number of the first rows that read at most `num_src` nodes, at least one row.
    fn fitting(&mut self, rows: &[u32], num_src: usize) -> usize {
        let number = self.begin();
        let (mut count, mut edges) = (0, 0);
        for (i, &v) in rows.iter().enumerate() {
            let row = self.edges(v);
            edges += row.len();
            for &u in std::iter::once(&v).chain(&self.topology.indices()[row]) {
                count += usize::from(self.seen[u as usize] != number);
                self.seen[u as usize] = number;
            }
            if i > 0 && (count > num_src || edges > self.limits.edges || i == self.limits.rows) {
                return i;
            }
        }
        rows.len()
    }

    /// A number that no node has been seen by.
    fn begin(&mut self) -> u32 {
        self.number = self.number.checked_add(1).unwrap_or_else(|| {
            self.seen.fill(0);
            1
        });
        self.number
    }

    fn edges(&self, v: u32) -> Range<usize> {
        if self.neighbours { self.topology.edge_range(v) } else { 0..0 }
    }
}

#[cfg(test)]
mod tests {
    use morphgl_conformance::training::tiny;

    use super::*;

    #[test]
    fn a_chunk_keeps_its_limits() {
        let dataset = tiny();
        let limits = Limits { bytes: 600, edges: 7, rows: 4 };
        let mut chunker = Chunker::new(&dataset.topology, true, limits);
        let rows: Vec<u32> = (0..12).collect();
        let mut done = 0;
        while done < rows.len() {
            let chunk = chunker.next(&rows[done..], 100);
            assert!(
                chunk.nodes.len() <= 6 && chunk.indices.len() <= 7 && (1..=4).contains(&chunk.num_dst),
                "{chunk:?}"
            );
            assert_eq!(chunk.nodes[..chunk.num_dst], rows[done..done + chunk.num_dst]);
            for row in 0..chunk.num_dst {
                let edges = chunk.indptr[row] as usize..chunk.indptr[row + 1] as usize;
                let sources: Vec<u32> = chunk.indices[edges].iter().map(|&u| chunk.nodes[u as usize]).collect();
                assert_eq!(sources, dataset.topology.neighbors(rows[done + row]));
            }
            done += chunk.num_dst;
        }
    }
}
