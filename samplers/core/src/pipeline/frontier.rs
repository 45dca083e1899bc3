//! The nodes of a mini-batch, and their CSR rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use morphgl_graph_store::Topology;
use morphgl_platform::{prefetch, prefetch_early};
use rayon::prelude::*;

use super::expand::CsrRow;
use crate::{Excluded, Relabel, make_room};

/// Nodes per task of a parallel lookup of rows.
const TASK: usize = 1 << 12;
/// Prefetch distance of lookups, in nodes.
const AHEAD: usize = 16;

/// The nodes of a mini-batch so far, by local id, and the CSR rows of those that are expanded.
#[derive(Debug)]
pub(crate) struct Frontier {
    relabel: Relabel,
    // Invariant: row `i` is that of node `i`, for the first `rows.len()` nodes.
    rows: Vec<CsrRow>,
    // Invariant: if the table of local ids has offsets, degree `i` is that of node `i`, for all nodes but the last
    // `offsets.len()` ones, whose row start and end are in `offsets`; else both lists are empty.
    degrees: Vec<f32>,
    offsets: Vec<[u32; 2]>,
    /// Expected sizes: those of an earlier mini-batch of any worker.
    expected: Arc<Expected>,
    /// Whether the graph's offsets fit the 32 bits beside the local ids.
    offsets_fit: bool,
    /// Number of rows that were looked up among those that lose edges, and of those found.
    without: [usize; 2],
}

/// Number of nodes and rows of an earlier mini-batch of any worker: lists are reserved for about as many, which avoids copies
/// and excess capacity from growing.
#[derive(Debug, Default)]
pub struct Expected {
    nodes: AtomicUsize,
    rows: AtomicUsize,
}

impl Frontier {
    /// For mini-batches of `topology`, whose offsets are stored beside the local ids if [`Relabel`] has a direct table.
    pub(crate) fn new(topology: &Topology, expected: Arc<Expected>) -> Self {
        // The lower halves suffice for degrees, which are below 2^32.
        let relabel = Relabel::for_graph(topology.num_nodes(), |node| topology.indptr()[node as usize] as u32);
        let offsets_fit = u32::try_from(topology.num_edges()).is_ok();
        let (rows, degrees, offsets) = Default::default();
        Self { relabel, rows, degrees, offsets, expected, offsets_fit, without: [0; 2] }
    }

    /// Starts a mini-batch; `nodes` and `degrees` are reused for its lists.
    pub(crate) fn start(&mut self, mut nodes: Vec<u32>, degrees: Vec<f32>, seeds: &[u32], topology: &Topology) {
        let expected = self.expected.nodes.load(Ordering::Relaxed);
        make_room(&mut nodes, expected);
        self.relabel.start(nodes);
        self.degrees = degrees;
        make_room(&mut self.degrees, expected);
        self.degrees.clear();
        make_room(&mut self.rows, self.expected.rows.load(Ordering::Relaxed));
        self.rows.clear();
        // Not empty if the previous mini-batch panicked.
        self.offsets.clear();
        self.without = [0; 2];
        self.relabel.add_seeds_with_values(seeds, &mut self.offsets);
        self.convert_offsets(topology, true);
        if !self.knows_rows() {
            let indptr: &[u64] = topology.indptr();
            self.relabel.nodes().iter().for_each(|&node| prefetch_early(indptr, node as usize));
        }
        self.locate(topology);
    }

    /// Number of nodes.
    fn len(&self) -> usize {
        self.relabel.nodes().len()
    }

    /// The nodes, by local id.
    pub(crate) fn nodes(&self) -> &[u32] {
        self.relabel.nodes()
    }

    /// Replaces nodes of the frontier by their local ids.
    pub(crate) fn locals(&mut self, nodes: &mut [u32]) {
        self.relabel.locals(nodes);
    }

    /// Takes the edges that are left out from the rows of nodes located since the last call; seeds are distinct.
    pub(crate) fn leave_out(&mut self, excluded: &Excluded) {
        let Self { relabel, rows, without: [seen, found], .. } = self;
        // The rows of a whole mini-batch of pairs that lose edges are those of seeds.
        if *found < excluded.num_rows() {
            for (row, &node) in rows.iter_mut().zip(relabel.nodes()).skip(*seen) {
                if let Some(index) = excluded.find(node) {
                    *row = row.without(excluded, index);
                    *found += 1;
                }
            }
        }
        *seen = rows.len();
    }

    /// CSR rows of the located nodes.
    pub(crate) fn rows(&self) -> &[CsrRow] {
        &self.rows
    }

    /// Relabels the first `count` of `nodes`, and prefetches for the others, which the next call relabels. If rows are
    /// `wanted`, looks up those of the nodes that the previous call added.
    pub(crate) fn relabel(&mut self, count: usize, nodes: &mut [u32], topology: &Topology, wanted: bool) {
        let known = self.len();
        self.relabel.locals_of_first(count, nodes, &mut self.offsets);
        self.convert_offsets(topology, wanted);
        if wanted && !self.knows_rows() {
            let indptr: &[u64] = topology.indptr();
            self.relabel.nodes()[known..].iter().for_each(|&node| prefetch_early(indptr, node as usize));
            self.locate_until(topology, known);
        }
    }

    /// Looks up the rows of all nodes; the offsets of the last ones were prefetched.
    pub(crate) fn locate(&mut self, topology: &Topology) {
        self.locate_until(topology, self.len());
    }

    fn locate_until(&mut self, topology: &Topology, until: usize) {
        let located = self.rows.len();
        self.rows.extend(self.relabel.nodes()[located..until].iter().map(|&node| csr_row(topology.indptr(), node)));
        set_draw_keys(&mut self.rows[located..], topology);
    }

    /// Borrows the local ids, the offsets of new nodes, and the rows separately: threads read the rows while another one
    /// relabels. [`Frontier::par_locate`] must follow.
    pub(crate) fn parts(&mut self) -> (&mut Relabel, &mut Vec<[u32; 2]>, &[CsrRow]) {
        (&mut self.relabel, &mut self.offsets, &self.rows)
    }

    /// Adds the new nodes to the frontier, from the offsets that relabelling loaded. If rows are `wanted`, looks up the CSR
    /// rows that are not known yet, on the threads of the current pool.
    pub(crate) fn par_locate(&mut self, topology: &Topology, wanted: bool) {
        self.convert_offsets(topology, wanted);
        if !wanted || self.knows_rows() {
            return;
        }
        let indptr: &[u64] = topology.indptr();
        let known = self.rows.len();
        self.rows.resize(self.len(), CsrRow::default());
        let nodes = self.relabel.nodes()[known..].par_chunks(TASK);
        nodes.zip(self.rows[known..].par_chunks_mut(TASK)).for_each(|(nodes, rows)| {
            for (i, out) in rows.iter_mut().enumerate() {
                if let Some(&later) = nodes.get(i + AHEAD) {
                    prefetch(indptr, later as usize);
                }
                *out = csr_row(indptr, nodes[i]);
            }
            set_draw_keys(rows, topology);
        });
    }

    /// Converts the offsets of new nodes to degrees and, if `wanted`, to rows.
    fn convert_offsets(&mut self, topology: &Topology, wanted: bool) {
        self.degrees.extend(self.offsets.iter().map(|[start, end]| end.wrapping_sub(*start) as f32));
        if wanted && self.knows_rows() {
            let nodes = &self.relabel.nodes()[self.rows.len()..];
            let row = |(&node, &[start, end]): (&u32, &[u32; 2])| CsrRow {
                start: start.into(),
                degree: end - start,
                key: node,
            };
            let located = self.rows.len();
            self.rows.extend(nodes.iter().zip(&self.offsets).map(row));
            set_draw_keys(&mut self.rows[located..], topology);
        }
        self.offsets.clear();
    }

    /// Whether the offsets beside the local ids give the rows.
    fn knows_rows(&self) -> bool {
        self.relabel.has_values() && self.offsets_fit
    }

    /// Whether the degrees are known without the rows.
    pub(crate) fn knows_degrees(&self) -> bool {
        self.relabel.has_values()
    }

    /// Ends the mini-batch; returns its nodes and their in-degrees.
    pub(crate) fn finish(&mut self) -> (Vec<u32>, Vec<f32>) {
        let mut degrees = std::mem::take(&mut self.degrees);
        self.expected.nodes.store(self.len(), Ordering::Relaxed);
        self.expected.rows.store(self.rows.len(), Ordering::Relaxed);
        if !self.knows_degrees() {
            degrees.extend(self.rows.iter().map(|row| row.degree as f32));
        }
        (self.relabel.finish(), degrees)
    }
}

/// Replaces the nodes of new rows by their draw keys, in a graph that has any.
fn set_draw_keys(rows: &mut [CsrRow], topology: &Topology) {
    let Some(keys) = topology.draw_keys() else { return };
    let keys: &[u32] = keys;
    for i in 0..rows.len() {
        if let Some(later) = rows.get(i + AHEAD) {
            prefetch(keys, later.key as usize);
        }
        rows[i].key = keys[rows[i].key as usize];
    }
}

/// The row of `node`, whose key is not looked up yet.
#[inline(always)]
fn csr_row(indptr: &[u64], node: u32) -> CsrRow {
    let (start, end) = (indptr[node as usize], indptr[node as usize + 1]);
    CsrRow { start, degree: (end - start) as u32, key: node }
}

#[cfg(test)]
mod tests;
