//! The subgraph that nodes induce: all edges among them.

use std::ops::Range;

use morphgl_graph_store::Topology;
use morphgl_platform::{prefetch, prefetch_early};
use morphgl_registry::{BatchId, Block, Error, Result};
use morphgl_sampler_core::{EdgeArrays, Excluded, ExcludedRow, NeighborCheck};
use rayon::prelude::*;

/// Prefetch distance in nodes: of a row's offsets, and of its first neighbours.
const AHEAD: [usize; 2] = [16, 8];
/// The prefetched words of a row: of its first cache lines, after which the processor prefetches by itself.
const LINES: [usize; 3] = [0, 16, 32];

/// Finds the edges among the nodes of one mini-batch after another, in the same memory.
#[derive(Debug)]
pub(crate) struct Inducer {
    // Invariant: all bits are 0 between two subgraphs.
    members: Vec<u64>,
    /// One per thread.
    parts: Vec<Part>,
}

/// The graph whose edges are found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Graph<'a> {
    pub(crate) topology: &'a Topology,
    /// The edges that are left out.
    pub(crate) excluded: &'a Excluded,
    /// Type of each edge, for blocks that have types.
    pub(crate) types: Option<&'a [u16]>,
}

/// The edges that end in some of the nodes, in the graph's ids.
#[derive(Debug, Default)]
struct Part {
    /// Number of edges up to each row's end.
    ends: Vec<usize>,
    sources: Vec<u32>,
    weights: Vec<f32>,
    edge_ids: Vec<u32>,
    edge_types: Vec<u16>,
    /// Buffer for the row of a mapped file, or for what is left of one that loses edges.
    row: Vec<u32>,
}

impl Inducer {
    /// For a graph of `num_nodes` nodes, which takes a bit each, and so many threads.
    pub(crate) fn new(num_nodes: usize, threads: usize) -> Self {
        Self { members: vec![0; num_nodes.div_ceil(64)], parts: (0..threads).map(|_| Part::default()).collect() }
    }

    /// Sets `block` to the edges of the graph without those excluded among `nodes`, rows in the order of the nodes and slots in that of the
    /// CSC rows, with the graph's ids of their sources. On the threads of the current pool, one per part.
    ///
    /// # Errors
    ///
    /// More edges than 32-bit offsets can address; an in-neighbour that does not exist, in a mapped file that was changed.
    ///
    /// # Complexity
    ///
    /// O(in-degrees of the nodes).
    pub(crate) fn induce(&mut self, graph: Graph<'_>, id: BatchId, nodes: &[u32], block: &mut Block) -> Result<()> {
        let Self { members, parts } = self;
        let check = NeighborCheck::new(graph.topology);
        nodes.iter().for_each(|&v| members[v as usize / 64] |= 1 << (v % 64));
        match &mut parts[..] {
            [part] => part.scan(graph, check.as_ref(), members, nodes),
            parts => {
                let share = nodes.len().div_ceil(parts.len()).max(1);
                let scan = |(part, nodes): (&mut Part, &[u32])| part.scan(graph, check.as_ref(), members, nodes);
                parts.par_iter_mut().zip(nodes.par_chunks(share)).for_each(scan);
                let used = nodes.len().div_ceil(share);
                parts[used..].iter_mut().for_each(Part::clear);
            }
        }
        nodes.iter().for_each(|&v| members[v as usize / 64] = 0);
        check.map_or(Ok(()), |check| check.result(id))?;
        let num_edges: usize = parts.iter().map(|part| part.sources.len()).sum();
        if num_edges > u32::MAX as usize {
            let cure = "give a smaller batch size or fanouts";
            return Err(Error::setting(id, format!("its subgraph has {num_edges} edges, more than 2^32 - 1; {cure}")));
        }
        (block.num_dst, block.num_src) = (nodes.len(), nodes.len());
        collect(parts, graph, block);
        Ok(())
    }
}

impl Part {
    fn clear(&mut self) {
        self.ends.clear();
        self.sources.clear();
        self.weights.clear();
        self.edge_ids.clear();
        self.edge_types.clear();
    }

    /// Finds the edges from members to `nodes`.
    fn scan(&mut self, graph: Graph<'_>, check: Option<&NeighborCheck<'_>>, members: &[u64], nodes: &[u32]) {
        let Graph { topology, excluded, types } = graph;
        self.clear();
        let (indptr, indices): (&[u64], &[u32]) = (topology.indptr(), topology.indices());
        let all = EdgeArrays::of(topology);
        for (i, &node) in nodes.iter().enumerate() {
            if let Some(&later) = nodes.get(i + AHEAD[0]) {
                prefetch_early(indptr, later as usize);
            }
            if let Some(&later) = nodes.get(i + AHEAD[1]) {
                let row = &indices[indptr[later as usize] as usize..indptr[later as usize + 1] as usize];
                LINES.iter().for_each(|&word| prefetch(row, word));
            }
            let edges = indptr[node as usize] as usize..indptr[node as usize + 1] as usize;
            let mut row = &indices[edges.clone()];
            let left = excluded.get(node);
            if check.is_some() || left.is_some() {
                self.row.clear();
                match &left {
                    None => self.row.extend_from_slice(row),
                    Some(left) => self.row.extend(left.edges().map(|edge| indices[edge as usize])),
                }
                check.iter().for_each(|check| check.nodes(&mut self.row));
                row = &self.row;
            }
            let found = self.sources.len();
            self.sources.resize(found + row.len(), 0);
            let kept = keep(members, row, &mut self.sources[found..]);
            let edges = (row, edges, left.as_ref());
            if let Some(types) = types {
                extend_by_members(&mut self.edge_types, members, edges.clone(), types);
            }
            if let Some(weights) = all.weights {
                extend_by_members(&mut self.weights, members, edges.clone(), weights);
            }
            if let Some(ids) = all.ids {
                extend_by_members(&mut self.edge_ids, members, edges, ids);
            }
            self.sources.truncate(found + kept);
            self.ends.push(self.sources.len());
        }
    }
}

/// Appends what the graph has, in `all`, of the edges from members: those of `row` that are left of `edges`.
fn extend_by_members<T: Copy>(
    out: &mut Vec<T>,
    members: &[u64],
    (row, edges, left): (&[u32], Range<usize>, Option<&ExcludedRow<'_>>),
    all: &[T],
) {
    let is_member = |&(u, _): &(&u32, &T)| members[*u as usize / 64] >> (u % 64) & 1 == 1;
    match left {
        None => out.extend(row.iter().zip(&all[edges]).filter(is_member).map(|(_, &of)| of)),
        Some(left) => {
            let row = row.iter().zip(left.edges().map(|edge| &all[edge as usize]));
            out.extend(row.filter(is_member).map(|(_, &of)| of));
        }
    }
}

/// Copies the members of `row` to the front of `kept`, which is as long; returns their number. Without a branch on membership,
/// which would be mispredicted.
#[inline]
fn keep(members: &[u64], row: &[u32], kept: &mut [u32]) -> usize {
    let mut count = 0;
    for &u in row {
        kept[count] = u;
        count += (members[u as usize / 64] >> (u % 64) & 1) as usize;
    }
    count
}

/// Concatenates the parts in `block`.
fn collect(parts: &mut [Part], graph: Graph<'_>, block: &mut Block) {
    let all = EdgeArrays::of(graph.topology);
    block.indptr.clear();
    block.indptr.push(0);
    let mut first = 0;
    for part in &*parts {
        block.indptr.extend(part.ends.iter().map(|end| (first + end) as u32));
        first += part.sources.len();
    }
    concatenate(parts, |part| &mut part.sources, &mut block.indices);
    let Block { weights, edge_ids, edge_types, .. } = block;
    concatenate_optional(parts, all.weights.is_some(), |part| &mut part.weights, weights);
    concatenate_optional(parts, all.ids.is_some(), |part| &mut part.edge_ids, edge_ids);
    concatenate_optional(parts, graph.types.is_some(), |part| &mut part.edge_types, edge_types);
}

/// As [`concatenate`], where the graph has the array; else there is none.
fn concatenate_optional<T: Copy>(
    parts: &mut [Part],
    exists: bool,
    of: impl Fn(&mut Part) -> &mut Vec<T>,
    out: &mut Option<Vec<T>>,
) {
    match exists {
        true => concatenate(parts, of, out.get_or_insert_default()),
        false => *out = None,
    }
}

/// Sets `out` to an array of the parts, one after another; that of a single part is taken as it is.
fn concatenate<T: Copy>(parts: &mut [Part], of: impl Fn(&mut Part) -> &mut Vec<T>, out: &mut Vec<T>) {
    if let [part] = parts {
        return std::mem::swap(out, of(part));
    }
    out.clear();
    parts.iter_mut().for_each(|part| out.extend_from_slice(of(part)));
}
