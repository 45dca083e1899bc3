//! One hop: picks neighbours, and lists those to be read.

use morphgl_platform::direct::Fetch;
use morphgl_row_cache::AdjacencyCache;
use morphgl_sampler_core::{Excluded, PickScratch, Picks};

use crate::offsets::CsrRow;
use crate::stats::Hits;

/// Consecutive rows, and the buffers of their picks.
#[derive(Debug)]
pub(crate) struct HopRows<'a> {
    pub(crate) nodes: &'a [u32],
    /// Draw keys of all nodes, where the graph was reordered.
    pub(crate) keys: Option<&'a [u32]>,
    pub(crate) csr: &'a [CsrRow],
    /// The edges that are left out of the graph.
    pub(crate) excluded: &'a Excluded,
    /// Offsets of the rows, one more than rows, from 0.
    pub(crate) indptr: &'a [u32],
    /// Global ids of the neighbours.
    pub(crate) picked: &'a mut [u32],
    /// Weights of the edges, empty if the graph has none.
    pub(crate) weights: &'a mut [f32],
}

/// Buffers, reused from hop to hop.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    row: PickScratch,
    /// The neighbours to be read, in the order of the file.
    pub(crate) fetches: Vec<Fetch>,
}

/// Picks the neighbours of all rows: those of cached rows are copied, the others are listed in `scratch.fetches`. Returns
/// the cache hits and misses.
pub(crate) fn pick(
    picks: &Picks<'_>,
    rows: HopRows<'_>,
    cache: Option<&AdjacencyCache>,
    scratch: &mut Scratch,
) -> Hits {
    let mut hits = Hits::default();
    scratch.fetches.clear();
    for (row, (&node, &csr)) in rows.nodes.iter().zip(rows.csr).enumerate() {
        let range = rows.indptr[row] as usize..rows.indptr[row + 1] as usize;
        if range.is_empty() {
            continue;
        }
        let out = &mut rows.picked[range.clone()];
        let key = rows.keys.map_or(node, |keys| keys[node as usize]);
        match rows.excluded.get(node) {
            None => picks.pick(key, csr.range(), out, &mut scratch.row),
            Some(left) => {
                picks.pick_left(key, left, out, &mut scratch.row);
                out.iter_mut().for_each(|position| *position = left.position(*position));
            }
        }
        if let Some(weights) = picks.weights {
            let weights = &weights[csr.range()];
            let to = rows.weights[range].iter_mut();
            to.zip(&*out).for_each(|(to, &position)| *to = weights[position as usize]);
        }
        if let Some(neighbors) = cache.and_then(|c| c.get(node)) {
            out.iter_mut().for_each(|p| *p = neighbors[*p as usize]);
            hits.hits += 1;
        } else {
            let fetch = |(&position, to)| Fetch { element: csr.start + u64::from(position), to };
            scratch.fetches.extend(out.iter().zip(rows.indptr[row]..).map(fetch));
            hits.misses += 1;
        }
    }
    scratch.fetches.sort_unstable();
    hits
}
