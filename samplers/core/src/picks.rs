//! The picks of one hop: how many neighbours of each row, which ones, and the buffers of the block.

use std::ops::Range;

use morphgl_graph_store::Topology;
use morphgl_registry::{BatchId, Block, Error, Fanout, NeighborSettings, Pick, Result};

use crate::pairs::ExcludedRow;
use crate::stream::Row;
use crate::uniform::{PickScratch, pick_uniform};
use crate::weighted::{count_positive, pick_weighted};

/// What a graph has of each of its edges, which blocks get of those that are picked.
#[derive(Debug, Clone, Copy, Default)]
pub struct EdgeArrays<'a> {
    /// Weights, where it has any.
    pub weights: Option<&'a [f32]>,
    /// Rows of the edges' features, where they have any.
    pub ids: Option<&'a [u32]>,
}

impl<'a> EdgeArrays<'a> {
    /// Those of `topology`.
    pub fn of(topology: &'a Topology) -> Self {
        Self { weights: topology.weights().map(|w| &**w), ids: topology.edge_ids().map(|ids| &**ids) }
    }
}

/// Parameters of the picks of one hop. A row is a node with its in-edges, a range of the graph's edges.
#[derive(Debug, Clone, Copy)]
pub struct Picks<'a> {
    /// What the graph has of each edge.
    pub edges: EdgeArrays<'a>,
    /// How neighbours are picked.
    pub pick: Pick,
    /// How many neighbours are picked.
    pub fanout: Fanout,
    /// Seed of all randomness.
    pub seed: u64,
    /// The mini-batch.
    pub batch: BatchId,
    /// Hop from the seeds: 0 expands the seeds.
    pub hop: u32,
    /// Number of the type of the edges that are picked from, where they are sampled by type; else 0.
    pub edge_type: u16,
}

impl<'a> Picks<'a> {
    /// The picks of hop `hop` from the seeds of `batch`, in a graph with these edges; `seed` is that of all randomness.
    ///
    /// # Panics
    ///
    /// When the settings have no such hop.
    pub fn new(hops: &NeighborSettings, seed: u64, edges: EdgeArrays<'a>, batch: BatchId, hop: usize) -> Self {
        Self { edges, pick: hops.pick, fanout: hops.fanouts.0[hop], seed, batch, hop: hop as u32, edge_type: 0 }
    }

    /// The weights, if neighbours are picked by weight.
    #[inline]
    pub fn by_weight(&self) -> Option<&'a [f32]> {
        self.edges.weights.filter(|_| self.pick == Pick::Weighted)
    }

    /// Counter of the random numbers of a row, for a node of this draw key (`Topology::draw_key`).
    #[inline]
    pub fn row(&self, draw_key: u32) -> Row {
        let Self { seed, batch, hop, edge_type, .. } = *self;
        Row { seed, batch, hop, node: draw_key, edge_type }
    }

    /// Number of neighbours that are picked of a row.
    #[inline]
    pub fn count(&self, edges: Range<usize>) -> u64 {
        let max = self.fanout.take(edges.len() as u64);
        match self.by_weight() {
            Some(weights) => count_positive(&weights[edges], max as usize) as u64,
            None => max,
        }
    }

    /// Fills `out`, of the length [`Picks::count`], with the positions in the row of the neighbours picked of the node of this
    /// draw key (`Topology::draw_key`), ascending.
    ///
    /// # Panics
    ///
    /// When `out` is longer than the number of picks.
    pub fn pick(&self, draw_key: u32, edges: Range<usize>, out: &mut [u32], scratch: &mut PickScratch) {
        match self.by_weight() {
            Some(weights) => pick_weighted(&self.row(draw_key), &weights[edges], out, scratch),
            None => pick_uniform(&self.row(draw_key), edges.len() as u32, out, scratch),
        }
    }

    /// Number of neighbours that are picked of a row that loses edges.
    pub fn count_left(&self, row: ExcludedRow<'_>) -> u64 {
        let max = self.fanout.take(row.degree.into());
        self.by_weight().map_or(max, |weights| row.count_positive(weights, max))
    }

    /// As [`Picks::pick`], of a row that loses edges: positions among those that are left ([`ExcludedRow::position`]).
    ///
    /// # Panics
    ///
    /// As [`Picks::pick`].
    pub fn pick_left(&self, draw_key: u32, row: ExcludedRow<'_>, out: &mut [u32], scratch: &mut PickScratch) {
        let Some(all) = self.by_weight() else {
            return pick_uniform(&self.row(draw_key), row.degree, out, scratch);
        };
        let mut weights = std::mem::take(&mut scratch.weights);
        weights.clear();
        weights.extend(row.edges().map(|edge| all[edge as usize]));
        pick_weighted(&self.row(draw_key), &weights, out, scratch);
        scratch.weights = weights;
    }

    /// Begins a block of `num_dst` destination nodes, the last of which are expanded and have `counts` neighbours each
    /// ([`Picks::count`]): sets all offsets, and the lengths of neighbours, edge weights and edge ids. The memory of the block is reused, its
    /// content is not.
    ///
    /// # Errors
    ///
    /// More edges than 32-bit offsets can address.
    pub fn begin(&self, block: &mut Block, num_dst: usize, counts: impl ExactSizeIterator<Item = u64>) -> Result<()> {
        let Block { indptr, indices, weights, edge_ids, .. } = block;
        indptr.clear();
        make_room(indptr, num_dst + 1);
        indptr.resize(num_dst - counts.len() + 1, 0);
        let mut end = 0u64;
        indptr.extend(counts.map(|count| {
            end += count;
            end as u32
        }));
        if end > u64::from(u32::MAX) {
            let what =
                format!("hop {} has {end} edges, more than 2^32 - 1; give a smaller batch size or fanouts", self.hop);
            return Err(Error::setting(self.batch, what));
        }
        resize(indices, end as usize);
        match self.edges.weights {
            None => *weights = None,
            Some(_) => resize(weights.get_or_insert_default(), end as usize),
        }
        match self.edges.ids {
            None => *edge_ids = None,
            Some(_) => resize(edge_ids.get_or_insert_default(), end as usize),
        }
        (block.num_dst, block.importance, block.edge_types) = (num_dst, false, None);
        Ok(())
    }
}

/// Reserves `len` elements in a list whose content is no longer needed: an eighth more if the list grows, so that later
/// mini-batches of about the same size fit. A list grown by `reserve` would take up to twice the memory.
pub fn make_room<T>(list: &mut Vec<T>, len: usize) {
    if list.capacity() < len {
        list.clear();
        list.reserve_exact(len + len / 8);
    }
}

/// Sets the length of `list`; its elements are old ones or defaults.
fn resize<T: Copy + Default>(list: &mut Vec<T>, len: usize) {
    make_room(list, len);
    list.resize(len, T::default());
}

#[cfg(test)]
mod tests;
