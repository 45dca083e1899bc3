//! Expansion of a hop: pick edges, read neighbours, relabel.

use morphgl_cuda::{Argument, Buffer, Shape};
use morphgl_registry::{Pick, Result};

use crate::bounds::Hop;
use crate::graph::Graph;
use crate::kernels::{BLOCK, Draws, GROUP, Places, Table};
use crate::launch::{Launch, room, scan_blocks};
use crate::scratch::{GROWN, Scratch};
use crate::shared::Shared;

/// Output arrays of a hop.
#[derive(Debug)]
pub(crate) struct HopArrays {
    pub(crate) indptr: Buffer<u32>,
    /// Global ids first, then local ids.
    pub(crate) indices: Buffer<u32>,
    pub(crate) weights: Option<Buffer<f32>>,
}

/// Arguments of the hop's kernels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expand<'a> {
    launch: Launch<'a>,
    graph: &'a Graph,
    scratch: &'a Scratch,
    bound: &'a Hop,
    places: Places,
    draws: Draws,
    nodes: &'a Buffer<u32>,
    made: &'a HopArrays,
    weighted: bool,
}

impl<'a> Expand<'a> {
    /// Asserts that all buffers have room for the hop's bounds.
    pub(crate) fn new(
        shared: &'a Shared,
        scratch: &'a Scratch,
        (bound, places, draws): (&'a Hop, Places, Draws),
        nodes: &'a Buffer<u32>,
        made: &'a HopArrays,
    ) -> Self {
        let launch = Launch { kernels: &shared.kernels, stream: &scratch.stream };
        let weighted = shared.settings.pick == Pick::Weighted;
        let hop = Self { launch, graph: &shared.graph, scratch, bound, places, draws, nodes, made, weighted };
        room(nodes, bound.nodes);
        room(hop.start(), bound.rows);
        room(hop.len(), bound.rows);
        room(&made.indptr, bound.rows + 1);
        room(&made.indices, bound.edges);
        room(hop.slots(), bound.edges);
        made.weights.iter().for_each(|weights| room(weights, bound.edges));
        hop
    }

    /// Expands the hop's nodes.
    pub(crate) fn run(&self) -> Result<()> {
        match self.draws.fanout {
            _ if self.weighted => self.pick_weighted()?,
            u32::MAX => self.take_all()?,
            fanout if fanout > GROUP => self.pick_large()?,
            _ => self.pick()?,
        }
        self.relabel()
    }

    fn start(&self) -> &'a Buffer<u64> {
        self.scratch.start.as_ref().expect(GROWN)
    }

    fn len(&self) -> &'a Buffer<u32> {
        self.scratch.len.as_ref().expect(GROWN)
    }

    fn slots(&self) -> &'a Buffer<u32> {
        self.scratch.slots.as_ref().expect(GROWN)
    }

    fn picked(&self) -> &'a Buffer<u64> {
        let picked = self.scratch.picked.as_ref().expect(GROWN);
        room(picked, self.bound.edges);
        picked
    }

    fn table(&self) -> &'a Table {
        self.scratch.table.as_ref().expect(GROWN)
    }

    /// Arguments for rows: nodes, starts, lengths, output offsets, and the expanded range.
    fn rows(&self) -> [Argument<'a>; 7] {
        let Places { first, rows, .. } = self.places;
        let (nodes, start, len) = (self.nodes.into(), self.start().into(), self.len().into());
        [nodes, start, len, (&self.made.indptr).into(), (&self.scratch.counts).into(), first.into(), rows.into()]
    }

    /// Arguments for reading edges into the outputs and the hash table.
    fn reads(&self) -> impl Iterator<Item = Argument<'a>> + use<'a> {
        let (graph, made) = (self.graph, self.made);
        let edges = [
            (&graph.indices).into(),
            graph.cached.as_ref().into(),
            graph.weights.as_ref().into(),
            graph.cached_weights.as_ref().into(),
            (&made.indices).into(),
            self.slots().into(),
            made.weights.as_ref().into(),
        ];
        edges.into_iter().chain(self.table().arguments())
    }

    /// Arguments for the entries of `counts` with the number of nodes before the hop and of its edges.
    fn sizes(&self) -> [Argument<'a>; 3] {
        [(&self.scratch.counts).into(), self.places.rows.into(), self.places.edges.into()]
    }

    /// Picks at most 32 edges per row, and reads them.
    fn pick(&self) -> Result<()> {
        let width = self.draws.fanout.next_power_of_two();
        let grid = self.launch.kernels.grid(self.bound.expanded * u64::from(width));
        let arguments = self.rows().into_iter().chain(self.draws.arguments()).chain([width.into()]);
        self.launch.run(&self.launch.kernels.pick, grid, arguments.chain(self.reads()))
    }

    /// Reads all edges of all rows.
    fn take_all(&self) -> Result<()> {
        let grid = self.launch.kernels.grid(self.bound.edges.div_ceil(8));
        let arguments = [self.start().into(), (&self.made.indptr).into()].into_iter().chain(self.sizes());
        self.launch.run(&self.launch.kernels.take_all, grid, arguments.chain(self.reads()))
    }

    /// Picks more than 32 edges per row, and reads them.
    fn pick_large(&self) -> Result<()> {
        let (kernels, fanout) = (self.launch.kernels, self.draws.fanout);
        let (words, blocks) = kernels.large_scratch(fanout);
        // Without scratch memory a block keeps its row in shared memory.
        let scratch = (words > 0).then(|| self.scratch.large.as_ref().expect(GROWN));
        scratch.inspect(|scratch| room(scratch, words as u64));
        let shape = Shape::linear((self.bound.expanded as usize).clamp(1, blocks), BLOCK);
        let shape = shape.with_shared(if words == 0 { 16 * fanout as usize } else { 0 });
        let arguments = self.rows().into_iter().chain(self.draws.arguments());
        self.launch.run(&kernels.pick_large, shape, arguments.chain([scratch.into(), self.picked().into()]))?;
        self.read()
    }

    /// Picks by weight, and reads the edges.
    fn pick_weighted(&self) -> Result<()> {
        let (kernels, graph) = (self.launch.kernels, self.graph);
        let positive = self.scratch.positive.as_ref().expect(GROWN);
        room(positive, self.bound.rows);
        let long = Shape::linear(self.bound.expanded.clamp(1, kernels.most) as usize, BLOCK);
        let grid = kernels.grid(self.bound.expanded * 32);
        for (kernel, shape) in [(&kernels.pick_weighted, grid), (&kernels.pick_weighted_long, long)] {
            let weights = [graph.weights.as_ref().into(), graph.cached_weights.as_ref().into()];
            let arguments = self.rows().into_iter().chain(self.draws.arguments()).chain(weights);
            self.launch.run(kernel, shape, arguments.chain([positive.into(), self.picked().into()]))?;
        }
        self.read()
    }

    /// Reads picked edges.
    fn read(&self) -> Result<()> {
        let grid = self.launch.kernels.grid(self.bound.edges);
        let arguments = [self.picked().into()].into_iter().chain(self.sizes());
        self.launch.run(&self.launch.kernels.read, grid, arguments.chain(self.reads()))
    }

    /// Relabels the hop: assigns local ids to new nodes, appends them to `nodes`, and replaces global ids by local ones.
    fn relabel(&self) -> Result<()> {
        let (kernels, found) = (self.launch.kernels, &self.made.indices);
        let words = self.bound.edges.div_ceil(32);
        let blocks = scan_blocks(words);
        let firsts = self.scratch.firsts.as_ref().expect(GROWN);
        let sums = self.scratch.sums.as_ref().expect(GROWN);
        room(firsts, words);
        room(sums, blocks as u64);
        let (shape, table) = (Shape::linear(blocks, BLOCK), self.table());
        let slots = [self.slots().into()].into_iter().chain(self.sizes()).chain(table.arguments());
        self.launch.run(&kernels.firsts, shape, slots.chain([firsts.into(), sums.into()]))?;
        let arguments = [firsts.into(), sums.into(), found.into(), self.slots().into()].into_iter();
        let arguments = arguments.chain(self.sizes()).chain(table.arguments()).chain([self.nodes.into()]);
        self.launch.run(&kernels.name, shape, arguments)?;
        let [counts, _, edges] = self.sizes();
        let arguments = [self.slots().into(), counts, edges].into_iter().chain(table.arguments());
        self.launch.run(&kernels.indices, kernels.grid(self.bound.edges), arguments.chain([found.into()]))
    }
}
