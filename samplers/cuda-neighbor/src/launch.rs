//! What each kernel is launched with.
//!
//! What kernels write is as long as a hop's bounds say, which is looked at here; how much of it they write stands in
//! `counts` on the device, and `Degrees` makes bounds that counts never pass.

use morphgl_cuda::{Argument, Buffer, Kernel, Shape, Stream};
use morphgl_registry::Result;

use crate::bounds::Hop;
use crate::graph::Graph;
use crate::kernels::{BLOCK, Draws, Found, GROUP, Kernels, Places, Rows, Table};

/// Blocks of a scan at most, and rows or words each is for at least.
const SCAN_BLOCKS: u64 = 1024;
const SCAN_SHARE: u64 = 1024;

/// Kernels, and the stream they are launched in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub(crate) kernels: &'a Kernels,
    pub(crate) stream: &'a Stream,
}

/// The blocks of a scan of at most so many elements.
pub(crate) fn scan_blocks(elements: u64) -> usize {
    elements.div_ceil(SCAN_SHARE).clamp(1, SCAN_BLOCKS) as usize
}

#[track_caller]
fn room<T: bytemuck::Pod>(buffer: &Buffer<T>, elements: u64) {
    assert!(buffer.len() as u64 >= elements, "{elements} elements in a buffer of {}", buffer.len());
}

impl Launch<'_> {
    fn run<const N: usize>(&self, kernel: &Kernel, shape: Shape, mut arguments: [Argument<'_>; N]) -> Result<()> {
        // SAFETY: each caller below gives the arguments of its kernel, in order. Buffers are as long as the kernel's
        // elements, as each caller looks at; of one stream, so no other work touches them meanwhile.
        unsafe { self.stream.launch(kernel, shape, &mut arguments) }
    }

    /// `num` nodes of `order` from `first` on become the first of `nodes`; `counts` notes how many.
    pub(crate) fn seeds(
        &self,
        (order, first, num): (&Buffer<u32>, u64, u32),
        nodes: &Buffer<u32>,
        counts: Option<&Buffer<u64>>,
        table: &Table,
    ) -> Result<()> {
        room(order, first + u64::from(num));
        room(nodes, u64::from(num));
        let [entries, mask, layout, stamp] = table.arguments();
        let arguments =
            [order.into(), first.into(), num.into(), nodes.into(), counts.into(), entries, mask, layout, stamp];
        self.run(&self.kernels.nodes, self.kernels.grid(u64::from(num)), arguments)
    }

    /// Looks up the rows of at most `most` nodes, from entry `from` to entry `to` of `counts`.
    pub(crate) fn locate(
        &self,
        graph: &Graph,
        nodes: &Buffer<u32>,
        (counts, from, to, most): (&Buffer<u64>, i32, u32, u64),
        rows: Option<(&Buffer<u64>, &Buffer<u32>)>,
        degrees: &Buffer<f32>,
    ) -> Result<()> {
        room(nodes, most);
        room(degrees, most);
        rows.inspect(|(start, len)| {
            room(start, most);
            room(len, most);
        });
        let (start, len) = (rows.map(|r| r.0), rows.map(|r| r.1));
        let arguments = [
            nodes.into(),
            counts.into(),
            from.into(),
            to.into(),
            (&graph.starts).into(),
            graph.lens.as_ref().into(),
            graph.weight_sums.as_ref().into(),
            start.into(),
            len.into(),
            degrees.into(),
        ];
        self.run(&self.kernels.locate, self.kernels.grid(2 * most), arguments)
    }

    /// Row offsets of the hop, and its number of edges; `lens` are what rows have to pick from.
    pub(crate) fn offsets(
        &self,
        (bound, places, fanout): (&Hop, Places, u32),
        lens: &Buffer<u32>,
        counts: &Buffer<u64>,
        sums: &Buffer<u64>,
        indptr: &Buffer<u32>,
    ) -> Result<()> {
        let blocks = scan_blocks(bound.rows);
        room(lens, bound.rows);
        room(sums, blocks as u64);
        room(indptr, bound.rows + 1);
        let shape = Shape::linear(blocks, BLOCK);
        let Places { first, rows, edges } = places;
        let arguments = [lens.into(), counts.into(), first.into(), rows.into(), fanout.into(), sums.into()];
        self.run(&self.kernels.row_sums, shape, arguments)?;
        let arguments = [
            lens.into(),
            counts.into(),
            first.into(),
            rows.into(),
            fanout.into(),
            sums.into(),
            indptr.into(),
            edges.into(),
        ];
        self.run(&self.kernels.row_offsets, shape, arguments)
    }

    /// Picks at most 32 edges a row, and reads them.
    pub(crate) fn pick(
        &self,
        (bound, places, draws): (&Hop, Places, Draws),
        (graph, counts, indptr): (&Graph, &Buffer<u64>, &Buffer<u32>),
        rows: Rows<'_>,
        table: &Table,
        found: &Found<'_>,
    ) -> Result<()> {
        assert!(draws.fanout <= GROUP, "a group picks {}", draws.fanout);
        self.check(bound, rows, indptr, found);
        let width = draws.fanout.next_power_of_two();
        let [entries, mask, layout, stamp] = table.arguments();
        let arguments = [
            rows.nodes.into(),
            rows.start.into(),
            rows.len.into(),
            indptr.into(),
            counts.into(),
            places.first.into(),
            places.rows.into(),
            draws.fanout.into(),
            width.into(),
            draws.hop.into(),
            draws.id.index.into(),
            draws.id.epoch.into(),
            draws.seed.into(),
            (&graph.indices).into(),
            graph.cached.as_ref().into(),
            graph.weights.as_ref().into(),
            graph.cached_weights.as_ref().into(),
            found.nodes.into(),
            found.slots.into(),
            found.weights.into(),
            entries,
            mask,
            layout,
            stamp,
        ];
        self.run(&self.kernels.pick, self.kernels.grid(bound.expanded * u64::from(width)), arguments)
    }

    /// Reads all edges of all rows.
    pub(crate) fn take_all(
        &self,
        (bound, places): (&Hop, Places),
        (graph, counts, indptr): (&Graph, &Buffer<u64>, &Buffer<u32>),
        rows: Rows<'_>,
        table: &Table,
        found: &Found<'_>,
    ) -> Result<()> {
        self.check(bound, rows, indptr, found);
        let [entries, mask, layout, stamp] = table.arguments();
        let arguments = [
            rows.start.into(),
            indptr.into(),
            counts.into(),
            places.rows.into(),
            places.edges.into(),
            (&graph.indices).into(),
            graph.cached.as_ref().into(),
            graph.weights.as_ref().into(),
            graph.cached_weights.as_ref().into(),
            found.nodes.into(),
            found.slots.into(),
            found.weights.into(),
            entries,
            mask,
            layout,
            stamp,
        ];
        self.run(&self.kernels.take_all, self.kernels.grid(bound.edges.div_ceil(8)), arguments)
    }

    /// Reads the edges in `picked`.
    pub(crate) fn read(
        &self,
        (bound, places): (&Hop, Places),
        (graph, counts, picked): (&Graph, &Buffer<u64>, &Buffer<u64>),
        table: &Table,
        found: &Found<'_>,
    ) -> Result<()> {
        room(picked, bound.edges);
        self.check_found(bound, found);
        let [entries, mask, layout, stamp] = table.arguments();
        let arguments = [
            picked.into(),
            counts.into(),
            places.rows.into(),
            places.edges.into(),
            (&graph.indices).into(),
            graph.cached.as_ref().into(),
            graph.weights.as_ref().into(),
            graph.cached_weights.as_ref().into(),
            found.nodes.into(),
            found.slots.into(),
            found.weights.into(),
            entries,
            mask,
            layout,
            stamp,
        ];
        self.run(&self.kernels.read, self.kernels.grid(bound.edges), arguments)
    }

    /// Picks more than 32 edges a row.
    pub(crate) fn pick_large(
        &self,
        (bound, places, draws): (&Hop, Places, Draws),
        (counts, indptr): (&Buffer<u64>, &Buffer<u32>),
        rows: Rows<'_>,
        scratch: Option<&Buffer<u64>>,
        picked: &Buffer<u64>,
    ) -> Result<()> {
        room(picked, bound.edges);
        room(indptr, bound.rows + 1);
        let (words, blocks) = self.kernels.large_scratch(draws.fanout);
        assert_eq!(scratch.is_none(), words == 0, "scratch memory for picks of {}", draws.fanout);
        scratch.inspect(|scratch| room(scratch, words as u64));
        let shape = Shape::linear((bound.expanded as usize).clamp(1, blocks), BLOCK);
        let shape = shape.with_shared(if words == 0 { 16 * draws.fanout as usize } else { 0 });
        let arguments = [
            rows.nodes.into(),
            rows.start.into(),
            rows.len.into(),
            indptr.into(),
            counts.into(),
            places.first.into(),
            places.rows.into(),
            draws.fanout.into(),
            draws.hop.into(),
            draws.id.index.into(),
            draws.id.epoch.into(),
            draws.seed.into(),
            scratch.into(),
            picked.into(),
        ];
        self.run(&self.kernels.pick_large, shape, arguments)
    }

    /// Counts each row's edges of positive weight, up to one more than are picked.
    pub(crate) fn count_positive(
        &self,
        (bound, places, fanout): (&Hop, Places, u32),
        (graph, counts): (&Graph, &Buffer<u64>),
        (start, len): (&Buffer<u64>, &Buffer<u32>),
        positive: &Buffer<u32>,
    ) -> Result<()> {
        room(positive, bound.rows);
        let arguments = [
            graph.weights.as_ref().into(),
            graph.cached_weights.as_ref().into(),
            start.into(),
            len.into(),
            counts.into(),
            places.first.into(),
            places.rows.into(),
            fanout.saturating_add(1).into(),
            positive.into(),
        ];
        self.run(&self.kernels.count_positive, self.kernels.grid(bound.expanded * 32), arguments)
    }

    /// Picks by weight.
    pub(crate) fn pick_weighted(
        &self,
        (bound, places, draws): (&Hop, Places, Draws),
        (graph, counts, indptr): (&Graph, &Buffer<u64>, &Buffer<u32>),
        rows: Rows<'_>,
        picked: &Buffer<u64>,
    ) -> Result<()> {
        room(picked, bound.edges);
        room(indptr, bound.rows + 1);
        let long = Shape::linear(bound.expanded.clamp(1, self.kernels.most) as usize, BLOCK);
        let grid = self.kernels.grid(bound.expanded * 32);
        for (kernel, shape) in [(&self.kernels.pick_weighted, grid), (&self.kernels.pick_weighted_long, long)] {
            let arguments = [
                rows.nodes.into(),
                graph.weights.as_ref().into(),
                graph.cached_weights.as_ref().into(),
                rows.start.into(),
                rows.len.into(),
                rows.positive.into(),
                indptr.into(),
                counts.into(),
                places.first.into(),
                places.rows.into(),
                draws.fanout.into(),
                draws.hop.into(),
                draws.id.index.into(),
                draws.id.epoch.into(),
                draws.seed.into(),
                picked.into(),
            ];
            self.run(kernel, shape, arguments)?;
        }
        Ok(())
    }

    /// Gives local ids to the nodes that the hop found, appends these to `nodes`, and puts local ids in `found`.
    pub(crate) fn relabel(
        &self,
        (bound, places): (&Hop, Places),
        (counts, firsts, sums): (&Buffer<u64>, &Buffer<u32>, &Buffer<u64>),
        table: &Table,
        found: &Found<'_>,
        nodes: &Buffer<u32>,
    ) -> Result<()> {
        let words = bound.edges.div_ceil(32);
        let blocks = scan_blocks(words);
        room(firsts, words);
        room(sums, blocks as u64);
        room(nodes, bound.nodes);
        self.check_found(bound, found);
        let shape = Shape::linear(blocks, BLOCK);
        let Places { rows, edges, .. } = places;
        let [entries, mask, layout, stamp] = table.arguments();
        let arguments = [
            found.slots.into(),
            counts.into(),
            rows.into(),
            edges.into(),
            entries,
            mask,
            layout,
            stamp,
            firsts.into(),
            sums.into(),
        ];
        self.run(&self.kernels.firsts, shape, arguments)?;
        let [entries, mask, layout, stamp] = table.arguments();
        let arguments = [
            firsts.into(),
            sums.into(),
            found.nodes.into(),
            found.slots.into(),
            counts.into(),
            rows.into(),
            edges.into(),
            entries,
            mask,
            layout,
            stamp,
            nodes.into(),
        ];
        self.run(&self.kernels.name, shape, arguments)?;
        let [entries, mask, layout, stamp] = table.arguments();
        let arguments =
            [found.slots.into(), counts.into(), edges.into(), entries, mask, layout, stamp, found.nodes.into()];
        self.run(&self.kernels.indices, self.kernels.grid(bound.edges), arguments)
    }

    /// Counts an access of each of at most `most` nodes, from entry `from` to entry `to` of `counts`; with `lens`, of those
    /// that have a neighbour.
    pub(crate) fn count(
        &self,
        nodes: &Buffer<u32>,
        lens: Option<&Buffer<u32>>,
        (counts, from, to, most): (&Buffer<u64>, i32, u32, u64),
        accesses: &Buffer<u32>,
    ) -> Result<()> {
        room(nodes, most);
        let arguments = [nodes.into(), lens.into(), counts.into(), from.into(), to.into(), accesses.into()];
        self.run(&self.kernels.count, self.kernels.grid(most), arguments)
    }

    #[track_caller]
    fn check(&self, bound: &Hop, rows: Rows<'_>, indptr: &Buffer<u32>, found: &Found<'_>) {
        room(rows.nodes, bound.rows);
        room(rows.start, bound.rows);
        room(rows.len, bound.rows);
        room(indptr, bound.rows + 1);
        self.check_found(bound, found);
    }

    #[track_caller]
    fn check_found(&self, bound: &Hop, found: &Found<'_>) {
        room(found.nodes, bound.edges);
        room(found.slots, bound.edges);
        found.weights.inspect(|weights| room(weights, bound.edges));
    }
}
