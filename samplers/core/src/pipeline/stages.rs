//! Software pipeline over a hop's edges: pick, load, relabel; each stage prefetches for the next.
//!
//! A neighbour's id, its entry in the table of local ids and the offsets of a new node are random memory accesses. A stage
//! works one group of edges behind the stage before it.

use morphgl_graph_store::Topology;
use morphgl_registry::Block;

use super::expand::{CsrRows, EdgesOut, RowPicker, Scratch};
use super::frontier::Frontier;

/// Edges of a group: enough to hide memory latency, few enough that prefetched lines are still in the cache when used.
const GROUP: usize = 640;
/// Edges that a thread picks while another thread relabels the previous ones.
const PART: usize = 1 << 14;

/// A hop of a mini-batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stages<'a> {
    pub(crate) rows: RowPicker<'a>,
    pub(crate) topology: &'a Topology,
    /// First row that is expanded.
    pub(crate) first: usize,
    /// The rows as sub-rows of one edge type each, where edges are sampled by type.
    pub(crate) sub_rows: Option<CsrRows<'a>>,
    /// Whether the rows of new nodes are needed.
    pub(crate) locate: bool,
}

/// A thread's buffers.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    scratch: Scratch,
    /// Positions of the edges of two groups: one being picked, one being loaded.
    addresses: [Vec<u64>; 2],
}

impl Stages<'_> {
    /// Sets the neighbours, in local ids, of `block`, whose offsets are set.
    pub(crate) fn run(&self, frontier: &mut Frontier, buffers: &mut [Buffers], block: &mut Block) {
        match buffers {
            [buffers] => self.run_sequential(frontier, buffers, block),
            _ => self.run_parallel(frontier, buffers, block),
        }
    }

    /// The pipeline on one thread.
    fn run_sequential(&self, frontier: &mut Frontier, buffers: &mut Buffers, block: &mut Block) {
        let Buffers { scratch, addresses: [picking, reading] } = buffers;
        let Block { num_dst, indptr, indices, weights, edge_ids, .. } = block;
        let mut edges = edges_out(weights, edge_ids);
        let mut row = if self.sub_rows.is_some() { 0 } else { self.first };
        reading.clear();
        // Edges up to `read` are loaded, those up to `relabelled` relabelled.
        let (mut read, mut relabelled) = (0, 0);
        while relabelled < indices.len() {
            let rows = match self.sub_rows {
                None => CsrRows { csr: &frontier.rows()[row..*num_dst], indptr: &indptr[row..=*num_dst], types: &[] },
                Some(sub_rows) => sub_rows.from(row),
            };
            let (rows, _) = rows.split(GROUP);
            row += rows.csr.len();
            self.rows.pick(rows, picking, scratch);
            reserve_like(reading, picking);
            let group = read..read + reading.len();
            self.rows.read_edges(reading, edges.split_off(reading.len()));
            self.rows.read(reading, &mut indices[group.clone()]);
            frontier.relabel(read - relabelled, &mut indices[relabelled..group.end], self.topology, self.locate);
            (relabelled, read) = (read, group.end);
            std::mem::swap(picking, reading);
        }
        if self.locate {
            frontier.locate(self.topology);
        }
    }

    /// On the threads of the current pool: relabelling is sequential, so one thread relabels a part of the edges while the
    /// others pick the next part.
    fn run_parallel(&self, frontier: &mut Frontier, buffers: &mut [Buffers], block: &mut Block) {
        let (relabel, offsets, csr) = frontier.parts();
        let Block { num_dst, indptr, indices, weights, edge_ids, .. } = block;
        let whole = CsrRows { csr: &csr[self.first..*num_dst], indptr: &indptr[self.first..], types: &[] };
        let mut rest = self.sub_rows.unwrap_or(whole);
        let (mut indices, mut edges) = (&mut indices[..], edges_out(weights, edge_ids));
        let mut pending: &mut [u32] = &mut [];
        while rest.num_edges() > 0 || !pending.is_empty() {
            let (rows, later) = rest.split(PART * buffers.len());
            let picking = indices.split_off_mut(..rows.num_edges()).expect("the block has all edges");
            let part_edges = edges.split_off(picking.len());
            let relabel_part = || relabel.locals_of_first(pending.len(), pending, offsets);
            rayon::join(relabel_part, || self.pick(rows, picking, part_edges, buffers));
            pending = picking;
            rest = later;
        }
        frontier.par_locate(self.topology, self.locate);
    }

    /// Picks and loads the neighbours of all rows, on as many threads as there are buffers.
    fn pick(&self, rows: CsrRows<'_>, picked: &mut [u32], mut edges: EdgesOut<'_>, buffers: &mut [Buffers]) {
        if buffers.len() > 1 && rows.num_edges() > 2 * GROUP {
            let (left, right) = rows.split(rows.num_edges() / 2);
            let (a, b) = buffers.split_at_mut(buffers.len() / 2);
            let (picked, more) = picked.split_at_mut(left.num_edges());
            let of_left = edges.split_off(left.num_edges());
            rayon::join(|| self.pick(left, picked, of_left, a), || self.pick(right, more, edges, b));
            return;
        }
        let [Buffers { scratch, addresses: [picking, reading] }, ..] = buffers else { return };
        let (mut rest, mut read) = (rows, 0);
        reading.clear();
        while read < picked.len() {
            let (rows, later) = rest.split(GROUP);
            self.rows.pick(rows, picking, scratch);
            reserve_like(reading, picking);
            let group = read..read + reading.len();
            self.rows.read_edges(reading, edges.split_off(reading.len()));
            self.rows.read(reading, &mut picked[group.clone()]);
            (read, rest) = (group.end, later);
            std::mem::swap(picking, reading);
        }
    }
}

/// Where the weights and ids of a block's edges are written.
fn edges_out<'b>(weights: &'b mut Option<Vec<f32>>, ids: &'b mut Option<Vec<u32>>) -> EdgesOut<'b> {
    EdgesOut { weights: weights.as_deref_mut().unwrap_or_default(), ids: ids.as_deref_mut().unwrap_or_default() }
}

/// Reserves in `list` the length of `other`: the two are swapped later, and a warm worker allocates nothing.
fn reserve_like(list: &mut Vec<u64>, other: &[u64]) {
    if list.capacity() < other.len() {
        list.reserve(2 * other.len() - list.len());
    }
}
