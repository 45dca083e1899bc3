//! One hop: which neighbours are picked, and which of them have to be read.

use morphgl_direct_read::Want;
use morphgl_registry::{BatchId, Fanout, Pick};
use morphgl_sampler_core::{Row, UniformScratch, WeightedScratch, count_positive, pick_uniform, pick_weighted};

use crate::caches::RowCache;
use crate::offsets::Span;

/// What the picks of one hop have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hop<'a> {
    pub(crate) weights: Option<&'a [f32]>,
    pub(crate) pick: Pick,
    pub(crate) fanout: Fanout,
    pub(crate) seed: u64,
    pub(crate) batch: BatchId,
    pub(crate) hop: u32,
}

/// Consecutive rows and the room for what they pick.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) nodes: &'a [u32],
    pub(crate) spans: &'a [Span],
    /// Offsets of the rows, one more than rows, from 0.
    pub(crate) indptr: &'a [u32],
    /// Global ids of the neighbours.
    pub(crate) picked: &'a mut [u32],
    /// Weights of the edges, as many, or none where the graph has none.
    pub(crate) weights: &'a mut [f32],
}

/// Buffers that are used again from hop to hop.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    uniform: UniformScratch,
    weighted: WeightedScratch,
    /// The neighbours that have to be read, in the order of the file.
    pub(crate) wants: Vec<Want>,
}

impl Hop<'_> {
    fn weights_of(&self, span: Span) -> Option<&[f32]> {
        let start = span.start as usize;
        self.weights.map(|w| &w[start..start + span.degree as usize])
    }

    /// Number of neighbours that are picked of a node.
    pub(crate) fn count(&self, span: Span) -> u64 {
        let take = self.fanout.take(u64::from(span.degree));
        match (self.pick, self.weights_of(span)) {
            (Pick::Weighted, Some(weights)) => count_positive(weights, take as usize) as u64,
            _ => take,
        }
    }

    /// Picks the neighbours of all rows: those of rows in memory are there then, the others stand in `scratch.wants`.
    /// Returns how many rows were in memory, and how many were not.
    pub(crate) fn pick(&self, rows: Rows<'_>, cache: Option<&RowCache>, scratch: &mut Scratch) -> (u64, u64) {
        let (mut hits, mut misses) = (0, 0);
        scratch.wants.clear();
        for (row, (&node, &span)) in rows.nodes.iter().zip(rows.spans).enumerate() {
            let range = rows.indptr[row] as usize..rows.indptr[row + 1] as usize;
            if range.is_empty() {
                continue;
            }
            let out = &mut rows.picked[range.clone()];
            let place = Row { seed: self.seed, batch: self.batch, hop: self.hop, node };
            match (self.pick, self.weights_of(span)) {
                (Pick::Weighted, Some(weights)) => pick_weighted(&place, weights, out, &mut scratch.weighted),
                _ => pick_uniform(&place, span.degree, out, &mut scratch.uniform),
            }
            if let Some(weights) = self.weights_of(span) {
                let to = rows.weights[range.clone()].iter_mut();
                to.zip(&*out).for_each(|(to, &position)| *to = weights[position as usize]);
            }
            if let Some(neighbors) = cache.and_then(|c| c.get(node)) {
                out.iter_mut().for_each(|p| *p = neighbors[*p as usize]);
                hits += 1;
            } else {
                let want = |(&position, to)| Want { element: span.start + u64::from(position), to };
                scratch.wants.extend(out.iter().zip(rows.indptr[row]..).map(want));
                misses += 1;
            }
        }
        scratch.wants.sort_unstable();
        (hits, misses)
    }
}
