//! Expansion of a hop: pick edges, read neighbours, relabel.

use morphgl_cuda::{Argument, Buffer, Shape};
use morphgl_registry::Result;

use crate::arrays::HopArrays;
use crate::bounds::HopBounds;
use crate::buffer::check_len;
use crate::kernels::{BLOCK, Draws, GROUP, SizeIndices};
use crate::launch::{Launch, WARPS, large_scratch, word_blocks};
use crate::scratch::Scratch;

/// Arguments of the hop's kernels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HopLaunch<'a> {
    pub(crate) launch: Launch<'a>,
    pub(crate) scratch: &'a Scratch,
    pub(crate) bounds: &'a HopBounds,
    pub(crate) sizes: SizeIndices,
    pub(crate) draws: Draws,
    nodes: &'a Buffer<u32>,
    /// The tree of each node, where nodes are in trees.
    pub(crate) trees: Option<&'a Buffer<u32>>,
    pub(crate) arrays: &'a HopArrays,
    /// Whether the scratch memory has the order in which rows are read.
    is_ordered: bool,
}

impl<'a> HopLaunch<'a> {
    /// Asserts that all buffers have capacity for the hop's bounds.
    pub(crate) fn new(
        launch: Launch<'a>,
        scratch: &'a Scratch,
        (bounds, sizes, draws): (&'a HopBounds, SizeIndices, Draws),
        (nodes, trees): (&'a Buffer<u32>, Option<&'a Buffer<u32>>),
        (arrays, is_ordered): (&'a HopArrays, bool),
    ) -> Self {
        check_len(nodes, bounds.nodes);
        trees.inspect(|trees| check_len(trees, bounds.nodes));
        check_len(&scratch.start, bounds.rows);
        check_len(&scratch.len, bounds.rows);
        check_len(&scratch.slots, bounds.edges);
        arrays.check(bounds);
        Self { launch, scratch, bounds, sizes, draws, nodes, trees, arrays, is_ordered }
    }

    pub(crate) fn run(&self) -> Result<()> {
        match self.draws.fanout {
            _ if self.launch.shared.kind.typed.is_some() => self.pick_by_type()?,
            _ if self.launch.shared.kind.weighted() => self.pick_weighted()?,
            u32::MAX => self.take_all()?,
            fanout if fanout > GROUP => self.pick_large()?,
            _ => self.pick()?,
        }
        self.relabel()
    }

    fn picked(&self) -> &'a Buffer<u64> {
        check_len(&self.scratch.picked, self.bounds.edges);
        &self.scratch.picked
    }

    /// Arguments for rows: the nodes' numbers in the counters of random numbers, starts, lengths, output offsets, and the
    /// expanded range.
    fn rows(&self) -> [Argument<'a>; 7] {
        let SizeIndices { first, rows, .. } = self.sizes;
        let scratch = self.scratch;
        let keys = self.keys();
        let (start, len, indptr) = ((&scratch.start).into(), (&scratch.len).into(), (&self.arrays.indptr).into());
        [keys.into(), start, len, indptr, (&scratch.counts).into(), first.into(), rows.into()]
    }

    /// The nodes' numbers in the counters of random numbers.
    pub(crate) fn keys(&self) -> &'a Buffer<u32> {
        let keys = if self.launch.shared.graph.draw_keys.is_some() { &self.scratch.key } else { self.nodes };
        check_len(keys, self.bounds.rows);
        keys
    }

    /// Arguments for picks: those for rows and draws.
    fn picks(&self) -> impl Iterator<Item = Argument<'a>> + use<'a> {
        self.rows().into_iter().chain(self.draws.arguments())
    }

    /// Arguments for reading edges of the graph, or of the one that walks made, into the outputs and the hash table.
    fn reads(&self) -> impl Iterator<Item = Argument<'a>> + use<'a> {
        let (graph, arrays, scratch) = (&self.launch.shared.graph, self.arrays, self.scratch);
        let from = match self.launch.shared.kind.walks() {
            Some(_) => [(&scratch.visited).into(), Argument::NULL, (&scratch.visits).into(), Argument::NULL],
            None => graph.edges(scratch.without()),
        };
        let to = [(&arrays.indices).into(), (&scratch.slots).into(), arrays.weights.as_ref().into()];
        from.into_iter().chain(to).chain(scratch.table.arguments())
    }

    /// Arguments for the entries of `counts` with the number of nodes before the hop and of its edges.
    fn sizes(&self) -> [Argument<'a>; 3] {
        [(&self.scratch.counts).into(), self.sizes.rows.into(), self.sizes.edges.into()]
    }

    /// Picks at most 32 edges per row, and reads them.
    fn pick(&self) -> Result<()> {
        let width = self.draws.fanout.next_power_of_two();
        // Every drawing lane of a warp reads its neighbour's id from a 128-byte line of its own.
        let lines = u64::from(BLOCK / width * self.draws.fanout);
        let grid = self.launch.reading_grid(self.bounds.expanded * u64::from(width), lines);
        let order = self.is_ordered.then_some(&self.scratch.order);
        let arguments = self.picks().chain([width.into(), order.into()]).chain(self.reads());
        self.launch.run(&self.launch.kernels().sample_pick, grid, arguments)
    }

    /// Reads all edges of all rows.
    fn take_all(&self) -> Result<()> {
        let threads = self.bounds.edges.div_ceil(8);
        let grid = match self.launch.shared.kind.walks() {
            // The graph that walks made is in device memory.
            Some(_) => self.launch.grid(threads),
            None => self.launch.reading_grid(threads, WARPS),
        };
        let arguments = [(&self.scratch.start).into(), (&self.arrays.indptr).into()].into_iter().chain(self.sizes());
        self.launch.run(&self.launch.kernels().sample_take_all, grid, arguments.chain(self.reads()))
    }

    /// Picks more than 32 edges per row, and reads them.
    fn pick_large(&self) -> Result<()> {
        let fanout = self.draws.fanout;
        let (words, blocks) = large_scratch(fanout, self.launch.shared.max_blocks);
        check_len(&self.scratch.large, words as u64);
        // Without scratch memory a block keeps its row in shared memory.
        let large = (words > 0).then_some(&self.scratch.large);
        let shape = Shape::linear((self.bounds.expanded as usize).clamp(1, blocks), BLOCK);
        let shape = shape.with_shared(if words == 0 { 16 * fanout as usize } else { 0 });
        let arguments = self.picks().chain([large.into(), self.picked().into()]);
        self.launch.run(&self.launch.kernels().sample_pick_large, shape, arguments)?;
        self.read()
    }

    fn pick_weighted(&self) -> Result<()> {
        let (launch, kernels) = (self.launch, self.launch.kernels());
        let (graph, positive) = (&launch.shared.graph, &self.scratch.positive);
        check_len(positive, self.bounds.rows);
        // A block per row.
        let long = launch.reading_grid(self.bounds.expanded * u64::from(BLOCK), WARPS);
        let grid = launch.reading_grid(self.bounds.expanded * 32, WARPS);
        for (kernel, shape) in [(&kernels.sample_pick_weighted, grid), (&kernels.sample_pick_weighted_long, long)] {
            let weights = graph.edge_weights(self.scratch.without());
            launch.run(kernel, shape, self.picks().chain(weights).chain([positive.into(), self.picked().into()]))?;
        }
        self.read()
    }

    fn read(&self) -> Result<()> {
        let grid = self.launch.reading_grid(self.bounds.edges, u64::from(BLOCK));
        let arguments = [self.picked().into()].into_iter().chain(self.sizes()).chain(self.reads());
        self.launch.run(&self.launch.kernels().sample_read, grid, arguments)
    }

    /// Relabels the hop: assigns local ids to new nodes, appends them to `nodes`, and replaces global ids by local ones.
    fn relabel(&self) -> Result<()> {
        let (launch, kernels) = (self.launch, self.launch.kernels());
        let Scratch { table, slots, firsts, sums, .. } = self.scratch;
        let indices = &self.arrays.indices;
        let words = self.bounds.edges.div_ceil(32);
        let blocks = word_blocks(words);
        check_len(firsts, words);
        check_len(sums, blocks as u64);
        let shape = Shape::linear(blocks, BLOCK);
        let arguments = [slots.into()].into_iter().chain(self.sizes()).chain(table.arguments());
        launch.run(&kernels.sample_firsts, shape, arguments.chain([firsts.into(), sums.into()]))?;
        match self.trees {
            None => {
                let arguments = [firsts.into(), sums.into(), indices.into(), slots.into()].into_iter();
                let arguments = arguments.chain(self.sizes()).chain(table.arguments()).chain([self.nodes.into()]);
                launch.run(&kernels.sample_relabel, shape, arguments)?;
            }
            Some(trees) => {
                let [entries, _, layout, _] = table.arguments();
                let [node_bits, tree_bits] = table.tree_bits;
                let arguments = [firsts.into(), sums.into(), slots.into()].into_iter().chain(self.sizes());
                let of_table = [node_bits.into(), tree_bits.into(), entries, layout, self.nodes.into(), trees.into()];
                launch.run(&kernels.typed_relabel, shape, arguments.chain(of_table))?;
            }
        }
        let [counts, _, edges] = self.sizes();
        let arguments = [slots.into(), counts, edges].into_iter().chain(table.arguments()).chain([indices.into()]);
        launch.run(&kernels.sample_indices, launch.grid(self.bounds.edges), arguments)
    }
}
