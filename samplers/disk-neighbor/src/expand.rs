//! One hop: picks neighbours, and lists those to be read.

use morphgl_platform::direct::Fetch;
use morphgl_row_cache::AdjacencyCache;
use morphgl_sampler_core::{Excluded, PickScratch, Picks, TypedSettings};

use crate::located::Located;
use crate::offsets::CsrRow;
use crate::stats::Hits;

/// The rows of a hop, and the picks from them.
#[derive(Debug)]
pub(crate) struct HopRows<'a> {
    pub(crate) nodes: &'a [u32],
    /// Draw keys of all nodes, where the graph was reordered.
    pub(crate) keys: Option<&'a [u32]>,
    pub(crate) csr: &'a [CsrRow],
    /// The edges that are left out of the graph.
    pub(crate) excluded: &'a Excluded,
    /// Global ids of the neighbours.
    pub(crate) picked: &'a mut [u32],
    /// Weights of the edges, empty if the graph has none.
    pub(crate) weights: &'a mut [f32],
    /// Whether the picked edges' positions in the graph are listed, for what is read of each.
    pub(crate) lists_edges: bool,
}

/// Edges of one type of a row of the hop, of which some are picked; all of the row's where they have no types.
#[derive(Debug, Clone, Copy)]
struct SubRow {
    /// Index of the row.
    row: u32,
    edge_type: u16,
    /// Number of edges before it, and of its own, that are not left out.
    first: u32,
    degree: u32,
    count: u64,
}

/// Buffers, reused from hop to hop.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    row: PickScratch,
    sub_rows: Vec<SubRow>,
    /// Number of picks of each row.
    counts: Vec<u64>,
    /// The neighbours to be read, in the order of the file.
    pub(crate) fetches: Vec<Fetch>,
    /// All edges picked, by their positions in the graph, where these are listed.
    pub(crate) edges: Vec<Fetch>,
}

/// The picks of the sub-rows of an edge type; `None` where its edges are not sampled.
fn picks_of<'a>(picks: &Picks<'a>, typed: Option<&TypedSettings>, edge_type: u16) -> Option<Picks<'a>> {
    typed.map_or(Some(*picks), |typed| typed.picks_of(*picks, edge_type))
}

/// Divides the rows of the hop, those of `nodes` from the index `first` of `located` on, into sub-rows. Returns the number of picks of each
/// row.
pub(crate) fn divide<'s>(
    picks: &Picks<'_>,
    typed: Option<&TypedSettings>,
    (nodes, located, first): (&[u32], &Located, usize),
    excluded: &Excluded,
    scratch: &'s mut Scratch,
) -> &'s [u64] {
    let Scratch { sub_rows, counts, .. } = scratch;
    sub_rows.clear();
    counts.clear();
    for ((&node, csr), row) in nodes.iter().zip(&located.rows[first..]).zip(0..) {
        let (left, mut all) = (excluded.get(node), 0);
        for (edge_type, positions) in located.sub_rows(first + row as usize) {
            let Some(by) = picks_of(picks, typed, edge_type) else { continue };
            let [first, end] = match left {
                None => [positions.start, positions.end],
                Some(left) => [positions.start, positions.end].map(|position| left.num_left_before(position)),
            };
            let degree = end - first;
            let count = match left {
                None => by.count(csr.range().start + first as usize..csr.range().start + end as usize),
                Some(left) => by.count_left(left.part(first, degree)),
            };
            if count > 0 {
                sub_rows.push(SubRow { row, edge_type, first, degree, count });
                all += count;
            }
        }
        counts.push(all);
    }
    counts
}

impl Scratch {
    /// The type of each edge that is picked.
    pub(crate) fn edge_types(&self, out: &mut Vec<u16>) {
        out.clear();
        self.sub_rows.iter().for_each(|sub_row| out.resize(out.len() + sub_row.count as usize, sub_row.edge_type));
    }
}

/// Picks the neighbours of all sub-rows: those of cached rows are copied, the others are listed in `scratch.fetches`. Returns
/// the cache hits and misses.
pub(crate) fn pick(
    picks: &Picks<'_>,
    typed: Option<&TypedSettings>,
    rows: HopRows<'_>,
    cache: Option<&AdjacencyCache>,
    scratch: &mut Scratch,
) -> Hits {
    let mut hits = Hits::default();
    let Scratch { row: buffer, sub_rows, fetches, edges, .. } = scratch;
    fetches.clear();
    edges.clear();
    let mut at = 0;
    for &SubRow { row, edge_type, first, degree, count } in &*sub_rows {
        let (node, csr) = (rows.nodes[row as usize], rows.csr[row as usize]);
        let range = at..at + count as usize;
        at = range.end;
        let by = picks_of(picks, typed, edge_type).expect("its edges are sampled");
        let out = &mut rows.picked[range.clone()];
        let key = rows.keys.map_or(node, |keys| keys[node as usize]);
        match rows.excluded.get(node) {
            None => {
                let start = csr.start as usize + first as usize;
                by.pick(key, start..start + degree as usize, out, buffer);
                out.iter_mut().for_each(|position| *position += first);
            }
            Some(left) => {
                let left = left.part(first, degree);
                by.pick_left(key, left, out, buffer);
                out.iter_mut().for_each(|position| *position = left.position(*position));
            }
        }
        if let Some(weights) = picks.edges.weights {
            let weights = &weights[csr.range()];
            let to = rows.weights[range.clone()].iter_mut();
            to.zip(&*out).for_each(|(to, &position)| *to = weights[position as usize]);
        }
        let fetch = |(&position, to)| Fetch { element: csr.start + u64::from(position), to };
        if rows.lists_edges {
            edges.extend(out.iter().zip(range.start as u32..).map(fetch));
        }
        if let Some(neighbors) = cache.and_then(|c| c.get(node)) {
            out.iter_mut().for_each(|p| *p = neighbors[*p as usize]);
            hits.hits += 1;
        } else {
            fetches.extend(out.iter().zip(range.start as u32..).map(fetch));
            hits.misses += 1;
        }
    }
    fetches.sort_unstable();
    hits
}
