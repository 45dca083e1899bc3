//! Kernel launches.
//!
//! Output buffers are checked here against a hop's upper bounds; actual sizes are in `counts` on the device, and never
//! exceed the bounds of `Degrees`.

use morphgl_cuda::{Argument, Buffer, Kernel, Shape, Stream};
use morphgl_registry::Result;

use crate::bounds::HopBounds;
use crate::buffer::check_len;
use crate::graph::Column;
use crate::kernels::{BLOCK, Kernels, SizeIndices, Table};
use crate::shared::Shared;
use crate::without::Without;

/// Maximum blocks of a scan.
const SCAN_BLOCKS: u64 = 1024;
/// Minimum rows of a block, which its threads read side by side.
const SCAN_ROWS: u64 = 1024;
/// Minimum words of 32 edges of a block: two rounds of its four warps, each a chain of dependent random reads. Few, so that
/// small hops have a warp on every multiprocessor.
const SCAN_WORDS: u64 = 8;
/// Warps per block, and so the lines of host memory that a block has in flight where each warp reads one CSR row, line after line.
pub(crate) const WARPS: u64 = BLOCK as u64 / 32;
const ARGUMENTS: usize = 48;
/// Bytes of shared memory available to every launch.
const SHARED: usize = 48 << 10;
/// Bytes of scratch memory for picks that exceed shared memory.
const LARGE_SCRATCH: usize = 64 << 20;

/// Blocks of a scan of so many rows.
pub(crate) fn row_blocks(rows: u64) -> usize {
    rows.div_ceil(SCAN_ROWS).clamp(1, SCAN_BLOCKS) as usize
}

/// Blocks of a scan of so many words, each of 32 edges.
pub(crate) fn word_blocks(words: u64) -> usize {
    words.div_ceil(SCAN_WORDS).clamp(1, SCAN_BLOCKS) as usize
}

/// Words of scratch memory for picks of `fanout` edges, and the number of blocks, at most `max_blocks`, that share them.
pub(crate) fn large_scratch(fanout: u32, max_blocks: u64) -> (usize, usize) {
    scratch_beyond(SHARED, fanout, max_blocks)
}

fn scratch_beyond(shared: usize, fanout: u32, max_blocks: u64) -> (usize, usize) {
    let bytes = 16 * fanout as usize;
    if bytes <= shared {
        return (0, max_blocks as usize);
    }
    let blocks = (LARGE_SCRATCH / bytes).clamp(1, max_blocks as usize);
    (blocks * bytes / 8, blocks)
}

/// As [`large_scratch`] of the kernel for sub-rows, which has shared memory of its own besides.
pub(crate) fn typed_scratch(fanout: u32, max_blocks: u64) -> (usize, usize) {
    scratch_beyond(SHARED - (2 << 10), fanout, max_blocks)
}

/// A sampler's kernels, graph, and the stream of a mini-batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) stream: &'a Stream,
}

impl<'a> Launch<'a> {
    pub(crate) fn kernels(&self) -> &'a Kernels {
        &self.shared.kernels
    }

    /// Launch shape for `threads` threads, capped at what fills the device.
    pub(crate) fn grid(&self, threads: u64) -> Shape {
        Shape::linear(threads.div_ceil(u64::from(BLOCK)).clamp(1, self.shared.max_blocks) as usize, BLOCK)
    }

    /// As [`Launch::grid`] of a kernel that reads the graph, of which a block has `lines` lines of host memory in flight.
    pub(crate) fn reading_grid(&self, threads: u64, lines: u64) -> Shape {
        let blocks = threads.div_ceil(u64::from(BLOCK)).clamp(1, self.shared.reading_blocks(lines));
        Shape::linear(blocks as usize, BLOCK)
    }

    /// Launches a kernel; callers compose its arguments from groups shared by several kernels.
    pub(crate) fn run<'b>(
        &self,
        kernel: &Kernel,
        shape: Shape,
        arguments: impl IntoIterator<Item = Argument<'b>>,
    ) -> Result<()> {
        let (mut all, mut len) = ([const { Argument::NULL }; ARGUMENTS], 0);
        for argument in arguments {
            all[len] = argument;
            len += 1;
        }
        // SAFETY: callers pass the arguments of their kernel, in order, and check the buffers' lengths; buffers belong to one
        // stream, so no other work accesses them meanwhile.
        unsafe { self.stream.launch(kernel, shape, &mut all[..len]) }
    }

    /// Copies `num` nodes of `order` from `first` on to `nodes`, inserts them into the table, and writes their number to
    /// `counts`.
    pub(crate) fn seeds(
        &self,
        (order, first, num): (&Buffer<u32>, u64, u32),
        nodes: &Buffer<u32>,
        counts: Option<&Buffer<u64>>,
        table: &Table,
    ) -> Result<()> {
        check_len(order, first + u64::from(num));
        check_len(nodes, u64::from(num));
        let arguments = [order.into(), first.into(), num.into(), nodes.into(), counts.into()];
        let arguments = arguments.into_iter().chain(table.arguments());
        self.run(&self.kernels().sample_nodes, self.grid(u64::from(num)), arguments)
    }

    /// Looks up degrees, and into `rows` starts and lengths of rows and draw keys, of at most `limit` nodes: those between
    /// entries `from` and `to` of `counts`.
    pub(crate) fn locate(
        &self,
        nodes: &Buffer<u32>,
        (counts, from, to, limit): (&Buffer<u64>, i32, u32, u64),
        rows: Option<(&Buffer<u64>, &Buffer<u32>, &Buffer<u32>)>,
        degrees: &Buffer<f32>,
    ) -> Result<()> {
        check_len(nodes, limit);
        check_len(degrees, limit);
        let graph = &self.shared.graph;
        let (start, len) = rows.map(|(start, len, _)| (start, len)).unzip();
        start.inspect(|start| check_len(start, limit));
        len.inspect(|len| check_len(len, limit));
        let key = rows.filter(|_| graph.draw_keys.is_some()).map(|(_, _, key)| key);
        key.inspect(|key| check_len(key, limit));
        let arguments = [
            nodes.into(),
            counts.into(),
            from.into(),
            to.into(),
            (&graph.starts).into(),
            graph.lens.as_ref().into(),
            graph.cached_rows.into(),
            graph.draw_keys.as_ref().into(),
            graph.weight_sums.as_ref().into(),
            start.into(),
            len.into(),
            key.into(),
            degrees.into(),
        ];
        // Two lanes read a node's offsets, which lie together.
        let grid = match &graph.starts {
            Column::Host(_) => self.reading_grid(2 * limit, u64::from(BLOCK / 2)),
            Column::Device(_) => self.grid(2 * limit),
        };
        self.run(&self.kernels().sample_locate, grid, arguments)
    }

    /// Computes row offsets and number of edges of the hop; `lens` are the rows' candidates.
    pub(crate) fn offsets(
        &self,
        (bounds, sizes, fanout): (&HopBounds, SizeIndices, u32),
        lens: &Buffer<u32>,
        counts: &Buffer<u64>,
        sums: &Buffer<u64>,
        indptr: &Buffer<u32>,
    ) -> Result<()> {
        let blocks = row_blocks(bounds.rows);
        check_len(lens, bounds.rows);
        check_len(sums, blocks as u64);
        check_len(indptr, bounds.rows + 1);
        let shape = Shape::linear(blocks, BLOCK);
        let SizeIndices { first, rows, edges } = sizes;
        let shares = || [lens.into(), counts.into(), first.into(), rows.into(), fanout.into(), sums.into()];
        self.run(&self.kernels().sample_row_sums, shape, shares())?;
        self.run(&self.kernels().sample_row_offsets, shape, shares().into_iter().chain([indptr.into(), edges.into()]))
    }

    /// Counts each row's edges of positive weight, up to one more than the fanout.
    pub(crate) fn count_positive(
        &self,
        (bounds, sizes, fanout): (&HopBounds, SizeIndices, u32),
        counts: &Buffer<u64>,
        (start, len): (&Buffer<u64>, &Buffer<u32>),
        (positive, without): (&Buffer<u32>, Option<&Without>),
    ) -> Result<()> {
        check_len(positive, bounds.rows);
        let [weights, cached_weights] = self.shared.graph.edge_weights(without);
        let arguments = [
            weights,
            cached_weights,
            start.into(),
            len.into(),
            counts.into(),
            sizes.first.into(),
            sizes.rows.into(),
            fanout.saturating_add(1).into(),
            positive.into(),
        ];
        let grid = self.reading_grid(bounds.expanded * 32, WARPS);
        self.run(&self.kernels().sample_count_positive, grid, arguments)
    }

    /// Counts an access of each of at most `limit` nodes between entries `from` and `to` of `counts`; with `lens`, only of
    /// those with a neighbour.
    pub(crate) fn count(
        &self,
        nodes: &Buffer<u32>,
        lens: Option<&Buffer<u32>>,
        (counts, from, to, limit): (&Buffer<u64>, i32, u32, u64),
        accesses: &Buffer<u32>,
    ) -> Result<()> {
        check_len(nodes, limit);
        let arguments = [nodes.into(), lens.into(), counts.into(), from.into(), to.into(), accesses.into()];
        self.run(&self.kernels().sample_count, self.grid(limit), arguments)
    }
}
