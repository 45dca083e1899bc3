//! Pairs of nodes as seeds: the host draws them, and writes out the rows that lose edges.

use std::ops::Range;
use std::sync::Arc;

use morphgl_cuda::{Buffer, CudaPairs, Stream};
use morphgl_graph_store::Dataset;
use morphgl_registry::{BatchId, BatchingContext, HostBatch, PairSeeds, Result};
use morphgl_sampler_core::{Epochs, Excluded, HostRows, Order, PairBatch, Pairs, weight_sum};

use crate::cache::{CACHED, PART};
use crate::graph::Graph;
use crate::launch::{Launch, check_len};

/// The pairs of every epoch, and what their negatives are drawn from.
#[derive(Debug)]
pub(crate) struct PairSource {
    pairs: Pairs,
    epochs: Epochs,
    dataset: Arc<Dataset>,
    /// Whether the rows of the graph are in ascending order.
    sorted: bool,
}

impl PairSource {
    pub(crate) fn new(context: &BatchingContext, seeds: &PairSeeds) -> Result<Self> {
        let BatchingContext { dataset, settings, .. } = context;
        Ok(Self {
            pairs: Pairs::new(&dataset.topology, seeds, settings.seed)?,
            epochs: Epochs::new(&context.seeds, settings),
            sorted: HostRows::check_sorted(&dataset.topology),
            dataset: Arc::clone(dataset),
        })
    }

    /// Number of positives of an epoch.
    pub(crate) fn len(&self) -> usize {
        self.epochs.num_seeds()
    }

    /// Maximum number of seeds of a mini-batch of so many positives: negatives keep the source of their positive.
    pub(crate) fn max_seeds(&self, batch_size: usize) -> u64 {
        batch_size.min(self.len()) as u64 * (2 + u64::from(self.pairs.settings().negatives))
    }
}

/// Buffers of a worker.
#[derive(Debug, Default)]
pub(crate) struct PairDraws {
    batch: PairBatch,
    order: Option<Order>,
    /// Has the pairs alone.
    host: HostBatch,
}

/// The pairs of a mini-batch, and the seeds that their ends are, in device memory.
#[derive(Debug)]
pub(crate) struct DrawnPairs {
    pub(crate) pairs: CudaPairs,
    pub(crate) seeds: Buffer<u32>,
}

impl PairDraws {
    /// Draws the pairs of a share of a mini-batch, and uploads them; and the rows that lose edges, if there are any.
    pub(crate) fn draw(
        &mut self,
        (source, graph): (&PairSource, &Graph),
        stream: &Stream,
        id: BatchId,
        share: Range<usize>,
    ) -> Result<(DrawnPairs, Option<Without>)> {
        let Self { batch, order, host } = self;
        host.id = id;
        let mut rows = HostRows::new(&source.dataset.topology, source.sorted);
        batch.draw(&source.pairs, &source.epochs, share, order, &mut rows, host)?;
        let drawn = host.pairs.as_ref().expect("they were drawn");
        let ends = Buffer::of(stream, drawn.ends.as_flattened())?;
        let pairs = CudaPairs { num_positives: drawn.num_positives, ends };
        let excluded = batch.excluded();
        let without =
            (excluded.num_rows() > 0).then(|| Without::new(&source.dataset, graph, excluded, stream)).transpose()?;
        Ok((DrawnPairs { pairs, seeds: Buffer::of(stream, batch.seeds())? }, without))
    }
}

/// The rows that lose edges in a mini-batch, without these, in device memory: one more part of the cached rows.
#[derive(Debug)]
pub(crate) struct Without {
    /// Their nodes, ascending.
    nodes: Buffer<u32>,
    starts: Buffer<u64>,
    lens: Buffer<u32>,
    /// The nodes' degrees, or sums of weights.
    degrees: Buffer<f32>,
    lists: Buffer<u32>,
    weights: Option<Buffer<f32>>,
    /// Addresses of the parts of the cached rows and of the lists, and of their weights.
    pub(crate) parts: Buffer<u64>,
    pub(crate) weight_parts: Option<Buffer<u64>>,
}

impl Without {
    fn new(dataset: &Dataset, graph: &Graph, excluded: &Excluded, stream: &Stream) -> Result<Self> {
        let topology = &dataset.topology;
        let (all, all_weights): (&[u32], Option<&[f32]>) = (topology.indices(), topology.weights().map(|w| &**w));
        let part = graph.num_parts();
        assert!(part < 1 << (63 - PART), "{part} parts of cached rows");
        let (mut nodes, mut starts, mut lens, mut degrees) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut lists, mut weights) = (Vec::new(), Vec::new());
        for (node, row) in excluded.iter() {
            let first = lists.len();
            nodes.push(node);
            starts.push(CACHED | (part as u64) << PART | first as u64);
            lens.push(row.degree);
            lists.extend(row.edges().map(|edge| all[edge as usize]));
            degrees.push(match all_weights {
                None => row.degree as f32,
                Some(all) => {
                    weights.extend(row.edges().map(|edge| all[edge as usize]));
                    weight_sum(&weights[first..])
                }
            });
        }
        let weights = all_weights.map(|_| Buffer::of(stream, &weights)).transpose()?;
        Ok(Self {
            nodes: Buffer::of(stream, &nodes)?,
            starts: Buffer::of(stream, &starts)?,
            lens: Buffer::of(stream, &lens)?,
            degrees: Buffer::of(stream, &degrees)?,
            lists: Buffer::of(stream, &lists)?,
            parts: Buffer::new(stream, part + 1)?,
            weight_parts: weights.as_ref().map(|_| Buffer::new(stream, part + 1)).transpose()?,
            weights,
        })
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        let narrow = [&self.nodes, &self.lens, &self.lists].map(Buffer::num_bytes).into_iter().sum::<u64>();
        let wide = [Some(&self.starts), Some(&self.parts), self.weight_parts.as_ref()].into_iter().flatten();
        narrow
            + wide.map(Buffer::num_bytes).sum::<u64>()
            + self.degrees.num_bytes()
            + self.weights.as_ref().map_or(0, Buffer::num_bytes)
    }
}

impl Launch<'_> {
    /// Writes the addresses of the cached rows' parts, and those of the mini-batch's own lists after them.
    pub(crate) fn add_part(&self, without: &Without) -> Result<()> {
        let (graph, Without { lists, weights, parts, weight_parts, .. }) = (&self.shared.graph, without);
        let arguments = [
            (graph.num_parts() as u32).into(),
            graph.cached.as_ref().into(),
            lists.into(),
            parts.into(),
            graph.cached_weights.as_ref().into(),
            weights.as_ref().into(),
            weight_parts.as_ref().into(),
        ];
        self.run(&self.kernels().sample_add_part, self.grid(parts.len() as u64), arguments)
    }

    /// After [`Launch::locate`] of the same nodes: replaces starts and lengths of the rows that lose edges, and their degrees.
    pub(crate) fn leave_edges_out(
        &self,
        without: &Without,
        nodes: &Buffer<u32>,
        (counts, from, to, limit): (&Buffer<u64>, i32, u32, u64),
        rows: Option<(&Buffer<u64>, &Buffer<u32>, &Buffer<u32>)>,
        degrees: &Buffer<f32>,
    ) -> Result<()> {
        check_len(nodes, limit);
        check_len(degrees, limit);
        let (start, len) = rows.map(|(start, len, _)| (start, len)).unzip();
        start.inspect(|start| check_len(start, limit));
        len.inspect(|len| check_len(len, limit));
        let arguments = [
            nodes.into(),
            counts.into(),
            from.into(),
            to.into(),
            (&without.nodes).into(),
            (without.nodes.len() as u32).into(),
            (&without.starts).into(),
            (&without.lens).into(),
            (&without.degrees).into(),
            start.into(),
            len.into(),
            degrees.into(),
        ];
        self.run(&self.kernels().sample_leave_out, self.grid(limit), arguments)
    }
}
