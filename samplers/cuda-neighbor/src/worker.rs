//! Batching worker: queues mini-batches on the device without waiting for them.

use std::ops::Range;
use std::sync::Arc;

use morphgl_cuda::{Buffer, CudaBatch, CudaBlock, LastUse, Pinned, Stream, pending};
use morphgl_registry::{BatchId, BatchingWorker, Expansion, Fanout, Handle, MiniBatch, Pick, Result};

use crate::bounds::Hop;
use crate::expand::{Expand, HopArrays};
use crate::kernels::{Draws, GROUP, Places};
use crate::launch::Launch;
use crate::scratch::{GROWN, Needs, Scratch, grow};
use crate::shared::Shared;

/// Access counters per node, for pre-sampling.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Mini-batches in which the node is an input node.
    pub(crate) nodes: Buffer<u32>,
    /// Hops that expand it, if it has a neighbour.
    pub(crate) rows: Buffer<u32>,
}

/// A worker: streams used in turn.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    scratch: Vec<Scratch>,
    turn: usize,
}

impl Worker {
    pub(crate) fn new(shared: &Arc<Shared>, in_flight: usize) -> Result<Self> {
        let hops = shared.settings.fanouts.0.len();
        let scratch: Vec<Scratch> =
            (0..in_flight).map(|_| Scratch::new(&shared.device, hops)).collect::<Result<_>>()?;
        scratch.iter().try_for_each(|scratch| scratch.stream.wait(&shared.graph.ready))?;
        Ok(Self { shared: Arc::clone(shared), scratch, turn: 0 })
    }

    /// Stream of the next mini-batch.
    pub(crate) fn stream(&self) -> &Stream {
        &self.scratch[self.turn].stream
    }

    /// Queues the work of a mini-batch, including access counting if `counters` are given.
    pub(crate) fn make(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        counters: Option<&Counters>,
    ) -> Result<Handle<MiniBatch>> {
        let turn = self.turn;
        self.turn = (turn + 1) % self.scratch.len();
        make(&self.shared, &mut self.scratch[turn], id, share, counters)
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

    /// Peak scratch memory of a stream times the number of streams, seed orders, and topology.
    fn num_bytes(&self) -> Option<u64> {
        let scratch = self.scratch.iter().map(Scratch::num_bytes).max().unwrap_or(0);
        let shared = self.shared.orders.num_bytes() + self.shared.graph.num_bytes();
        Some(self.scratch.len() as u64 * scratch + shared)
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
    let fanouts = &shared.settings.fanouts.0;
    let hops = fanouts.len() as u32;
    let order = shared.orders.get(id.epoch, &scratch.stream)?;
    let start = scratch.stream.record(true)?;
    scratch.stream.wait(&order.ready)?;

    let weighted = shared.settings.pick == Pick::Weighted;
    let mut bound = shared.first_hop();
    let reach = shared.reach(0, bound, false).checked(id)?;
    let room = scratch.peak_nodes(reach.nodes);
    let (mut nodes, mut degrees) = (None, None);
    grow(&scratch.stream, &mut nodes, room, 0)?;
    grow(&scratch.stream, &mut degrees, room, 0)?;
    scratch.grow_nodes(room, 0, weighted)?;
    scratch.empty_table()?;
    scratch.grow_table(reach.nodes, shared.degrees.num_nodes(), reach.values)?;
    {
        let (nodes, table) = (nodes.as_ref().expect(GROWN), scratch.table.as_ref().expect(GROWN));
        let launch = Launch { kernels: &shared.kernels, stream: &scratch.stream };
        launch.seeds((&order.nodes, seeds.start as u64, seeds.len() as u32), nodes, Some(&scratch.counts), table)?;
    }

    let mut blocks = Vec::with_capacity(fanouts.len());
    for (hop, &fanout) in fanouts.iter().enumerate() {
        let before = hop as i32 - 1;
        let first = if shared.settings.expansion == Expansion::All { -1 } else { before };
        let places = Places { first, rows: hop as u32, edges: hops + 1 + hop as u32 };
        let most = match fanout {
            Fanout::All => u32::MAX,
            Fanout::AtMost(k) => k.get(),
        };
        scratch.grow_sums(bound.rows)?;
        let room = scratch.peak_rows(hop, bound.rows);
        let indptr = Buffer::new(&scratch.stream, room as usize + 1)?;
        {
            let s = &*scratch;
            let launch = Launch { kernels: &shared.kernels, stream: &s.stream };
            let (nodes, degrees) = (nodes.as_ref().expect(GROWN), degrees.as_ref().expect(GROWN));
            let (start, len) = (s.start.as_ref().expect(GROWN), s.len.as_ref().expect(GROWN));
            let at = (&s.counts, before, hop as u32, bound.rows);
            launch.locate(&shared.graph, nodes, at, Some((start, len)), degrees)?;
            let positive = s.positive.as_ref().filter(|_| weighted);
            if let Some(positive) = positive {
                launch.count_positive((&bound, places, most), (&shared.graph, &s.counts), (start, len), positive)?;
            }
            let lens = positive.unwrap_or(len);
            let sums = s.sums.as_ref().expect(GROWN);
            launch.offsets((&bound, places, most), lens, &s.counts, sums, &indptr)?;
            if let Some(counters) = counters {
                let at = (&s.counts, first, hop as u32, bound.rows);
                launch.count(nodes, Some(lens), at, &counters.rows)?;
            }
        }
        if !shared.fits(&bound) {
            bound = sizes(shared, scratch, places, bound)?;
            let reach = shared.reach(hop, bound, true).checked(id)?;
            let room = scratch.peak_nodes(reach.nodes);
            grow(&scratch.stream, &mut nodes, room, bound.rows)?;
            grow(&scratch.stream, &mut degrees, room, bound.rows)?;
            scratch.grow_nodes(room, bound.rows, weighted)?;
            if scratch.grow_table(reach.nodes, shared.degrees.num_nodes(), reach.values)? {
                // Reinsert the nodes found so far into the new table.
                let (nodes, table) = (nodes.as_ref().expect(GROWN), scratch.table.as_ref().expect(GROWN));
                let launch = Launch { kernels: &shared.kernels, stream: &scratch.stream };
                launch.seeds((nodes, 0, bound.rows as u32), nodes, None, table)?;
            }
        }
        let edges = scratch.peak_edges(hop, bound.edges);
        let apart = weighted || (fanout != Fanout::All && most > GROUP);
        let large = (apart && !weighted).then_some(most);
        scratch.grow_edges(&Needs { edges, picked: apart, large }, &shared.kernels)?;
        let indices = Buffer::new(&scratch.stream, edges as usize)?;
        let weights = shared.graph.weights.as_ref().map(|_| Buffer::new(&scratch.stream, edges as usize));
        let made = HopArrays { indptr, indices, weights: weights.transpose()? };
        let draws = Draws { fanout: most, hop: hop as u32, id, seed: shared.settings.seed };
        Expand::new(shared, scratch, (&bound, places, draws), nodes.as_ref().expect(GROWN), &made).run()?;
        blocks.push(made);
        if let Some(&next) = fanouts.get(hop + 1) {
            bound = shared.degrees.after(&bound, &shared.settings, next);
        }
    }

    let (nodes, degrees) = (nodes.expect(GROWN), degrees.expect(GROWN));
    let stream = &scratch.stream;
    let launch = Launch { kernels: &shared.kernels, stream };
    let at = (&scratch.counts, hops as i32 - 1, hops, bound.nodes);
    launch.locate(&shared.graph, &nodes, at, None, &degrees)?;
    if let Some(counters) = counters {
        launch.count(&nodes, None, (&scratch.counts, -1, hops, bound.nodes), &counters.nodes)?;
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
        // The work is done: the handle was waited for.
        settle(&counts, &nodes, &degrees, &labels, &blocks);
        let batch = CudaBatch {
            device,
            ready,
            id,
            num_seeds,
            input_nodes: cut(nodes, counts[hops as usize]),
            degrees: cut(degrees, counts[hops as usize]),
            blocks: blocks.into_iter().enumerate().rev().map(|(hop, made)| made.block(hop, &counts)).collect(),
            features: None,
            labels,
            last_use: LastUse::default(),
        };
        Ok(batch.into_batch())
    }))
}

/// Waits for the hop's exact sizes, since its upper bounds are too large to allocate.
fn sizes(shared: &Shared, scratch: &mut Scratch, places: Places, bound: Hop) -> Result<Hop> {
    scratch.stream.copy(&scratch.counts, 0..scratch.counts.len(), &mut scratch.sizes, 0)?;
    scratch.stream.record(false)?.synchronize()?;
    let (rows, edges) = (scratch.sizes[places.rows as usize], scratch.sizes[places.edges as usize]);
    let exact = Hop { rows, expanded: bound.expanded.min(rows), ..bound };
    Ok(exact.with_edges(edges, shared.degrees.num_nodes()))
}

/// Allows the memory of a finished mini-batch to be reused without waiting for its stream's later work.
fn settle(
    counts: &Pinned<u64>,
    nodes: &Buffer<u32>,
    degrees: &Buffer<f32>,
    labels: &Buffer<i32>,
    blocks: &[HopArrays],
) {
    // SAFETY: they belong to this mini-batch, and all work on them comes before its end event, which has happened.
    unsafe {
        counts.settle();
        nodes.settle();
        degrees.settle();
        labels.settle();
        for made in blocks {
            made.indptr.settle();
            made.indices.settle();
            made.weights.iter().for_each(|weights| weights.settle());
        }
    }
}

impl HopArrays {
    fn block(self, hop: usize, counts: &[u64]) -> CudaBlock {
        let (num_dst, num_src) = (counts[hop], counts[hop + 1]);
        let edges = counts[counts.len() / 2 + 1 + hop];
        CudaBlock {
            num_dst: num_dst as usize,
            num_src: num_src as usize,
            indptr: cut(self.indptr, num_dst + 1),
            indices: cut(self.indices, edges),
            weights: self.weights.map(|weights| cut(weights, edges)),
        }
    }
}

fn cut<T: bytemuck::Pod>(mut buffer: Buffer<T>, len: u64) -> Buffer<T> {
    buffer.set_len(len as usize);
    buffer
}

#[cfg(all(test, feature = "emulate"))]
mod tests {
    use morphgl_conformance::batching::{Case, graphs, reference};
    use morphgl_registry::BatchingContext;

    use super::*;
    use crate::CudaNeighbor;

    /// A table is cleared before its stamps wrap around.
    #[test]
    fn stamps_run_out() {
        let case = Case { gather: false, ..Case::new(graphs::random(200, 6, false)) };
        let Case { dataset, seeds, settings, gather } = case.clone();
        let (place, options) = ("cuda:0".parse().expect("a place"), serde_json::Value::Null);
        let sampler = CudaNeighbor::new(&BatchingContext { dataset, seeds, settings, gather, place, options });
        let mut worker = Worker::new(sampler.expect("built").shared(), 1).expect("a worker");
        let mut stamps = Vec::new();
        for epoch in 0..8 {
            let id = BatchId { epoch, index: 0 };
            let (batch, _) = worker.prepare(id, None).and_then(|h| h.wait()).expect("a mini-batch");
            let MiniBatch::Device(batch) = batch else { panic!("it lies on the device") };
            assert_eq!(batch.to_host().expect("a copy"), reference::sample(&case, id));
            let table = worker.scratch[0].table.as_mut().expect("it was used");
            if epoch == 0 {
                table.stamp = (1 << (32 - table.value_bits)) - 3;
            }
            stamps.push(table.stamp);
        }
        assert_eq!(stamps[3..], [1, 2, 3, 4, 5], "{stamps:?}");
    }
}
