//! Sampling by edge type: a hop divides the rows that it expands into sub-rows of one edge type each, and picks of each by a fanout, by
//! draws and within a time of its own.

use std::sync::Arc;

use morphgl_cuda::{Argument, Buffer, Shape, Stream};
use morphgl_graph_store::Topology;
use morphgl_registry::{BatchingContext, Error, Fanout, Fanouts, NeighborSettings, Result};
use morphgl_sampler_core::{SubRowEnds, TimePick, TypedSettings};

use crate::TYPED;
use crate::bounds::HopBounds;
use crate::buffer::{check_len, grow};
use crate::expand::HopLaunch;
use crate::kernels::{BLOCK, GROUP, SizeIndices, Table};
use crate::kind::{Blocks, Kind};
use crate::launch::{Launch, WARPS, row_blocks, typed_scratch};
use crate::pairs::PairSource;
use crate::scratch::Scratch;
use crate::without::Without;

/// Bytes that the ends of sub-rows may take in any graph.
const MIN_END_BYTES: u64 = 1 << 20;

/// Settings of sampling by edge type, where rows are divided or trees are disjoint.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) settings: TypedSettings,
    /// Where sub-rows end; `None` in a graph without types, whose rows have one sub-row each.
    pub(crate) ends: Option<SubRowEnds>,
    /// Sub-rows of a row: the most edge types that lead to one node type.
    width: u32,
    /// Fanouts by hop and edge type: 0 for none, `u32::MAX` for all.
    fanouts: Vec<Vec<u32>>,
}

/// Bytes of device memory that sampling by edge type takes for the graph besides rows and weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// Of all nodes: ends of sub-rows, and times.
    pub(crate) of_nodes: u64,
    /// Of each edge: its time.
    pub(crate) per_edge: u64,
}

impl Kind {
    /// Sampling by edge type.
    ///
    /// # Errors
    ///
    /// Settings that [`TypedSettings::new`] refuses, and a graph of more edge types than the ends of its sub-rows are kept for.
    pub(crate) fn typed_of(context: &BatchingContext) -> Result<Self> {
        let topology = &context.dataset.topology;
        let largest = topology.indptr().windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        let settings = TypedSettings::of_degrees(context, largest)?;
        let kind = Self { key: TYPED.key, hops: settings.hops.clone(), blocks: Blocks::Hops, typed: None };
        if topology.types().is_none() && settings.trees.is_none() {
            return Ok(kind);
        }
        let ends = || {
            let max_bytes = (4 * topology.num_edges()).max(MIN_END_BYTES);
            SubRowEnds::within(topology, max_bytes).ok_or_else(|| {
                let cure = "batch by Batching_CPU_Typed, or merge edge types when importing it";
                let what =
                    "the graph has so many edge types that the ends of its sub-rows take more than its neighbours do";
                Error::setting(TYPED.key, format!("{what}; {cure}"))
            })
        };
        let ends = topology.types().map(|_| ends()).transpose()?;
        let number = |fanout: Option<Fanout>| match fanout {
            None => 0,
            Some(Fanout::All) => u32::MAX,
            Some(Fanout::AtMost(k)) => k.get(),
        };
        let hops = &settings.hops;
        let mut fanouts: Vec<Vec<u32>> =
            settings.fanouts.iter().map(|of_hop| of_hop.iter().copied().map(number).collect()).collect();
        if fanouts.is_empty() {
            fanouts = hops.fanouts.0.iter().map(|&fanout| vec![number(Some(fanout))]).collect();
        }
        let leading: Vec<Vec<u16>> = match &ends {
            None => vec![vec![0]],
            Some(ends) => ends.node_types().map(|(_, edge_types, _)| edge_types.to_vec()).collect(),
        };
        // No row has more edges than the fanouts of the types that lead to its node.
        let most = |of_hop: &Vec<u32>| {
            let of_type = |types: &Vec<u16>| types.iter().map(|&number| u64::from(of_hop[usize::from(number)])).sum();
            let most: u64 = leading.iter().map(of_type).max().unwrap_or(0);
            match u32::try_from(most.max(1)) {
                Ok(most) if most < u32::MAX => Fanout::AtMost(most.try_into().expect("at least 1")),
                _ => Fanout::All,
            }
        };
        let hops = NeighborSettings { fanouts: Fanouts(fanouts.iter().map(most).collect()), ..hops.clone() };
        let width = leading.iter().map(Vec::len).max().unwrap_or(0).max(1) as u32;
        Ok(Self { hops, typed: Some(Arc::new(Typed { settings, ends, width, fanouts })), ..kind })
    }

    /// Maximum number of trees of a mini-batch; `None` where nodes are in none.
    pub(crate) fn max_trees(&self, context: &BatchingContext, pairs: Option<&PairSource>) -> Option<u64> {
        self.typed.as_ref()?.settings.trees?;
        let size = context.settings.batch_size;
        Some(pairs.map_or(size.min(context.seeds.nodes().len()) as u64, |pairs| pairs.max_seeds(size)))
    }

    /// Bytes that the graph takes besides.
    pub(crate) fn extra(&self, topology: &Topology) -> Extra {
        let Some(typed) = &self.typed else { return Extra::default() };
        let times = 8 * u64::from(typed.is_timed());
        Extra {
            of_nodes: typed.ends.as_ref().map_or(0, SubRowEnds::num_bytes) + times * topology.num_nodes() as u64,
            per_edge: if topology.edge_times().is_some() { times } else { 0 },
        }
    }
}

impl Typed {
    /// Whether trees are disjoint.
    pub(crate) fn has_trees(&self) -> bool {
        self.settings.trees.is_some()
    }

    /// Whether times bound trees.
    pub(crate) fn is_timed(&self) -> bool {
        self.settings.trees.is_some_and(|trees| trees.by_time.is_some())
    }

    fn by_last(&self) -> bool {
        self.settings.trees.is_some_and(|trees| trees.by_time == Some(TimePick::Last))
    }

    /// Sub-rows of so many rows.
    fn sub_rows(&self, rows: u64) -> u64 {
        rows.saturating_mul(self.width.into())
    }

    /// Bytes of scratch memory for the sub-rows of a row.
    pub(crate) fn row_bytes(&self) -> u64 {
        26 * u64::from(self.width)
    }

    /// The largest fanout of a hop that is not all; 0 without one.
    fn largest(&self, hop: u32) -> u32 {
        self.fanouts[hop as usize].iter().copied().filter(|&fanout| fanout < u32::MAX).max().unwrap_or(0)
    }

    /// The ends of the sub-rows of a node, in a row that loses edges: `left` is the number of edges that are left before a position.
    pub(crate) fn lost_ends(&self, node: u32, left: impl Fn(u32) -> u32, out: &mut Vec<u32>) {
        let Some(ends) = &self.ends else { return };
        let start = out.len();
        out.extend(ends.ends_of(node).iter().map(|&end| left(end)));
        out.resize(start + self.width as usize, 0);
    }
}

/// The ends of sub-rows, as a device finds them: per node type its first node, the node after its last, and the place and number of its
/// edge types; and the index of the first end.
#[derive(Debug)]
pub(crate) struct NodeTypes {
    types: Buffer<u32>,
    bases: Buffer<u64>,
    edge_types: Buffer<u32>,
}

impl NodeTypes {
    pub(crate) fn new(stream: &Stream, ends: &SubRowEnds) -> Result<Self> {
        let (mut types, mut bases, mut edge_types) = (Vec::new(), Vec::new(), Vec::new());
        for (nodes, leading, base) in ends.node_types() {
            types.extend([nodes.start, nodes.end, edge_types.len() as u32, leading.len() as u32]);
            bases.push(base as u64);
            edge_types.extend(leading.iter().map(|&number| u32::from(number)));
        }
        let (types, bases) = (Buffer::of(stream, &types)?, Buffer::of(stream, &bases)?);
        Ok(Self { types, bases, edge_types: Buffer::of(stream, &edge_types)? })
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        self.types.num_bytes() + self.bases.num_bytes() + self.edge_types.num_bytes()
    }
}

/// What sampling by edge type has in the memory of a stream.
#[derive(Debug)]
pub(crate) struct TypedScratch {
    /// Fanouts by hop and edge type.
    fanouts: Buffer<u32>,
    /// Of each sub-row of a hop: its first edge, numbers of edges, of candidates and of picks, the edges picked before it, and its type.
    start: Buffer<u64>,
    len: Buffer<u32>,
    candidates: Buffer<u32>,
    take: Buffer<u32>,
    indptr: Buffer<u32>,
    types: Buffer<u16>,
    /// Of each tree: seed of its random numbers, and time that bounds it.
    tree_seeds: Buffer<u64>,
    bounds: Buffer<i64>,
}

impl TypedScratch {
    pub(crate) fn new(stream: &Stream, typed: &Typed) -> Result<Self> {
        Ok(Self {
            fanouts: Buffer::of(stream, &typed.fanouts.concat())?,
            start: Buffer::new(stream, 0)?,
            len: Buffer::new(stream, 0)?,
            candidates: Buffer::new(stream, 0)?,
            take: Buffer::new(stream, 0)?,
            indptr: Buffer::new(stream, 0)?,
            types: Buffer::new(stream, 0)?,
            tree_seeds: Buffer::new(stream, 0)?,
            bounds: Buffer::new(stream, 0)?,
        })
    }

    /// Grows the memory of sub-rows to those of `rows` rows; with `counted`, candidates are counted.
    pub(crate) fn grow(&mut self, stream: &Stream, typed: &Typed, rows: u64, counted: bool) -> Result<()> {
        let subs = typed.sub_rows(rows);
        grow(stream, &mut self.start, subs, 0)?;
        grow(stream, &mut self.len, subs, 0)?;
        grow(stream, &mut self.take, subs, 0)?;
        grow(stream, &mut self.types, subs, 0)?;
        grow(stream, &mut self.candidates, if counted { subs } else { 0 }, 0)?;
        grow(stream, &mut self.indptr, subs + 1, 0)
    }

    /// Grows the memory of trees.
    pub(crate) fn grow_trees(&mut self, stream: &Stream, trees: u64) -> Result<()> {
        grow(stream, &mut self.tree_seeds, trees, 0)?;
        grow(stream, &mut self.bounds, trees, 0)
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        let narrow = [&self.fanouts, &self.len, &self.candidates, &self.take, &self.indptr];
        narrow.map(Buffer::num_bytes).into_iter().sum::<u64>()
            + [&self.start, &self.tree_seeds].map(Buffer::num_bytes).into_iter().sum::<u64>()
            + self.types.num_bytes()
            + self.bounds.num_bytes()
    }
}

/// Blocks of the scan of the sub-rows of so many rows.
pub(crate) fn sub_row_blocks(typed: &Typed, rows: u64) -> u64 {
    row_blocks(typed.sub_rows(rows)) as u64
}

impl Launch<'_> {
    /// Begins the trees of `num` seeds, `order` from `first` on: their nodes, trees, seeds and times, and their number in `counts`.
    pub(crate) fn trees(
        &self,
        (order, first, num): (&Buffer<u32>, u64, u32),
        (nodes, trees): (&Buffer<u32>, &Buffer<u32>),
        scratch: &Scratch,
    ) -> Result<()> {
        let TypedScratch { tree_seeds, bounds, .. } = scratch.typed();
        check_len(order, first + u64::from(num));
        check_len(nodes, num.into());
        check_len(trees, num.into());
        check_len(tree_seeds, num.into());
        check_len(bounds, num.into());
        let graph = &self.shared.graph;
        let arguments = [
            order.into(),
            first.into(),
            num.into(),
            nodes.into(),
            trees.into(),
            tree_seeds.into(),
            bounds.into(),
            (&scratch.counts).into(),
            graph.draw_keys.as_ref().into(),
            graph.node_times.as_ref().into(),
            self.shared.seed.into(),
        ];
        self.run(&self.kernels().typed_trees, self.grid(u64::from(num)), arguments)?;
        self.insert((nodes, trees), num, &scratch.table)
    }

    /// Inserts the first `num` nodes, each in its tree, into the table.
    pub(crate) fn insert(&self, (nodes, trees): (&Buffer<u32>, &Buffer<u32>), num: u32, table: &Table) -> Result<()> {
        check_len(nodes, num.into());
        check_len(trees, num.into());
        let [node_bits, tree_bits] = table.tree_bits;
        let arguments = [nodes.into(), trees.into(), num.into(), node_bits.into(), tree_bits.into()];
        self.run(
            &self.kernels().typed_insert,
            self.grid(u64::from(num)),
            arguments.into_iter().chain(table.arguments()),
        )
    }

    /// Divides the rows that a hop expands, and computes the offsets of all rows and the number of edges of the hop.
    pub(crate) fn divide_rows(
        &self,
        (bounds, sizes, hop): (&HopBounds, SizeIndices, u32),
        (nodes, trees): (&Buffer<u32>, Option<&Buffer<u32>>),
        scratch: &Scratch,
        indptr: &Buffer<u32>,
    ) -> Result<()> {
        let (shared, kernels, typed) = (self.shared, self.kernels(), self.shared.typed());
        let TypedScratch { fanouts, start, len, candidates, take, indptr: sub_indptr, types, bounds: times, .. } =
            scratch.typed();
        let (graph, subs, sub_rows) = (&shared.graph, typed.sub_rows(bounds.expanded), shared.sub_rows_entry());
        check_len(nodes, bounds.rows);
        check_len(&scratch.start, bounds.rows);
        check_len(&scratch.len, bounds.rows);
        check_len(indptr, bounds.rows + 1);
        check_len(start, subs);
        check_len(len, subs);
        check_len(take, subs);
        check_len(types, subs);
        check_len(sub_indptr, subs + 1);
        let first_fanout = hop * typed.fanouts[hop as usize].len() as u32;
        let of_types = graph.node_types.as_ref();
        let without = scratch.without();
        let num_lost = without.map_or(0, |without| without.nodes.len() as u32);
        let arguments = [
            nodes.into(),
            (&scratch.start).into(),
            (&scratch.len).into(),
            (&scratch.counts).into(),
            sizes.first.into(),
            sizes.rows.into(),
            sub_rows.into(),
            typed.width.into(),
            of_types.map(|of| &of.types).into(),
            of_types.map(|of| &of.bases).into(),
            of_types.map(|of| &of.edge_types).into(),
            graph.sub_row_ends.as_ref().into(),
            without.map(|without| &without.nodes).into(),
            num_lost.into(),
            without.and_then(|without| without.ends.as_ref()).into(),
            fanouts.into(),
            first_fanout.into(),
            start.into(),
            len.into(),
            types.into(),
            take.into(),
        ];
        let grid = self.reading_grid(subs, u64::from(BLOCK));
        self.run(&kernels.typed_divide, grid, arguments)?;
        if shared.counts_candidates() {
            check_len(candidates, subs);
            let [indices, cached, ..] = graph.edges(without);
            let weights = graph.edge_weights(without).map(|w| if shared.kind.weighted() { w } else { Argument::NULL });
            let [edge_times, cached_times, node_times] = graph.times(without);
            let arguments = [
                start.into(),
                len.into(),
                types.into(),
                (&scratch.counts).into(),
                sizes.first.into(),
                sub_rows.into(),
                typed.width.into(),
                trees.into(),
                times.into(),
                indices,
                cached,
                edge_times,
                cached_times,
                node_times,
                weights[0],
                weights[1],
                fanouts.into(),
                first_fanout.into(),
                candidates.into(),
                take.into(),
            ];
            self.run(&kernels.typed_count, self.reading_grid(subs.saturating_mul(32), WARPS), arguments)?;
        }
        let of_sub_rows = SizeIndices { first: -1, rows: sub_rows, edges: sizes.edges };
        let all = HopBounds { rows: subs, ..*bounds };
        self.offsets((&all, of_sub_rows, u32::MAX), take, &scratch.counts, &scratch.sums, sub_indptr)?;
        let arguments = [
            sub_indptr.into(),
            (&scratch.counts).into(),
            sizes.first.into(),
            sizes.rows.into(),
            typed.width.into(),
            indptr.into(),
        ];
        self.run(&kernels.typed_rows, self.grid(bounds.rows + 1), arguments)
    }
}

impl<'a> HopLaunch<'a> {
    /// Arguments for the sub-rows, and for the order and the bounds of their picks.
    fn sub_rows(&self) -> impl Iterator<Item = Argument<'a>> + use<'a> {
        let (shared, scratch) = (self.launch.shared, self.scratch);
        let (typed, of, graph) = (shared.typed(), scratch.typed(), &shared.graph);
        let candidates = if shared.counts_candidates() { &of.candidates } else { &of.len };
        let SizeIndices { first, rows, .. } = self.sizes;
        let [edge_times, cached_times, node_times] = graph.times(scratch.without());
        let [_, draws @ ..] = self.draws.arguments();
        let sub_rows = [
            (&of.start).into(),
            (&of.len).into(),
            candidates.into(),
            (&of.indptr).into(),
            (&of.types).into(),
            (&scratch.counts).into(),
            first.into(),
            rows.into(),
            shared.sub_rows_entry().into(),
            typed.width.into(),
        ];
        let trees = [
            self.keys().into(),
            self.trees.into(),
            (&of.tree_seeds).into(),
            (&of.bounds).into(),
            edge_times,
            cached_times,
            node_times,
            u32::from(shared.kind.weighted()).into(),
            u32::from(typed.by_last()).into(),
        ];
        sub_rows.into_iter().chain(trees).chain(draws)
    }

    /// Arguments for the edges that are picked, and for the table.
    fn picked_by_type(&self) -> impl Iterator<Item = Argument<'a>> + use<'a> {
        let (scratch, arrays) = (self.scratch, self.arrays);
        let [node_bits, tree_bits] = scratch.table.tree_bits;
        let to = [
            (&arrays.indices).into(),
            (&scratch.slots).into(),
            arrays.weights.as_ref().into(),
            arrays.types.as_ref().into(),
            node_bits.into(),
            tree_bits.into(),
        ];
        let from = self.launch.shared.graph.edges(scratch.without());
        from.into_iter().chain(to).chain(scratch.table.arguments())
    }

    /// Picks from sub-rows, and reads the edges.
    pub(crate) fn pick_by_type(&self) -> Result<()> {
        let (launch, shared) = (self.launch, self.launch.shared);
        let typed = shared.typed();
        self.arrays.types.iter().for_each(|types| check_len(types, self.bounds.edges));
        let (largest, subs) = (typed.largest(self.draws.hop), typed.sub_rows(self.bounds.expanded));
        let most = largest.clamp(1, GROUP);
        let takes_all = typed.fanouts[self.draws.hop as usize].contains(&u32::MAX);
        let group = if takes_all || shared.counts_candidates() { GROUP } else { most.next_power_of_two() };
        let grid = launch.reading_grid(subs.saturating_mul(group.into()), u64::from(BLOCK));
        let arguments = self.sub_rows().chain([group.into(), most.into()]).chain(self.picked_by_type());
        launch.run(&launch.kernels().typed_pick, grid, arguments)?;
        let by_keys = shared.kind.weighted() || typed.by_last();
        if largest == 0 || !by_keys && largest <= GROUP {
            return Ok(());
        }
        let most = if by_keys { 0 } else { largest };
        let (words, blocks) = typed_scratch(most, shared.max_blocks);
        check_len(&self.scratch.large, words as u64);
        let large = (words > 0).then_some(&self.scratch.large);
        let shape = Shape::linear((subs as usize).clamp(1, blocks), BLOCK);
        let shape = shape.with_shared(if words == 0 { 16 * most as usize } else { 0 });
        let arguments = self.sub_rows().chain([most.into(), large.into()]).chain(self.picked_by_type());
        launch.run(&launch.kernels().typed_pick_block, shape, arguments)
    }
}

/// Words of scratch memory that the picks of a hop by type take.
pub(crate) fn words_of_picks(typed: &Typed, hop: u32, by_weight: bool, max_blocks: u64) -> u64 {
    let largest = typed.largest(hop);
    let is_large = largest > GROUP && !by_weight && !typed.by_last();
    if is_large { typed_scratch(largest, max_blocks).0 as u64 } else { 0 }
}

impl Without {
    /// Bytes of the ends of the sub-rows of at most so many rows.
    pub(crate) fn end_bytes(typed: Option<&Typed>, rows: u64) -> u64 {
        typed.filter(|typed| typed.ends.is_some()).map_or(0, |typed| 4 * typed.sub_rows(rows))
    }
}
