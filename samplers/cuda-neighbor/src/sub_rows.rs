//! Sampling by edge type: a hop divides the rows that it expands into sub-rows of one edge type each, and picks of each by a fanout, by
//! draws and within a time of its own.

use morphgl_cuda::{Argument, Buffer, Shape};
use morphgl_registry::Result;

use crate::bounds::HopBounds;
use crate::buffer::check_len;
use crate::expand::HopLaunch;
use crate::kernels::{BLOCK, GROUP, SizeIndices, Table};
use crate::launch::{Launch, WARPS, row_blocks, typed_scratch};
use crate::scratch::Scratch;
use crate::typed::{Typed, TypedScratch};

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
