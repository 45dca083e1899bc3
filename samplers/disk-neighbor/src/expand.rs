//! One hop: which neighbours are picked, and which of them have to be read.

use morphgl_platform::direct::Want;
use morphgl_sampler_core::{PickScratch, Picks};

use crate::caches::RowCache;
use crate::offsets::Span;

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
    alone: PickScratch,
    /// The neighbours that have to be read, in the order of the file.
    pub(crate) wants: Vec<Want>,
}

/// Picks the neighbours of all rows: those of rows in memory are there then, the others stand in `scratch.wants`.
/// Returns how many rows were in memory, and how many were not.
pub(crate) fn pick(picks: &Picks<'_>, rows: Rows<'_>, cache: Option<&RowCache>, scratch: &mut Scratch) -> (u64, u64) {
    let (mut hits, mut misses) = (0, 0);
    scratch.wants.clear();
    for (row, (&node, &span)) in rows.nodes.iter().zip(rows.spans).enumerate() {
        let range = rows.indptr[row] as usize..rows.indptr[row + 1] as usize;
        if range.is_empty() {
            continue;
        }
        let out = &mut rows.picked[range.clone()];
        picks.pick(node, span.range(), out, &mut scratch.alone);
        if let Some(weights) = picks.weights {
            let weights = &weights[span.range()];
            let to = rows.weights[range].iter_mut();
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
