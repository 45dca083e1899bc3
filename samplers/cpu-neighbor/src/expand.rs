//! One hop: picks neighbours of rows, row chunks side by side where there are threads for it.

use std::ops::Range;

use morphgl_graph_store::{Topology, prefetch};
use morphgl_registry::{BatchId, Fanout, Pick};
use morphgl_sampler_core::{Row, UniformScratch, WeightedScratch, count_positive, pick_uniform, pick_weighted};

/// Rows that are picked before their neighbours are read: long enough to hide the way to memory, short enough that what
/// was asked for is still in the cache.
const GROUP: usize = 32;
/// Nodes whose offsets are asked for ahead of their turn.
const AHEAD: usize = 16;
/// Rows below which a chunk is not split further.
const MIN_ROWS: usize = 64;

/// Where a node's in-neighbours stand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) degree: u32,
}

impl Span {
    fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.degree as usize
    }
}

/// Appends the spans of `nodes`.
pub(crate) fn spans(topology: &Topology, nodes: &[u32], spans: &mut Vec<Span>) {
    let indptr: &[u64] = topology.indptr();
    spans.extend(nodes.iter().enumerate().map(|(i, &node)| {
        if let Some(&later) = nodes.get(i + AHEAD) {
            prefetch(indptr, later as usize);
        }
        let (start, end) = (indptr[node as usize], indptr[node as usize + 1]);
        Span { start, degree: (end - start) as u32 }
    }));
}

/// What the picks of one hop have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hop<'a> {
    pub(crate) indices: &'a [u32],
    pub(crate) weights: Option<&'a [f32]>,
    pub(crate) pick: Pick,
    pub(crate) fanout: Fanout,
    pub(crate) seed: u64,
    pub(crate) batch: BatchId,
    pub(crate) hop: u32,
}

/// A thread's buffers.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    uniform: UniformScratch,
    weighted: WeightedScratch,
}

/// Consecutive rows and the room for what they pick.
pub(crate) struct Rows<'a> {
    pub(crate) nodes: &'a [u32],
    pub(crate) spans: &'a [Span],
    /// Offsets of the rows, one more than rows.
    pub(crate) indptr: &'a [u32],
    /// Global ids of the neighbours, from `indptr[0]` on.
    pub(crate) picked: &'a mut [u32],
    /// Weights of the edges, as many, or none where the graph has none.
    pub(crate) weights: &'a mut [f32],
}

impl<'a> Rows<'a> {
    fn split(self) -> (Rows<'a>, Rows<'a>) {
        let half = self.nodes.len() / 2;
        let edges = (self.indptr[half] - self.indptr[0]) as usize;
        let (nodes, spans) = (self.nodes.split_at(half), self.spans.split_at(half));
        let (picked, weights) =
            (self.picked.split_at_mut(edges), self.weights.split_at_mut(edges.min(self.weights.len())));
        (
            Rows {
                nodes: nodes.0,
                spans: spans.0,
                indptr: &self.indptr[..=half],
                picked: picked.0,
                weights: weights.0,
            },
            Rows { nodes: nodes.1, spans: spans.1, indptr: &self.indptr[half..], picked: picked.1, weights: weights.1 },
        )
    }
}

impl Hop<'_> {
    /// Number of neighbours that are picked of a node.
    pub(crate) fn count(&self, span: Span) -> u64 {
        let take = self.fanout.take(u64::from(span.degree));
        match (self.pick, self.weights) {
            (Pick::Weighted, Some(weights)) => count_positive(&weights[span.range()], take as usize) as u64,
            _ => take,
        }
    }

    /// Picks the neighbours of all rows, on as many threads of the current pool as there are buffers.
    pub(crate) fn pick(&self, rows: Rows<'_>, scratch: &mut [Scratch]) {
        if scratch.len() > 1 && rows.nodes.len() > MIN_ROWS {
            let (left, right) = rows.split();
            let (a, b) = scratch.split_at_mut(scratch.len() / 2);
            rayon::join(|| self.pick(left, a), || self.pick(right, b));
        } else if let [scratch, ..] = scratch {
            self.pick_here(rows, scratch);
        }
    }

    fn pick_here(&self, rows: Rows<'_>, scratch: &mut Scratch) {
        let base = rows.indptr[0];
        let range = |row: usize| (rows.indptr[row] - base) as usize..(rows.indptr[row + 1] - base) as usize;
        for group in (0..rows.nodes.len()).step_by(GROUP) {
            let group = group..(group + GROUP).min(rows.nodes.len());
            for row in group.clone() {
                let (span, out) = (rows.spans[row], &mut rows.picked[range(row)]);
                self.positions(rows.nodes[row], span, out, scratch);
                for &position in &*out {
                    prefetch(self.indices, span.start as usize + position as usize);
                }
            }
            for row in group {
                let start = rows.spans[row].start as usize;
                if let Some(weights) = self.weights {
                    for (weight, &position) in rows.weights[range(row)].iter_mut().zip(&rows.picked[range(row)]) {
                        *weight = weights[start + position as usize];
                    }
                }
                for neighbor in &mut rows.picked[range(row)] {
                    *neighbor = self.indices[start + *neighbor as usize];
                }
            }
        }
    }

    /// Positions within the node's row, ascending.
    fn positions(&self, node: u32, span: Span, out: &mut [u32], scratch: &mut Scratch) {
        let row = Row { seed: self.seed, batch: self.batch, hop: self.hop, node };
        match (self.pick, self.weights) {
            (Pick::Weighted, Some(weights)) => pick_weighted(&row, &weights[span.range()], out, &mut scratch.weighted),
            _ => pick_uniform(&row, span.degree, out, &mut scratch.uniform),
        }
    }
}
