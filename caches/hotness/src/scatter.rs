//! Sums along out-edges of a graph that is stored by in-neighbours.

use std::ops::{AddAssign, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use morphgl_graph_store::Topology;
use morphgl_registry::{Error, Result};
use rayon::prelude::*;

use crate::{Graph, SubRow};

/// Edges of a part: one thread's share of a round. 2^16 edges make 512 KiB of buffered terms.
const PART: u64 = 1 << 16;
/// Parts of a round for each thread, so that a slow one delays the others little.
const PARTS_A_THREAD: usize = 4;
/// Nodes of a bin: 2^16 sums stay in a core's cache while they are added to.
const BIN_NODES: usize = 1 << 16;
/// Fewest and most bins: enough to balance hubs over threads, few enough that the ends of all bins stay in cache.
const BINS: Range<usize> = 64..1024;
/// Bytes of sums that stay in a core's cache: up to them blocking takes about twice the CPU time of a scan, and beyond about the
/// same (`docs/performance/hotness.md`).
const CACHED_BYTES: usize = 4 << 20;

/// No node.
const NONE: u64 = u64::MAX;

/// Adds `term(v, in-degree of v)` to `sums[u]` for every edge from `u` to `v`: each node `u` sums over its out-neighbours.
///
/// Terms of a node are added in the order of rows, whatever the graph and the number of threads, so results are the same bits.
/// Rows whose term is 0 are skipped.
///
/// A large graph in memory is read by all threads of the current rayon pool, by propagation blocking (Beamer, Asanović and
/// Patterson, "Reducing PageRank communication via propagation blocking", IPDPS 2017): in each round threads sort the terms of
/// their parts of the edges into bins by ranges of `u`, then each bin is added up by one thread, part after part.
///
/// # Errors
///
/// The graph cannot be read, or an in-neighbour does not exist.
///
/// # Complexity
///
/// O(edges) time; blocking buffers 2 to 4 MiB per thread.
pub(crate) fn scatter<S: Sum>(graph: &dyn Graph, sums: &mut [S], term: impl Fn(u32, u64) -> f32 + Sync) -> Result<()> {
    match graph.topology() {
        Some(topology) if size_of_val(sums) > CACHED_BYTES => blocked(topology, sums, PART, &|start, end, row| {
            for_rows(topology, start, end, |v, edges, degree| row(term(v, degree), edges));
        }),
        _ => scanned(graph, sums, term),
    }
}

/// As [`scatter`], with a term per sub-row of one edge type: `term(v, edge type, edges of the sub-row)`.
///
/// # Errors
///
/// As [`scatter`]; the graph has no types.
pub(crate) fn scatter_by_type(
    graph: &dyn Graph,
    sums: &mut [f32],
    term: impl Fn(u32, u16, u64) -> f32 + Sync,
) -> Result<()> {
    if let Some(topology) = graph.topology().filter(|_| size_of_val(sums) > CACHED_BYTES) {
        return blocked(topology, sums, PART, &|start, end, row| {
            for_sub_rows(topology, start, end, |v, edge_type, edges, degree| row(term(v, edge_type, degree), edges));
        });
    }
    let mut failed = Ok(());
    graph.scan_by_type(&mut |SubRow { node, edge_type, degree, neighbors }| {
        if failed.is_ok() {
            failed = add(graph, sums, term(node, edge_type, degree), neighbors);
        }
    })?;
    failed
}

/// Adds a term, if it is not 0, to the sum of each of `neighbors`.
fn add<S: Sum>(graph: &dyn Graph, sums: &mut [S], value: f32, neighbors: &[u32]) -> Result<()> {
    if value == 0.0 {
        return Ok(());
    }
    for &u in neighbors {
        *sums.get_mut(u as usize).ok_or_else(|| unknown(graph, u))? += S::from(value);
    }
    Ok(())
}

/// A type that terms are summed in.
pub(crate) trait Sum: Copy + Send + AddAssign + From<f32> {}

impl<S: Copy + Send + AddAssign + From<f32>> Sum for S {}

/// [`scatter`] by one scan.
fn scanned<S: Sum>(graph: &dyn Graph, sums: &mut [S], term: impl Fn(u32, u64) -> f32) -> Result<()> {
    let mut failed = Ok(());
    // A row may come in several calls: its term is computed once.
    let (mut last, mut value) = (None, 0.0);
    graph.scan(&mut |v, neighbors| {
        if failed.is_err() {
            return;
        }
        if last != Some(v) {
            last = Some(v);
            match graph.degree(v) {
                Ok(degree) => value = term(v, degree),
                Err(e) => failed = Err(e),
            }
        }
        if failed.is_ok() {
            failed = add(graph, sums, value, neighbors);
        }
    })?;
    failed
}

/// The error of an in-neighbour that does not exist.
#[cold]
fn unknown(graph: &dyn Graph, node: u32) -> Error {
    match graph.topology() {
        Some(topology) => Error::failed("hotness", topology.unknown_neighbor(node)),
        None => Error::setting("graph", format!("an edge comes from node {node}, but there are {}", graph.num_nodes())),
    }
}

/// Terms of one part of the edges: for each bin, nodes and what is added to them.
type Bins = Vec<Vec<(u32, f32)>>;

/// Calls a function with the term and the edges of each row, or piece of one, among the edges from a start to an end.
type Terms<'a> = &'a (dyn Fn(u64, u64, &mut dyn FnMut(f32, Range<usize>)) + Sync);

/// Sums `terms` by the threads of the current pool, in parts of `part` edges.
fn blocked<S: Sum>(topology: &Topology, sums: &mut [S], part: u64, terms: Terms<'_>) -> Result<()> {
    let [least, most] = [BINS.end, BINS.start].map(|bins| topology.num_nodes().div_ceil(bins).next_power_of_two());
    let bin_nodes = BIN_NODES.clamp(least, most);
    let shift = bin_nodes.trailing_zeros();
    let num_bins = topology.num_nodes().div_ceil(bin_nodes);
    let num_parts = PARTS_A_THREAD * rayon::current_num_threads();
    let mut parts: Vec<Bins> = vec![vec![Vec::new(); num_bins]; num_parts];
    let num_edges = topology.num_edges();
    // An in-neighbour that does not exist.
    let unknown_node = AtomicU64::new(NONE);
    let note = |u: u32| unknown_node.store(u.into(), Ordering::Relaxed);
    for first in (0..num_edges).step_by(part as usize * num_parts) {
        parts.par_iter_mut().enumerate().for_each(|(i, bins)| {
            bins.iter_mut().for_each(Vec::clear);
            let start = (first + i as u64 * part).min(num_edges);
            terms(start, (start + part).min(num_edges), &mut |value, edges| {
                if value != 0.0 {
                    for &u in &topology.indices()[edges] {
                        match bins.get_mut((u >> shift) as usize) {
                            Some(bin) => bin.push((u, value)),
                            None => note(u),
                        }
                    }
                }
            });
        });
        sums.par_chunks_mut(bin_nodes).enumerate().for_each(|(bin, sums)| {
            for &(u, value) in parts.iter().flat_map(|bins| &bins[bin]) {
                match sums.get_mut(u as usize & (bin_nodes - 1)) {
                    Some(sum) => *sum += S::from(value),
                    None => note(u),
                }
            }
        });
        match unknown_node.load(Ordering::Relaxed) {
            NONE => {}
            node => return Err(unknown(topology, node as u32)),
        }
    }
    Ok(())
}

/// As [`for_rows`], with the sub-rows of each row: node, edge type, edges, and edges of the whole sub-row.
fn for_sub_rows(topology: &Topology, start: u64, end: u64, mut row: impl FnMut(u32, u16, Range<usize>, u64)) {
    for_rows(topology, start, end, |v, edges, _| {
        for (edge_type, sub_row) in topology.sub_rows(v) {
            let piece = sub_row.start.max(edges.start)..sub_row.end.min(edges.end);
            if !piece.is_empty() {
                row(v, edge_type as u16, piece, sub_row.len() as u64);
            }
        }
    });
}

/// Calls `row` with the node, edges and in-degree for each row, or piece of one, among the edges from `start` to `end`.
fn for_rows(topology: &Topology, start: u64, end: u64, mut row: impl FnMut(u32, Range<usize>, u64)) {
    let indptr = topology.indptr();
    // The last row that begins at or before `start`: the one that holds this edge.
    let mut v = indptr.partition_point(|&offset| offset <= start).saturating_sub(1);
    let mut at = start;
    while at < end {
        let stop = indptr[v + 1].min(end);
        if at < stop {
            row(v as u32, at as usize..stop as usize, indptr[v + 1] - indptr[v]);
        }
        at = stop;
        v += 1;
    }
}

#[cfg(test)]
mod tests;
