//! Batching worker: queues mini-batches on the device without waiting for them.

use std::ops::Range;
use std::sync::Arc;

use morphgl_cuda::{Buffer, CudaBatch, CudaPairs, CudaTargets, Event, LastUse, PageOrder, Pinned, Stream, pending};
use morphgl_registry::{BatchId, BatchingWorker, Expansion, Fanout, GivenNodes, Handle, MiniBatch, Result};

use crate::arrays::{BoundedBlock, HopArrays, with_len};
use crate::bounds::HopBounds;
use crate::buffer::check_len;
use crate::buffer::grow;
use crate::expand::HopLaunch;
use crate::given::{GivenLists, LastButOne, NUM_COUNTS};
use crate::kernels::{Draws, GROUP, SizeIndices};
use crate::launch::{Launch, large_scratch};
use crate::order::Order;
use crate::pairs::{DrawnPairs, PairDraws, PairScratch};
use crate::scratch::{Scratch, raise};
use crate::shadow::induce;
use crate::shared::{Reach, Shared};
use crate::sub_rows::{sub_row_blocks, words_of_picks};
use crate::typed::{Typed, TypedScratch};

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
    /// The nodes that it leaves unexpanded.
    given: Option<GivenLists>,
    pairs: PairDraws,
}

impl Worker {
    pub(crate) fn new(shared: &Arc<Shared>, in_flight: usize) -> Result<Self> {
        Self::with_given(shared, in_flight, None)
    }

    /// A worker that leaves `given` nodes unexpanded, where there are any.
    pub(crate) fn with_given(
        shared: &Arc<Shared>,
        in_flight: usize,
        given: Option<Arc<dyn GivenNodes>>,
    ) -> Result<Self> {
        let given = given.map(GivenLists::new);
        let hops = shared.num_hops();
        let more = shared.kind.num_more() + given.as_ref().map_or(0, |_| NUM_COUNTS);
        let stream = |_| {
            let mut scratch = Scratch::new(&shared.device, hops, more)?;
            let own = &scratch.stream;
            scratch.pairs = shared.pairs.as_ref().map(|_| PairScratch::empty(&shared.graph, own)).transpose()?;
            let typed = shared.kind.typed.as_ref();
            scratch.typed = typed.map(|typed| TypedScratch::new(&scratch.stream, typed)).transpose()?;
            scratch.table.tree_bits = shared.tree_bits;
            Ok(scratch)
        };
        let scratch: Vec<Scratch> = (0..in_flight).map(stream).collect::<Result<_>>()?;
        scratch.iter().try_for_each(|scratch| scratch.stream.wait(&shared.graph.ready))?;
        Ok(Self { shared: Arc::clone(shared), scratch, next: 0, given, pairs: PairDraws::default() })
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
        let Self { shared, scratch, given, pairs, .. } = self;
        make(shared, (&mut scratch[current], pairs), id, share, (counters, given.as_mut()))
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

    /// Peak scratch memory of a stream times the number of streams, seed orders, and lists of given nodes. The topology is the operator's, not a worker's.
    fn num_bytes(&self) -> Option<u64> {
        let scratch = self.scratch.iter().map(Scratch::num_bytes).max().unwrap_or(0);
        let lists = self.given.as_ref().map_or(0, GivenLists::num_bytes);
        Some(self.scratch.len() as u64 * scratch + self.shared.orders.num_bytes() + lists)
    }
}

fn make(
    shared: &Shared,
    (scratch, draws): (&mut Scratch, &mut PairDraws),
    id: BatchId,
    share: Range<usize>,
    (counters, mut given): (Option<&Counters>, Option<&mut GivenLists>),
) -> Result<Handle<MiniBatch>> {
    let (fanouts, walks, subgraphs) = (&shared.kind.hops.fanouts.0, shared.kind.walks(), shared.kind.subgraphs());
    let weighted = shared.kind.weighted();
    let typed = shared.kind.typed.as_deref();
    typed.map_or(Ok(()), |typed| typed.settings.check_epoch(id))?;
    let hops = fanouts.len() as u32;
    let (seeds, start) = seeds(shared, scratch, draws, id, share)?;

    let mut bounds = shared.first_hop();
    let reach = shared.reach(id, 0, bounds, false)?;
    let capacity = raise(&mut scratch.peak_nodes, reach.nodes);
    let mut nodes = Buffer::new(&scratch.stream, capacity as usize)?;
    let mut degrees = Buffer::new(&scratch.stream, capacity as usize)?;
    let has_trees = typed.is_some_and(Typed::has_trees);
    let mut trees = has_trees.then(|| Buffer::new(&scratch.stream, capacity as usize)).transpose()?;
    scratch.empty_table()?;
    grow_nodes(shared, scratch, reach, 0)?;
    if let Some(of) = scratch.typed.as_mut().filter(|_| has_trees) {
        of.grow_trees(&scratch.stream, seeds.len() as u64)?;
    }
    let launch = Launch { shared, stream: &scratch.stream };
    if let Some(without) = scratch.without() {
        launch.add_part(without)?;
    }
    match &trees {
        None => launch.seeds(seeds.slice(scratch), &nodes, Some(&scratch.counts), &scratch.table)?,
        Some(trees) => launch.trees(seeds.slice(scratch), (&nodes, trees), scratch)?,
    }

    let mut blocks: Vec<BoundedBlock> = Vec::with_capacity(fanouts.len());
    // Bounds of the hop before.
    let mut before = bounds;
    let mut left_out = None;
    for (hop, &fanout) in fanouts.iter().enumerate() {
        let previous = hop as i32 - 1;
        if let (Some(given), Some(block)) = (given.as_mut().filter(|_| hop + 1 == fanouts.len()), blocks.last_mut()) {
            let before = LastButOne { hop: hop - 1, bounds: &before, nodes: &nodes };
            left_out = given.leave_out((shared, scratch), id, before, block)?;
        }
        let first = if shared.kind.hops.expansion == Expansion::All { -1 } else { previous };
        let sizes = SizeIndices { first, rows: hop as u32, edges: hops + 1 + hop as u32 };
        let limit = match fanout {
            Fanout::All => u32::MAX,
            Fanout::AtMost(k) => k.get(),
        };
        scratch.grow_row_sums(bounds.rows)?;
        if let Some(typed) = typed {
            grow(&scratch.stream, &mut scratch.sums, sub_row_blocks(typed, bounds.expanded), 0)?;
            let of = scratch.typed.as_mut().expect("memory for sub-rows");
            of.grow(&scratch.stream, typed, bounds.expanded, shared.counts_candidates())?;
        }
        let rows = raise(&mut scratch.peak_rows[hop], bounds.rows);
        let mut arrays = scratch.hop.take().map_or_else(|| HopArrays::empty(&scratch.stream), Ok)?;
        arrays.grow_rows(&scratch.stream, rows)?;
        {
            let Scratch { counts, start, len, key, positive, sums, .. } = &*scratch;
            let without = scratch.without();
            let launch = Launch { shared, stream: &scratch.stream };
            let (of, to) = ((counts, previous, hop as u32, bounds.rows), Some((start, len, key)));
            launch.locate(&nodes, of, to, &degrees)?;
            if let Some(without) = without {
                launch.leave_edges_out(without, &nodes, of, to, &degrees)?;
            }
            if weighted && typed.is_none() {
                let lost = (positive, without);
                launch.count_positive((&bounds, sizes, limit), counts, (start, len), lost)?;
            }
            let lens = if weighted && typed.is_none() { positive } else { len };
            if typed.is_some() {
                let hop = (&bounds, sizes, hop as u32);
                launch.divide_rows(hop, (&nodes, trees.as_ref()), scratch, &arrays.indptr)?;
            } else if walks.is_none() {
                launch.offsets((&bounds, sizes, limit), lens, counts, sums, &arrays.indptr)?;
            }
            if let Some(counters) = counters.filter(|_| walks.is_none()) {
                launch.count(&nodes, Some(lens), (counts, first, hop as u32, bounds.rows), &counters.rows)?;
            }
        }
        if !shared.fits(&bounds) {
            let (rows, edges) = scratch.query_sizes(sizes)?;
            // Walks have not begun: they may find as many edges as they keep.
            let edges = walks.map_or(edges, |walks| rows * u64::from(walks.keep));
            let exact = HopBounds { rows, expanded: bounds.expanded.min(rows), ..bounds };
            bounds = exact.with_edges(edges, shared.degrees.num_nodes());
            let reach = shared.reach(id, hop, bounds, true)?;
            let capacity = raise(&mut scratch.peak_nodes, reach.nodes);
            grow(&scratch.stream, &mut nodes, capacity, bounds.rows)?;
            grow(&scratch.stream, &mut degrees, capacity, bounds.rows)?;
            if let Some(trees) = &mut trees {
                grow(&scratch.stream, trees, capacity, bounds.rows)?;
            }
            if grow_nodes(shared, scratch, reach, bounds.rows)? {
                // Reinsert the nodes so far into the new table.
                let launch = Launch { shared, stream: &scratch.stream };
                let num = bounds.rows as u32;
                match &trees {
                    None => launch.seeds((&nodes, 0, num), &nodes, None, &scratch.table)?,
                    Some(trees) => launch.insert((&nodes, trees), num, &scratch.table)?,
                }
            }
        }
        let edges = raise(&mut scratch.peak_edges[hop], bounds.edges);
        let large = typed.is_none() && !weighted && fanout != Fanout::All && limit > GROUP;
        scratch.grow_edges(edges, (weighted || large) && typed.is_none())?;
        if large {
            let (words, _) = large_scratch(limit, shared.max_blocks);
            grow(&scratch.stream, &mut scratch.large, words as u64, 0)?;
        }
        arrays.grow_edges(&scratch.stream, edges, shared.has_weights())?;
        if let Some(typed) = typed {
            if typed.ends.is_some() {
                arrays.grow_types(&scratch.stream)?;
            }
            let words = words_of_picks(typed, hop as u32, weighted, shared.max_blocks);
            grow(&scratch.stream, &mut scratch.large, words, 0)?;
        }
        let reads_by_order = typed.is_none() && !weighted && !large && fanout != Fanout::All;
        let order = shared.order_of(&bounds).filter(|_| reads_by_order);
        if let Some(order) = order {
            put_in_order(shared, scratch, order, (&bounds, sizes), &nodes)?;
        }
        let draws = Draws { fanout: limit, hop: hop as u32, id, seed: shared.seed };
        if let Some(walks) = walks {
            scratch.grow_walks(walks, bounds.rows, shared.max_blocks)?;
            let launch = Launch { shared, stream: &scratch.stream };
            launch.walk(walks, (&bounds, sizes, draws), &nodes, scratch, counters.map(|counters| &counters.rows))?;
            let Scratch { counts, len, sums, .. } = &*scratch;
            launch.offsets((&bounds, sizes, limit), len, counts, sums, &arrays.indptr)?;
        }
        let launch = Launch { shared, stream: &scratch.stream };
        let of_nodes = (&nodes, trees.as_ref());
        HopLaunch::new(launch, scratch, (&bounds, sizes, draws), of_nodes, (&arrays, order.is_some())).run()?;
        match subgraphs {
            Some(_) => scratch.hop = Some(arrays),
            None => blocks.push(arrays.of(hop, hop + 1, sizes.edges)),
        }
        before = bounds;
        if let Some(&next) = fanouts.get(hop + 1) {
            bounds = shared.degrees.after(&bounds, shared.kind.hops.expansion, next);
        }
    }

    // The hop farthest from the seeds comes first.
    blocks.reverse();
    {
        let Scratch { stream, counts, start, len, key, .. } = &*scratch;
        let launch = Launch { shared, stream };
        // A subgraph reads the rows of the last nodes, too.
        let rows = subgraphs.map(|_| (start, len, key));
        let of = (counts, hops as i32 - 1, hops, bounds.nodes);
        launch.locate(&nodes, of, rows, &degrees)?;
        if let Some(without) = scratch.without() {
            launch.leave_edges_out(without, &nodes, of, rows, &degrees)?;
        }
        if let Some(counters) = counters {
            let all = (counts, -1, hops, bounds.nodes);
            launch.count(&nodes, None, all, &counters.nodes)?;
            if rows.is_some() {
                launch.count(&nodes, Some(len), all, &counters.rows)?;
            }
        }
    }
    if let Some(layers) = subgraphs {
        blocks = induce(shared, scratch, id, &bounds, layers)?;
    }
    let stream = &scratch.stream;
    let num_seeds = seeds.len();
    let (labels, targets, pairs) = seeds.into_targets(stream)?;
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
            blocks: blocks.into_iter().map(|block| block.with(&counts, walks.is_some())).collect(),
            features: None,
            given: left_out.and_then(|part| part.with(&counts)),
            labels,
            targets,
            trees: trees.map(|trees| with_len(trees, counts[hops as usize])),
            pairs,
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

/// The seeds of a mini-batch.
enum Seeds {
    /// Those at these positions of an epoch's order.
    Nodes(Arc<Order>, Range<usize>),
    /// The ends of pairs, in the stream's memory.
    Pairs(Box<DrawnPairs>),
}

/// The seeds of a share of a mini-batch, for the stream of `scratch`, and an event before its work; of pairs, which the host draws after
/// the event, also the rows that lose edges.
fn seeds(
    shared: &Shared,
    scratch: &mut Scratch,
    draws: &mut PairDraws,
    id: BatchId,
    share: Range<usize>,
) -> Result<(Seeds, Event)> {
    if let Some(source) = &shared.pairs {
        let Scratch { stream, pairs, .. } = scratch;
        let own = pairs.as_mut().expect("a stream of pairs has memory for them");
        let start = stream.record(true)?;
        let pairs = draws.draw((source, &shared.graph, shared.kind.typed.as_deref()), (stream, own), id, share)?;
        return Ok((Seeds::Pairs(Box::new(pairs)), start));
    }
    let positions = shared.seeds(id, share)?;
    let order = shared.orders.get(id.epoch, &scratch.stream)?;
    let start = scratch.stream.record(true)?;
    scratch.stream.wait(&order.ready)?;
    Ok((Seeds::Nodes(order, positions), start))
}

impl Seeds {
    fn len(&self) -> usize {
        match self {
            Seeds::Nodes(_, positions) => positions.len(),
            Seeds::Pairs(drawn) => drawn.num_seeds as usize,
        }
    }

    /// A list, the position of the first one there, and their number.
    fn slice<'a>(&'a self, scratch: &'a Scratch) -> (&'a Buffer<u32>, u64, u32) {
        match self {
            Seeds::Nodes(order, positions) => (&order.nodes, positions.start as u64, positions.len() as u32),
            Seeds::Pairs(drawn) => {
                let own = scratch.pairs.as_ref().expect("a stream of pairs has memory for them");
                (&own.seeds, 0, drawn.num_seeds)
            }
        }
    }

    /// Copies of their labels and targets; or pairs with theirs.
    fn into_targets(self, stream: &Stream) -> Result<(Buffer<i32>, CudaTargets, Option<CudaPairs>)> {
        let (order, seeds) = match self {
            Seeds::Nodes(order, seeds) => (order, seeds),
            Seeds::Pairs(drawn) => {
                let DrawnPairs { labels, targets, pairs, .. } = *drawn;
                return Ok((labels, targets, Some(pairs)));
            }
        };
        let mut labels = Buffer::new(stream, if order.labels.is_empty() { 0 } else { seeds.len() })?;
        if !order.labels.is_empty() {
            stream.copy(&order.labels, seeds.clone(), &mut labels, 0)?;
        }
        let width = order.targets.width;
        let mut targets = CudaTargets { width, values: Buffer::new(stream, width * seeds.len())? };
        if width > 0 {
            stream.copy(&order.targets.values, seeds.start * width..seeds.end * width, &mut targets.values, 0)?;
        }
        Ok((labels, targets, None))
    }
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
        (shared.num_nodes as u32).into(),
        order.num_buckets().into(),
    ];
    // SAFETY: the arguments are the kernels'. The hop's rows are those between the entries of `counts`, at most `expanded`; each begins
    // in the table of neighbours or at its end, and its node is one of the graph's.
    unsafe { order.sort(stream, (bounds.expanded as usize, &items), buckets, rows) }
}

/// Grows the stream's per-node memory; returns whether the hash table is new.
fn grow_nodes(shared: &Shared, scratch: &mut Scratch, reach: Reach, preserved: u64) -> Result<bool> {
    let counted = shared.kind.weighted() || shared.kind.subgraphs().is_some();
    scratch.grow_nodes(scratch.peak_nodes, preserved, (counted, shared.graph.draw_keys.is_some()))?;
    scratch.grow_table(reach.nodes, shared.degrees.num_nodes(), reach.values)
}

#[cfg(all(test, feature = "emulate"))]
mod tests;
