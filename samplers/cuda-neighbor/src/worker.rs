//! Batching worker: queues mini-batches on the device without waiting for them.

use std::ops::Range;
use std::sync::Arc;

use morphgl_cuda::{Buffer, CudaBatch, CudaBlock, LastUse, PageOrder, Pinned, Stream, pending};
use morphgl_registry::{BatchId, BatchingWorker, Expansion, Fanout, Handle, MiniBatch, Result};

use crate::bounds::HopBounds;
use crate::expand::{HopArrays, HopLaunch};
use crate::kernels::{Draws, GROUP, SizeIndices};
use crate::launch::{Launch, check_len, large_scratch};
use crate::scratch::{Scratch, grow, raise};
use crate::shared::{Reach, Shared};

/// Access counters per node, for pre-sampling.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Mini-batches in which the node is an input node.
    pub(crate) nodes: Buffer<u32>,
    /// Hops that expand it, if it has a neighbour.
    pub(crate) rows: Buffer<u32>,
}

impl Counters {
    pub(crate) fn new(stream: &Stream, num_nodes: usize) -> Result<Self> {
        let mut counters = Self { nodes: Buffer::new(stream, num_nodes)?, rows: Buffer::new(stream, num_nodes)? };
        stream.fill(&mut counters.nodes, 0)?;
        stream.fill(&mut counters.rows, 0)?;
        Ok(counters)
    }
}

/// A worker: streams used round-robin.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    scratch: Vec<Scratch>,
    next: usize,
}

impl Worker {
    pub(crate) fn new(shared: &Arc<Shared>, in_flight: usize) -> Result<Self> {
        let hops = shared.hops.fanouts.0.len();
        let scratch: Vec<Scratch> =
            (0..in_flight).map(|_| Scratch::new(&shared.device, hops)).collect::<Result<_>>()?;
        scratch.iter().try_for_each(|scratch| scratch.stream.wait(&shared.graph.ready))?;
        Ok(Self { shared: Arc::clone(shared), scratch, next: 0 })
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.scratch[self.next].stream
    }

    /// Queues the work of a mini-batch, including access counting if `counters` are given.
    pub(crate) fn make(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        counters: Option<&Counters>,
    ) -> Result<Handle<MiniBatch>> {
        let current = self.next;
        self.next = (current + 1) % self.scratch.len();
        make(&self.shared, &mut self.scratch[current], id, share, counters)
    }
}

impl BatchingWorker for Worker {
    fn prepare_share(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        // Its memory returns to the device's pool for reuse.
        drop(recycled);
        self.make(id, share, None)
    }

    /// Peak scratch memory of a stream times the number of streams, and seed orders. The topology is the operator's, not a worker's.
    fn num_bytes(&self) -> Option<u64> {
        let scratch = self.scratch.iter().map(Scratch::num_bytes).max().unwrap_or(0);
        Some(self.scratch.len() as u64 * scratch + self.shared.orders.num_bytes())
    }
}

fn make(
    shared: &Shared,
    scratch: &mut Scratch,
    id: BatchId,
    share: Range<usize>,
    counters: Option<&Counters>,
) -> Result<Handle<MiniBatch>> {
    let seeds = shared.seeds(id, share)?;
    let fanouts = &shared.hops.fanouts.0;
    let hops = fanouts.len() as u32;
    let order = shared.orders.get(id.epoch, &scratch.stream)?;
    let start = scratch.stream.record(true)?;
    scratch.stream.wait(&order.ready)?;

    let mut bounds = shared.first_hop();
    let reach = shared.reach(id, 0, bounds, false)?;
    let capacity = raise(&mut scratch.peak_nodes, reach.nodes);
    let mut nodes = Buffer::new(&scratch.stream, capacity as usize)?;
    let mut degrees = Buffer::new(&scratch.stream, capacity as usize)?;
    scratch.empty_table()?;
    grow_nodes(shared, scratch, reach, 0)?;
    let launch = Launch { shared, stream: &scratch.stream };
    let slice = (&order.nodes, seeds.start as u64, seeds.len() as u32);
    launch.seeds(slice, &nodes, Some(&scratch.counts), &scratch.table)?;

    let mut blocks = Vec::with_capacity(fanouts.len());
    for (hop, &fanout) in fanouts.iter().enumerate() {
        let previous = hop as i32 - 1;
        let first = if shared.hops.expansion == Expansion::All { -1 } else { previous };
        let sizes = SizeIndices { first, rows: hop as u32, edges: hops + 1 + hop as u32 };
        let limit = match fanout {
            Fanout::All => u32::MAX,
            Fanout::AtMost(k) => k.get(),
        };
        scratch.grow_row_sums(bounds.rows)?;
        let rows = raise(&mut scratch.peak_rows[hop], bounds.rows);
        let indptr = Buffer::new(&scratch.stream, rows as usize + 1)?;
        {
            let Scratch { counts, start, len, key, positive, sums, .. } = &*scratch;
            let launch = Launch { shared, stream: &scratch.stream };
            launch.locate(&nodes, (counts, previous, hop as u32, bounds.rows), Some((start, len, key)), &degrees)?;
            if shared.weighted() {
                launch.count_positive((&bounds, sizes, limit), counts, (start, len), positive)?;
            }
            let lens = if shared.weighted() { positive } else { len };
            launch.offsets((&bounds, sizes, limit), lens, counts, sums, &indptr)?;
            if let Some(counters) = counters {
                launch.count(&nodes, Some(lens), (counts, first, hop as u32, bounds.rows), &counters.rows)?;
            }
        }
        if !shared.fits(&bounds) {
            bounds = query_sizes(shared, scratch, sizes, bounds)?;
            let reach = shared.reach(id, hop, bounds, true)?;
            let capacity = raise(&mut scratch.peak_nodes, reach.nodes);
            grow(&scratch.stream, &mut nodes, capacity, bounds.rows)?;
            grow(&scratch.stream, &mut degrees, capacity, bounds.rows)?;
            if grow_nodes(shared, scratch, reach, bounds.rows)? {
                // Reinsert the nodes so far into the new table.
                let launch = Launch { shared, stream: &scratch.stream };
                launch.seeds((&nodes, 0, bounds.rows as u32), &nodes, None, &scratch.table)?;
            }
        }
        let edges = raise(&mut scratch.peak_edges[hop], bounds.edges);
        let large = !shared.weighted() && fanout != Fanout::All && limit > GROUP;
        scratch.grow_edges(edges, shared.weighted() || large)?;
        if large {
            let (words, _) = large_scratch(limit, shared.max_blocks);
            grow(&scratch.stream, &mut scratch.large, words as u64, 0)?;
        }
        let indices = Buffer::new(&scratch.stream, edges as usize)?;
        let weights = shared.graph.weights.as_ref().map(|_| Buffer::new(&scratch.stream, edges as usize));
        let arrays = HopArrays { indptr, indices, weights: weights.transpose()? };
        let reads_by_order = !shared.weighted() && !large && fanout != Fanout::All;
        let order = shared.order_of(&bounds).filter(|_| reads_by_order);
        if let Some(order) = order {
            put_in_order(shared, scratch, order, (&bounds, sizes), &nodes)?;
        }
        let draws = Draws { fanout: limit, hop: hop as u32, id, seed: shared.seed };
        let launch = Launch { shared, stream: &scratch.stream };
        HopLaunch::new(launch, scratch, (&bounds, sizes, draws), &nodes, (&arrays, order.is_some())).run()?;
        blocks.push(arrays);
        if let Some(&next) = fanouts.get(hop + 1) {
            bounds = shared.degrees.after(&bounds, shared.hops.expansion, next);
        }
    }

    let stream = &scratch.stream;
    let launch = Launch { shared, stream };
    launch.locate(&nodes, (&scratch.counts, hops as i32 - 1, hops, bounds.nodes), None, &degrees)?;
    if let Some(counters) = counters {
        launch.count(&nodes, None, (&scratch.counts, -1, hops, bounds.nodes), &counters.nodes)?;
    }
    let num_seeds = seeds.len();
    let mut labels = Buffer::new(stream, if order.labels.is_empty() { 0 } else { num_seeds })?;
    if !order.labels.is_empty() {
        stream.copy(&order.labels, seeds, &mut labels, 0)?;
    }
    let mut counts = Pinned::new(stream.device(), scratch.counts.len())?;
    stream.copy(&scratch.counts, 0..counts.len(), &mut counts, 0)?;
    let ready = stream.record(false)?;
    let end = stream.record(true)?;
    let device = shared.device.clone();
    Ok(pending(start, end, move || {
        let batch = CudaBatch {
            device,
            ready,
            id,
            num_seeds,
            input_nodes: with_len(nodes, counts[hops as usize]),
            degrees: with_len(degrees, counts[hops as usize]),
            blocks: blocks.into_iter().enumerate().rev().map(|(hop, arrays)| arrays.block(hop, &counts)).collect(),
            features: None,
            given: None,
            labels,
            last_use: LastUse::default(),
        };
        // Memory is then reused without waiting for the stream's later work.
        // SAFETY: the memory belongs to this mini-batch, and all work on it comes before its end event, which has happened.
        unsafe {
            counts.settle();
            batch.settle();
        }
        Ok(batch.into_batch())
    }))
}

/// Puts the rows that a hop expands in the order of the pages of their lists.
fn put_in_order(
    shared: &Shared,
    scratch: &mut Scratch,
    order: &PageOrder,
    (bounds, sizes): (&HopBounds, SizeIndices),
    nodes: &Buffer<u32>,
) -> Result<()> {
    let Scratch { stream, start, counts, order: rows, buckets, peak_nodes, .. } = scratch;
    grow(stream, buckets, order.num_buckets().into(), 0)?;
    grow(stream, rows, *peak_nodes, 0)?;
    check_len(start, bounds.rows);
    let items = [
        nodes.into(),
        (&*start).into(),
        (&*counts).into(),
        sizes.first.into(),
        sizes.rows.into(),
        (&shared.graph.indices).into(),
        (shared.degrees.num_nodes() as u32).into(),
        order.num_buckets().into(),
    ];
    // SAFETY: the arguments are the kernels'. The hop's rows are those between the entries of `counts`, at most `expanded`; each begins
    // in the table of neighbours or at its end, and its node is one of the graph's.
    unsafe { order.sort(stream, (bounds.expanded as usize, &items), buckets, rows) }
}

/// Grows the stream's per-node memory; returns whether the hash table is new.
fn grow_nodes(shared: &Shared, scratch: &mut Scratch, reach: Reach, preserved: u64) -> Result<bool> {
    scratch.grow_nodes(scratch.peak_nodes, preserved, (shared.weighted(), shared.graph.draw_keys.is_some()))?;
    scratch.grow_table(reach.nodes, shared.degrees.num_nodes(), reach.values)
}

/// Waits for the hop's exact sizes, since its upper bounds are too large to allocate.
fn query_sizes(shared: &Shared, scratch: &mut Scratch, indices: SizeIndices, bounds: HopBounds) -> Result<HopBounds> {
    scratch.stream.copy(&scratch.counts, 0..scratch.counts.len(), &mut scratch.sizes, 0)?;
    scratch.stream.record(false)?.synchronize()?;
    let (rows, edges) = (scratch.sizes[indices.rows as usize], scratch.sizes[indices.edges as usize]);
    let exact = HopBounds { rows, expanded: bounds.expanded.min(rows), ..bounds };
    Ok(exact.with_edges(edges, shared.degrees.num_nodes()))
}

impl HopArrays {
    fn block(self, hop: usize, counts: &[u64]) -> CudaBlock {
        let (num_dst, num_src) = (counts[hop], counts[hop + 1]);
        let edges = counts[counts.len() / 2 + 1 + hop];
        CudaBlock {
            num_dst: num_dst as usize,
            num_src: num_src as usize,
            indptr: with_len(self.indptr, num_dst + 1),
            indices: with_len(self.indices, edges),
            weights: self.weights.map(|weights| with_len(weights, edges)),
            importance: false,
        }
    }
}

fn with_len<T: bytemuck::Pod>(mut buffer: Buffer<T>, len: u64) -> Buffer<T> {
    buffer.set_len(len as usize);
    buffer
}

#[cfg(all(test, feature = "emulate"))]
mod tests;
