//! Kernel launches.
//!
//! Output buffers are checked here against a hop's upper bounds; actual sizes stand in `counts` on the device, and never
//! exceed the bounds of `Degrees`.

use morphgl_cuda::{Argument, Buffer, Kernel, Shape, Stream};
use morphgl_registry::Result;

use crate::bounds::Hop;
use crate::graph::Graph;
use crate::kernels::{BLOCK, Kernels, Places, Table};

/// Maximum blocks of a scan, and minimum rows or words per block.
const SCAN_BLOCKS: u64 = 1024;
const SCAN_SHARE: u64 = 1024;
/// Maximum number of kernel arguments.
const ARGUMENTS: usize = 32;

/// Kernels and the stream they are launched on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub(crate) kernels: &'a Kernels,
    pub(crate) stream: &'a Stream,
}

/// Number of blocks of a scan.
pub(crate) fn scan_blocks(elements: u64) -> usize {
    elements.div_ceil(SCAN_SHARE).clamp(1, SCAN_BLOCKS) as usize
}

/// Asserts that a buffer has room for what a kernel may write.
#[track_caller]
pub(crate) fn room<T: bytemuck::Pod>(buffer: &Buffer<T>, elements: u64) {
    assert!(buffer.len() as u64 >= elements, "{elements} elements in a buffer of {}", buffer.len());
}

impl Launch<'_> {
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

    /// Copies `num` nodes of `order` from `first` on to `nodes`, inserts them into the table, and writes their number to `counts`.
    pub(crate) fn seeds(
        &self,
        (order, first, num): (&Buffer<u32>, u64, u32),
        nodes: &Buffer<u32>,
        counts: Option<&Buffer<u64>>,
        table: &Table,
    ) -> Result<()> {
        room(order, first + u64::from(num));
        room(nodes, u64::from(num));
        let arguments = [order.into(), first.into(), num.into(), nodes.into(), counts.into()];
        let arguments = arguments.into_iter().chain(table.arguments());
        self.run(&self.kernels.nodes, self.kernels.grid(u64::from(num)), arguments)
    }

    /// Looks up the rows of at most `most` nodes: those between entries `from` and `to` of `counts`.
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

    /// Computes row offsets and number of edges of the hop; `lens` are the rows' candidates.
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
        let shares = || [lens.into(), counts.into(), first.into(), rows.into(), fanout.into(), sums.into()];
        self.run(&self.kernels.row_sums, shape, shares())?;
        self.run(&self.kernels.row_offsets, shape, shares().into_iter().chain([indptr.into(), edges.into()]))
    }

    /// Counts each row's edges of positive weight, up to one more than the fanout.
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

    /// Counts an access of each of at most `most` nodes between entries `from` and `to` of `counts`; with `lens`, only of
    /// those with a neighbour.
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
}
