//! The stages an edge passes: picked, read, named; so that what one waits for comes while the others work.
//!
//! A neighbour's id, its place in the table of local ids and the offsets of a new node lie anywhere in memory. Groups of
//! edges go through the stages one group behind the other, each asking for what the next stage reads.

use morphgl_graph_store::Topology;
use morphgl_registry::Block;

use crate::expand::{RowPicker, Rows, Scratch};
use crate::found::Found;

/// Edges a group has: enough to hide the way to memory, few enough that what was asked for is still in the cache when
/// its turn comes: on the power-law graphs of `benches/sample`, 640 and 1024 gave some 3% more than 448.
const GROUP: usize = 640;
/// Edges that a thread picks while another one names those before.
const PART: usize = 1 << 14;

/// A hop of a mini-batch: from which graph, and what is left to know of the nodes it finds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stages<'a> {
    pub(crate) rows: RowPicker<'a>,
    pub(crate) topology: &'a Topology,
    /// First row that is expanded.
    pub(crate) first: usize,
    /// Whether spans of the nodes found are needed.
    pub(crate) locate: bool,
}

/// A thread's buffers.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    scratch: Scratch,
    /// Where the edges of two groups stand: one being picked, one being read.
    addresses: [Vec<u64>; 2],
}

impl Stages<'_> {
    /// Fills in the neighbours of `block`, whose offsets are there, in local ids.
    pub(crate) fn run(&self, found: &mut Found, buffers: &mut [Buffers], block: &mut Block) {
        match buffers {
            [buffers] => self.alone(found, buffers, block),
            _ => self.side_by_side(found, buffers, block),
        }
    }

    /// On one thread.
    fn alone(&self, found: &mut Found, buffers: &mut Buffers, block: &mut Block) {
        let Buffers { scratch, addresses: [picking, reading] } = buffers;
        let Block { num_dst, indptr, indices, weights, .. } = block;
        let mut weights: &mut [f32] = weights.as_deref_mut().unwrap_or_default();
        let mut row = self.first;
        reading.clear();
        // Edges up to `read` have their neighbours, those up to `named` local ids.
        let (mut read, mut named) = (0, 0);
        while named < indices.len() {
            let rows = Rows { spans: &found.spans()[row..*num_dst], indptr: &indptr[row..=*num_dst] };
            let (rows, _) = rows.split(GROUP);
            row += rows.spans.len();
            self.rows.pick(rows, picking, scratch);
            alike(picking, reading);
            let group = read..read + reading.len();
            let read_weights = weights.split_off_mut(..reading.len().min(weights.len())).unwrap_or_default();
            self.rows.read_weights(reading, read_weights);
            self.rows.read(reading, &mut indices[group.clone()]);
            found.name(read - named, &mut indices[named..group.end], self.topology, self.locate);
            (named, read) = (read, group.end);
            std::mem::swap(picking, reading);
        }
        if self.locate {
            found.locate(self.topology);
        }
    }

    /// On the threads of the current pool: one names a part's nodes while the others pick the next part's, since names
    /// are given in order and picks are not.
    fn side_by_side(&self, found: &mut Found, buffers: &mut [Buffers], block: &mut Block) {
        let (relabel, offsets, spans) = found.parts();
        let Block { num_dst, indptr, indices, weights, .. } = block;
        let mut rest = Rows { spans: &spans[self.first..*num_dst], indptr: &indptr[self.first..] };
        let (mut indices, mut weights) = (&mut indices[..], weights.as_deref_mut().unwrap_or_default());
        let mut naming: &mut [u32] = &mut [];
        while rest.num_edges() > 0 || !naming.is_empty() {
            let (rows, later) = rest.split(PART * buffers.len());
            let picking = indices.split_off_mut(..rows.num_edges()).expect("an edge has a place");
            let part_weights = weights.split_off_mut(..picking.len().min(weights.len())).unwrap_or_default();
            let name = || relabel.locals_of_first(naming.len(), naming, offsets);
            rayon::join(name, || self.pick(rows, picking, part_weights, buffers));
            naming = picking;
            rest = later;
        }
        found.par_locate(self.topology, self.locate);
    }

    /// Picks and reads the neighbours of all rows, on as many threads as there are buffers.
    fn pick(&self, rows: Rows<'_>, picked: &mut [u32], weights: &mut [f32], buffers: &mut [Buffers]) {
        if buffers.len() > 1 && rows.num_edges() > 2 * GROUP {
            let (left, right) = rows.split(rows.num_edges() / 2);
            let (a, b) = buffers.split_at_mut(buffers.len() / 2);
            let (picked, more) = picked.split_at_mut(left.num_edges());
            let (weights, more_weights) = weights.split_at_mut(left.num_edges().min(weights.len()));
            rayon::join(|| self.pick(left, picked, weights, a), || self.pick(right, more, more_weights, b));
            return;
        }
        let [Buffers { scratch, addresses: [picking, reading] }, ..] = buffers else { return };
        let (mut rest, mut read) = (rows, 0);
        reading.clear();
        while read < picked.len() {
            let (rows, later) = rest.split(GROUP);
            self.rows.pick(rows, picking, scratch);
            alike(picking, reading);
            let group = read..read + reading.len();
            let of_weights = if weights.is_empty() { 0..0 } else { group.clone() };
            self.rows.read_weights(reading, &mut weights[of_weights]);
            self.rows.read(reading, &mut picked[group.clone()]);
            (read, rest) = (group.end, later);
            std::mem::swap(picking, reading);
        }
    }
}

/// Gives `other` as much room as `list` has: the two change places, and a steady state is to allocate nothing.
fn alike(list: &[u64], other: &mut Vec<u64>) {
    if other.capacity() < list.len() {
        other.reserve(2 * list.len() - other.len());
    }
}
