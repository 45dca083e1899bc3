//! One hop: picks neighbours, and lists those that have to be read.

use morphgl_platform::direct::Fetch;
use morphgl_sampler_core::{PickScratch, Picks};

use crate::caches::RowCache;
use crate::offsets::CsrRow;

/// Consecutive rows and the room for what they pick.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) nodes: &'a [u32],
    pub(crate) spans: &'a [CsrRow],
    /// Offsets of the rows, one more than rows, from 0.
    pub(crate) indptr: &'a [u32],
    /// Global ids of the neighbours.
    pub(crate) picked: &'a mut [u32],
    /// Weights of the edges, as many, or none where the graph has none.
    pub(crate) weights: &'a mut [f32],
}

/// Buffers, reused from hop to hop.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    alone: PickScratch,
    /// The neighbours to be read, in the order of the file.
    pub(crate) fetches: Vec<Fetch>,
}

/// Picks the neighbours of all rows: those of cached rows are copied, the others are listed in `scratch.fetches`. Returns
/// the numbers of cache hits and misses.
pub(crate) fn pick(picks: &Picks<'_>, rows: Rows<'_>, cache: Option<&RowCache>, scratch: &mut Scratch) -> (u64, u64) {
    let (mut hits, mut misses) = (0, 0);
    scratch.fetches.clear();
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
            let fetch = |(&position, to)| Fetch { element: span.start + u64::from(position), to };
            scratch.fetches.extend(out.iter().zip(rows.indptr[row]..).map(fetch));
            misses += 1;
        }
    }
    scratch.fetches.sort_unstable();
    (hits, misses)
}
