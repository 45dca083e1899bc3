//! Disjoint trees, one per seed, whose edges and nodes are no later than the seed.

use std::mem;
use std::ops::Range;

use morphgl_graph_store::Topology;
use morphgl_platform::{prefetch_early, splitmix64};
use morphgl_registry::{BatchId, Block, Error, Expansion, HostBatch, Result};

use super::TypedSettings;
use crate::{
    EdgeArrays, Excluded, ExcludedRow, NeighborCheck, PickScratch, Picks, count_positive, pick_uniform, pick_weighted,
};

/// The rows of a graph from which trees are sampled, in memory or on disk.
pub trait TreeRows {
    /// Begins a hop that expands `nodes`, the rows of the hop, some of which may repeat.
    ///
    /// # Errors
    ///
    /// The graph cannot be read.
    fn begin(&mut self, nodes: &[u32]) -> Result<()>;

    /// Prefetches the row of a node.
    fn prefetch(&self, node: u32);

    /// The sub-rows of the row at index `row` of the hop, that of `node`: number of the edge type, and positions of its edges in the
    /// graph's indices.
    fn sub_rows(&self, row: usize, node: u32) -> impl Iterator<Item = (u16, Range<usize>)>;

    /// Time from which on an edge of a row of the hop is known: its own, or that of its source node if that is later. Read only where
    /// trees are bounded by time.
    fn time(&self, row: usize, edge: usize) -> i64;

    /// Time that bounds the tree of the seed at `position` of the mini-batch, which is `node`. Read only where trees are bounded by time.
    fn seed_time(&self, position: usize, node: u32) -> i64;

    /// Sets the in-neighbours of the `edges` picked, positions in the graph's indices; those of row `i` of the hop are
    /// `edges[ends[i]..ends[i + 1]]`.
    ///
    /// # Errors
    ///
    /// The graph cannot be read, or an in-neighbour does not exist.
    fn neighbors(&mut self, batch: BatchId, edges: &[u64], ends: &[u32], out: &mut Vec<u32>) -> Result<()>;

    /// Sets the ids of a block's edges, which are those at the positions `edges` in the graph's indices, in the block's order; `None` where
    /// the edges have no features.
    ///
    /// # Errors
    ///
    /// The graph cannot be read, or an id is no row of the features.
    fn edge_ids(&mut self, edges: &[u64], block: &mut Block) -> Result<()>;

    /// Appends the in-degrees of nodes.
    ///
    /// # Errors
    ///
    /// The graph cannot be read.
    fn degrees(&mut self, nodes: &[u32], out: &mut Vec<f32>) -> Result<()>;
}

/// The rows of a graph in host memory.
#[derive(Debug)]
pub(super) struct HostTrees<'a> {
    pub(super) topology: &'a Topology,
    /// Times of the seeds, in their order, in place of those of their nodes.
    pub(super) seed_times: Option<&'a [i64]>,
}

impl TreeRows for HostTrees<'_> {
    fn begin(&mut self, _: &[u32]) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn prefetch(&self, node: u32) {
        prefetch_early(self.topology.indptr(), node as usize);
    }

    #[inline]
    fn sub_rows(&self, _: usize, node: u32) -> impl Iterator<Item = (u16, Range<usize>)> {
        self.topology.sub_rows(node).map(|(edge_type, edges)| (edge_type as u16, edges))
    }

    #[inline]
    fn time(&self, _: usize, edge: usize) -> i64 {
        time(self.topology, edge)
    }

    fn seed_time(&self, position: usize, node: u32) -> i64 {
        match self.seed_times {
            Some(times) => times[position],
            None => self.topology.node_times().map_or(i64::MAX, |times| times[node as usize]),
        }
    }

    fn neighbors(&mut self, batch: BatchId, edges: &[u64], _: &[u32], out: &mut Vec<u32>) -> Result<()> {
        let indices = self.topology.indices();
        out.clear();
        out.reserve(edges.len());
        for (i, &edge) in edges.iter().enumerate() {
            if let Some(&later) = edges.get(i + AHEAD) {
                prefetch_early(indices, later as usize);
            }
            out.push(indices[edge as usize]);
        }
        match NeighborCheck::new(self.topology) {
            None => Ok(()),
            Some(check) => {
                check.nodes(out);
                check.result(batch)
            }
        }
    }

    fn edge_ids(&mut self, edges: &[u64], block: &mut Block) -> Result<()> {
        of_edges(self.topology.edge_ids().map(|ids| &**ids), edges, &mut block.edge_ids);
        Ok(())
    }

    fn degrees(&mut self, nodes: &[u32], out: &mut Vec<f32>) -> Result<()> {
        out.extend(nodes.iter().map(|&node| self.topology.degree(node) as f32));
        Ok(())
    }
}

/// How neighbours are picked of those that are no later than the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimePick {
    /// As without times: uniformly, or by weight.
    Uniform,
    /// The latest ones; of equal times those that come later in the row.
    Last,
}

/// Trees of seeds, and their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeSettings {
    /// How neighbours are picked by time; `None` where times are not read.
    pub by_time: Option<TimePick>,
    /// Whether every sub-row ascends by time, so that the edges within a seed's time are its first ones.
    pub ascends: bool,
}

/// Time from which on an edge is known: its own, or that of its source node if that is later.
pub(super) fn time(topology: &Topology, edge: usize) -> i64 {
    let of_edge = topology.edge_times().map_or(i64::MIN, |times| times[edge]);
    let of_source = topology
        .node_times()
        .map_or(i64::MIN, |times| times.get(topology.indices()[edge] as usize).copied().unwrap_or(i64::MAX));
    of_edge.max(of_source)
}

/// Prefetch distance, in rows and in edges.
const AHEAD: usize = 16;
/// Average number of free slots per used one, at least.
const SLOTS_PER_NODE: usize = 2;
/// A slot without a node.
const FREE: u64 = u64::MAX;

/// Samples trees, one mini-batch after another, in the same buffers.
#[derive(Debug, Default)]
pub struct Trees {
    /// Tree and node of each slot, and its local id: open addressing, a power of two of slots.
    slots: Vec<(u64, u32)>,
    scratch: PickScratch,
    positions: Vec<u32>,
    /// Positions in a row of the edges within a seed's time.
    valid: Vec<u32>,
    weights: Vec<f32>,
    /// Positions of a hop's edges in the graph's indices.
    edges: Vec<u64>,
    /// Seed of the random numbers of each tree, and time of its seed.
    seeds: Vec<(u64, i64)>,
}

/// Nodes of a mini-batch by local id, with their trees.
#[derive(Debug, Default)]
struct Nodes {
    nodes: Vec<u32>,
    trees: Vec<u32>,
}

impl Trees {
    /// Samples the mini-batch `batch.id` of `seeds` from the graph of `rows` without the edges `excluded`: sets blocks, input nodes, trees,
    /// degrees without weights, and the number of seeds. Of `topology`, draw keys and types are read, and of `all` the weights.
    /// `seed` is that of all randomness.
    ///
    /// # Errors
    ///
    /// The graph cannot be read, or a hop has more edges than 32-bit offsets can address.
    pub fn sample(
        &mut self,
        rows: &mut impl TreeRows,
        (topology, excluded, all): (&Topology, &Excluded, EdgeArrays<'_>),
        (settings, by): (&TypedSettings, TreeSettings),
        seed: u64,
        seeds: &[u32],
        batch: &mut HostBatch,
    ) -> Result<()> {
        let mut found =
            Nodes { nodes: mem::take(&mut batch.input_nodes), trees: batch.trees.take().unwrap_or_default() };
        found.nodes.clear();
        found.trees.clear();
        self.clear();
        self.seeds.clear();
        for (tree, &node) in (0..).zip(seeds) {
            let bound = by.by_time.map_or(i64::MAX, |_| rows.seed_time(tree as usize, node));
            // Occurrences of a seed have equal trees.
            self.seeds.push((seed ^ splitmix64(u64::from(topology.draw_key(node)) + 1), bound));
            self.local(&mut found, tree, node);
        }
        let hops = settings.hops.fanouts.0.len();
        batch.blocks.resize_with(hops, Block::default);
        let mut newest = 0;
        for hop in 0..hops {
            let num_dst = found.nodes.len();
            let first = if settings.hops.expansion == Expansion::All { 0 } else { newest };
            newest = num_dst;
            let picks = Picks::new(&settings.hops, seed, all, batch.id, hop);
            let block = &mut batch.blocks[hops - 1 - hop];
            rows.begin(&found.nodes[first..])?;
            self.pick(rows, (topology, excluded), (settings, by, picks), &found, first..num_dst, block)?;
            rows.neighbors(batch.id, &self.edges, &block.indptr[first..], &mut block.indices)?;
            rows.edge_ids(&self.edges, block)?;
            self.relabel(all.weights, &mut found, block);
            block.num_src = found.nodes.len();
        }
        batch.num_seeds = seeds.len();
        batch.given = None;
        batch.degrees.clear();
        rows.degrees(&found.nodes, &mut batch.degrees)?;
        (batch.input_nodes, batch.trees) = (found.nodes, Some(found.trees));
        Ok(())
    }

    /// Picks the edges of the rows `range` of a hop, and sets the offsets and the types of `block`.
    fn pick(
        &mut self,
        rows: &impl TreeRows,
        (topology, excluded): (&Topology, &Excluded),
        (settings, by, picks): (&TypedSettings, TreeSettings, Picks<'_>),
        found: &Nodes,
        range: Range<usize>,
        block: &mut Block,
    ) -> Result<()> {
        self.edges.clear();
        block.num_dst = range.end;
        block.importance = false;
        block.indptr.clear();
        block.indptr.resize(range.start + 1, 0);
        let mut types = block.edge_types.take().unwrap_or_default();
        types.clear();
        for row in range.clone() {
            if let Some(&later) = found.nodes[..range.end].get(row + AHEAD) {
                rows.prefetch(later);
            }
            let (node, (seed, bound)) = (found.nodes[row], self.seeds[found.trees[row] as usize]);
            let left = excluded.get(node);
            let time = |edge: usize| rows.time(row - range.start, edge);
            for (edge_type, edges) in rows.sub_rows(row - range.start, node) {
                let Some(picks) = settings.picks_of(Picks { seed, ..picks }, edge_type) else { continue };
                self.pick_row(&time, (by, picks), (topology.draw_key(node), bound), (edges, left));
                types.resize(self.edges.len(), edge_type);
            }
            let end = u32::try_from(self.edges.len()).map_err(|_| {
                let what =
                    format!("hop {} has more than 2^32 - 1 edges; give a smaller batch size or fanouts", picks.hop);
                Error::setting(picks.batch, what)
            })?;
            block.indptr.push(end);
        }
        block.edge_types = topology.types().map(|_| types);
        Ok(())
    }

    /// Picks from the edges of a sub-row that are no later than `bound`, and appends their positions in the graph's indices. `left` is the
    /// node's whole row, if it loses edges.
    fn pick_row(
        &mut self,
        time: &impl Fn(usize) -> i64,
        (by, picks): (TreeSettings, Picks<'_>),
        (key, bound): (u32, i64),
        (row, left): (Range<usize>, Option<ExcludedRow<'_>>),
    ) {
        let Self { scratch, positions, valid, weights, edges, .. } = self;
        // The edges are the first `count` of the row, or those at `valid`.
        valid.clear();
        let is_early = |edge: usize| by.by_time.is_none() || time(edge) <= bound;
        let count = match (left, by.by_time) {
            (None, None) => row.len(),
            (None, Some(_)) if by.ascends => partition(row.clone(), is_early),
            (None, Some(_)) => {
                valid.extend((0..row.len() as u32).filter(|&p| is_early(row.start + p as usize)));
                valid.len()
            }
            (Some(left), _) => {
                let place = |edge: usize| left.num_left_before((edge as u64 - left.start) as u32);
                let edges = (place(row.start)..place(row.end)).map(|p| left.start + u64::from(left.position(p)));
                let edges = edges.map(|edge| edge as usize).filter(|&edge| is_early(edge));
                valid.extend(edges.map(|edge| (edge - row.start) as u32));
                valid.len()
            }
        };
        let at = |valid: &[u32], p: usize| row.start + valid.get(p).map_or(p, |&position| position as usize);
        let fanout = picks.fanout.take(count as u64) as usize;
        if by.by_time == Some(TimePick::Last) {
            // Sorting is stable: of equal times, later ones of the row come last.
            valid.sort_by_key(|&position| time(row.start + position as usize));
            let latest = (count - fanout..count).map(|p| at(valid, p) as u64);
            let start = edges.len();
            edges.extend(latest);
            edges[start..].sort_unstable();
            return;
        }
        let row_of = picks.row(key);
        if let Some(all) = picks.by_weight() {
            weights.clear();
            weights.extend((0..count).map(|p| all[at(valid, p)]));
            positions.resize(count_positive(weights, fanout), 0);
            pick_weighted(&row_of, weights, positions, scratch);
        } else {
            positions.resize(fanout, 0);
            pick_uniform(&row_of, count as u32, positions, scratch);
        }
        edges.extend(positions.iter().map(|&p| at(valid, p as usize) as u64));
    }

    /// Replaces the neighbours of `block` by their local ids, and sets its weights to those of the edges picked.
    fn relabel(&mut self, weights: Option<&[f32]>, found: &mut Nodes, block: &mut Block) {
        let mut start = 0;
        for (row, &end) in block.indptr[1..].iter().enumerate() {
            let tree = found.trees[row];
            for node in &mut block.indices[start..end as usize] {
                *node = self.local(found, tree, *node);
            }
            start = end as usize;
        }
        of_edges(weights, &self.edges, &mut block.weights);
    }

    /// The local id of a node of a tree, a new one at its first appearance.
    fn local(&mut self, found: &mut Nodes, tree: u32, node: u32) -> u32 {
        if self.slots.len() < SLOTS_PER_NODE * (found.nodes.len() + 1) {
            self.grow(found);
        }
        let key = u64::from(tree) << 32 | u64::from(node);
        let mask = self.slots.len() - 1;
        let mut slot = splitmix64(key) as usize & mask;
        loop {
            match self.slots[slot] {
                (known, local) if known == key => return local,
                (FREE, _) => {
                    let local = found.nodes.len() as u32;
                    self.slots[slot] = (key, local);
                    found.nodes.push(node);
                    found.trees.push(tree);
                    return local;
                }
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    fn clear(&mut self) {
        self.slots.fill((FREE, 0));
    }

    #[cold]
    fn grow(&mut self, found: &Nodes) {
        let slots = (2 * SLOTS_PER_NODE * (found.nodes.len() + 1)).next_power_of_two().max(1 << 10);
        self.slots.clear();
        self.slots.resize(slots, (FREE, 0));
        for ((&node, &tree), local) in found.nodes.iter().zip(&found.trees).zip(0..) {
            let key = u64::from(tree) << 32 | u64::from(node);
            let mut slot = splitmix64(key) as usize & (slots - 1);
            while self.slots[slot].0 != FREE {
                slot = (slot + 1) & (slots - 1);
            }
            self.slots[slot] = (key, local);
        }
    }
}

/// Sets `out` to what the graph has of `edges`, `None` where it has nothing.
fn of_edges<T: Copy>(all: Option<&[T]>, edges: &[u64], out: &mut Option<Vec<T>>) {
    let Some(all) = all else {
        *out = None;
        return;
    };
    let out = out.get_or_insert_default();
    out.clear();
    out.extend(edges.iter().map(|&edge| all[edge as usize]));
}

/// Number of the first numbers of `range` for which `is_first` is true, which is true of no number after one for which it is false.
fn partition(range: Range<usize>, is_first: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_first(middle) { low = middle + 1 } else { high = middle }
    }
    low - range.start
}
