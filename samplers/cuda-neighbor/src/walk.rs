//! Random walks from the nodes of a hop.

use morphgl_cuda::{Argument, Buffer, Shape};
use morphgl_registry::Result;

use crate::bounds::HopBounds;
use crate::buffer::check_len;
use crate::kernels::{BLOCK, Draws, SizeIndices};
use crate::kind::Walks;
use crate::launch::{Launch, large_scratch};
use crate::scratch::Scratch;

/// Maximum steps from a node whose visits are compared with each other; more are sorted.
const FEW: u32 = 128;
/// Maximum steps of a thread block's rows at a time: 24 KiB of shared memory, so that several blocks run on a multiprocessor.
const STEPS: u32 = 2048;

impl Launch<'_> {
    /// Walks from all nodes before the hop, and writes starts and lengths of rows to `start` and `len`, and to `visited` and `visits`
    /// their edges: to the nodes visited most often. Counts in `accesses` how often each row of the graph is read.
    pub(crate) fn walk(
        &self,
        walks: Walks,
        (bounds, sizes, draws): (&HopBounds, SizeIndices, Draws),
        nodes: &Buffer<u32>,
        scratch: &Scratch,
        accesses: Option<&Buffer<u32>>,
    ) -> Result<()> {
        let Scratch { counts, start, len, key, large, visited, visits, .. } = scratch;
        let (graph, without) = (&self.shared.graph, scratch.without());
        let [indices, cached, ..] = graph.edges(without);
        let keys = if graph.draw_keys.is_some() { key } else { nodes };
        check_len(nodes, bounds.rows);
        check_len(keys, bounds.rows);
        check_len(start, bounds.rows);
        check_len(len, bounds.rows);
        check_len(visited, bounds.rows * u64::from(walks.keep));
        check_len(visits, bounds.rows * u64::from(walks.keep));
        let few = walks.steps() <= FEW;
        let [_, hop, index, epoch, seed] = draws.arguments();
        let (kernel, shape, by): (_, _, Argument<'_>) = if few {
            let per_block = (BLOCK / walks.walks).min(STEPS / walks.steps()).max(1);
            // Each walk reads a line of its own.
            let at_most = self.shared.reading_blocks(u64::from((per_block * walks.walks).min(BLOCK)));
            let blocks = bounds.rows.div_ceil(per_block.into()).clamp(1, at_most);
            let shape = Shape::linear(blocks as usize, BLOCK).with_shared((12 * per_block * walks.steps()) as usize);
            (&self.kernels().walk_few, shape, per_block.into())
        } else {
            let (words, blocks) = large_scratch(walks.steps(), self.shared.max_blocks);
            check_len(large, words as u64);
            let at_most = self.shared.reading_blocks(walks.walks.min(BLOCK).into()).min(blocks as u64);
            let shape = Shape::linear(bounds.rows.clamp(1, at_most) as usize, BLOCK);
            let shape = shape.with_shared(if words == 0 { 16 * walks.steps() as usize } else { 0 });
            (&self.kernels().walk_many, shape, (words > 0).then_some(large).into())
        };
        let arguments = [
            nodes.into(),
            keys.into(),
            counts.into(),
            sizes.rows.into(),
            walks.walks.into(),
            walks.length.into(),
            walks.restart.into(),
            walks.keep.into(),
            by,
            hop,
            index,
            epoch,
            seed,
            (&graph.starts).into(),
            graph.lens.as_ref().into(),
            graph.cached_rows.into(),
            indices,
            cached,
            without.map(|without| &without.nodes).into(),
            without.map_or(0, |without| without.nodes.len() as u32).into(),
            without.map(|without| &without.starts).into(),
            without.map(|without| &without.lens).into(),
            accesses.into(),
            start.into(),
            len.into(),
            visited.into(),
            visits.into(),
        ];
        self.run(kernel, shape, arguments)
    }
}
