//! Given nodes: the last hop does not expand them, and their rows of the first layer come with the mini-batch (neutronorch §4.2).

use std::sync::Arc;

use morphgl_cuda::{Buffer, CudaGivenRows, Event, Shape, Stream};
use morphgl_registry::{BatchId, GivenNodes, Result};

use crate::arrays::{BoundedBlock, with_len};
use crate::bounds::HopBounds;
use crate::buffer::check_len;
use crate::kernels::BLOCK;
use crate::launch::{Launch, word_blocks};
use crate::scratch::Scratch;
use crate::shared::Shared;

/// Entries of `counts` besides those of the hops: the nodes before they are divided, and the given ones.
pub(crate) const NUM_COUNTS: usize = 2;
/// Number of lists that are held: where one super-batch ends, mini-batches of two are in flight.
const LISTS: usize = 2;

/// Which nodes are given, with the newest lists in device memory.
#[derive(Debug)]
pub(crate) struct GivenLists {
    nodes: Arc<dyn GivenNodes>,
    uploaded: Vec<Uploaded>,
}

#[derive(Debug)]
struct Uploaded {
    list: Arc<[u32]>,
    nodes: Buffer<u32>,
    ready: Event,
}

/// The given nodes of a mini-batch, with capacity for their upper bound.
#[derive(Debug)]
pub(crate) struct GivenPart {
    nodes: Buffer<u32>,
    degrees: Buffer<f32>,
    rows: Buffer<f32>,
    /// Entry of `counts` with their number.
    count: usize,
}

/// The last hop but one, whose nodes are divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastButOne<'a> {
    pub(crate) hop: usize,
    pub(crate) bounds: &'a HopBounds,
    /// All nodes of the mini-batch so far.
    pub(crate) nodes: &'a Buffer<u32>,
}

impl GivenLists {
    pub(crate) fn new(nodes: Arc<dyn GivenNodes>) -> Self {
        Self { nodes, uploaded: Vec::new() }
    }

    /// The list of a mini-batch, uploaded once for all that share it; `None` where it is empty.
    fn of(&mut self, id: BatchId, stream: &Stream) -> Result<Option<&Buffer<u32>>> {
        let list = self.nodes.list(id)?;
        if list.is_empty() {
            return Ok(None);
        }
        let is_same = |uploaded: &Uploaded| Arc::ptr_eq(&uploaded.list, &list);
        let index = match self.uploaded.iter().position(is_same) {
            Some(index) => index,
            None => {
                let (nodes, ready) = (Buffer::of(stream, &list)?, stream.record(false)?);
                self.uploaded.drain(..(self.uploaded.len() + 1).saturating_sub(LISTS));
                self.uploaded.push(Uploaded { list, nodes, ready });
                self.uploaded.len() - 1
            }
        };
        let Uploaded { nodes, ready, .. } = &self.uploaded[index];
        stream.wait(ready)?;
        Ok(Some(nodes))
    }

    /// Bytes of device memory of the lists.
    pub(crate) fn num_bytes(&self) -> u64 {
        self.uploaded.iter().map(|uploaded| uploaded.nodes.num_bytes()).sum()
    }

    /// Removes the given nodes from those that the last hop but one has found, so that the last hop does not expand them: they become
    /// the last source nodes of `block`. The hop's memory per edge holds the nodes while they are divided.
    pub(crate) fn leave_out(
        &mut self,
        (shared, scratch): (&Shared, &mut Scratch),
        id: BatchId,
        before: LastButOne<'_>,
        block: &mut BoundedBlock,
    ) -> Result<Option<GivenPart>> {
        let Some(list) = self.of(id, &scratch.stream)? else { return Ok(None) };
        scratch.empty_table()?;
        let hops = shared.num_hops();
        let [found, count] = [2 * hops + 1, 2 * hops + 2];
        let capacity = list.len().min(before.bounds.edges as usize);
        let part = GivenPart {
            nodes: Buffer::new(&scratch.stream, capacity)?,
            degrees: Buffer::new(&scratch.stream, capacity)?,
            rows: Buffer::new(&scratch.stream, 0)?,
            count,
        };
        let launch = Launch { shared, stream: &scratch.stream };
        launch.divide(list, scratch, before, (found as u32, &part), block.indices())?;
        launch.locate(&part.nodes, (&scratch.counts, -1, count as u32, capacity as u64), None, &part.degrees)?;
        block.count_sources_by(found);
        Ok(Some(part))
    }
}

impl GivenPart {
    /// The given nodes of a mini-batch, before the transfer fills in their rows; `counts` has their number. `None` where there are none.
    pub(crate) fn with(self, counts: &[u64]) -> Option<CudaGivenRows> {
        let Self { nodes, degrees, rows, count } = self;
        let (nodes, degrees) = (with_len(nodes, counts[count]), with_len(degrees, counts[count]));
        (counts[count] > 0).then_some(CudaGivenRows { nodes, degrees, rows, inputs: Vec::new(), version: 0 })
    }
}

impl Launch<'_> {
    /// Divides the nodes that a hop has found into given ones and the others, which it enters into the empty table after all nodes of
    /// earlier hops; renumbers the local ids of the hop's edges, and sets its number of nodes to that without the given ones.
    fn divide(
        &self,
        list: &Buffer<u32>,
        scratch: &Scratch,
        LastButOne { hop, bounds, nodes }: LastButOne<'_>,
        (found_count, part): (u32, &GivenPart),
        indices: &Buffer<u32>,
    ) -> Result<()> {
        let Scratch { counts, table, slots, firsts, sums, .. } = scratch;
        let words = bounds.edges.div_ceil(32);
        let blocks = word_blocks(words);
        check_len(nodes, bounds.nodes);
        check_len(slots, bounds.edges);
        check_len(indices, bounds.edges);
        check_len(firsts, words);
        check_len(sums, blocks as u64);
        let (from, to, num_edges) = (hop as u32, hop as u32 + 1, (self.shared.num_hops() + 1 + hop) as u32);
        let (shape, kernels) = (Shape::linear(blocks, BLOCK), self.kernels());
        let arguments = [nodes.into(), counts.into(), from.into(), to.into(), list.into(), (list.len() as u32).into()];
        let to_bits = [slots.into(), firsts.into(), sums.into()];
        self.run(&kernels.sample_given, shape, arguments.into_iter().chain(to_bits))?;
        let entries = || [counts.into(), from.into(), to.into(), found_count.into(), (part.count as u32).into()];
        let arguments = [firsts.into(), sums.into()].into_iter().chain(entries());
        let arguments = arguments.chain([slots.into(), nodes.into(), (&part.nodes).into()]);
        self.run(&kernels.sample_divide, shape, arguments.chain(table.arguments()))?;
        let arguments = [slots.into()].into_iter().chain(entries()).chain([num_edges.into(), indices.into()]);
        self.run(&kernels.sample_renumber, self.grid(bounds.edges), arguments)
    }
}
