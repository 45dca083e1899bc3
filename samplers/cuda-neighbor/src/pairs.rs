//! Pairs of nodes as seeds: the host draws them.

use std::ops::Range;
use std::sync::Arc;

use morphgl_cuda::{Buffer, CudaPairs, CudaTargets, Stream};
use morphgl_graph_store::Dataset;
use morphgl_registry::{BatchId, BatchingContext, Fanout, HostBatch, PairSeeds, PairSettings, Result};
use morphgl_sampler_core::{Epochs, HostRows, Order, PairBatch, Pairs};

use crate::bounds::Degrees;
use crate::graph::Graph;
use crate::kind::Kind;
use crate::typed::Typed;
use crate::without::Without;

/// The pairs of every epoch, and what their negatives are drawn from.
#[derive(Debug)]
pub(crate) struct PairSource {
    pairs: Pairs,
    epochs: Epochs,
    dataset: Arc<Dataset>,
    /// Those of the graph, also where walks make another.
    degrees: Degrees,
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
            degrees: Degrees::new(&dataset.topology),
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

    /// Maximum bytes of device memory of so many positives, their negatives and ends, and of the rows that lose edges: those of the largest
    /// degrees.
    pub(crate) fn max_bytes(&self, batch_size: usize, kind: &Kind) -> u64 {
        let PairSettings { negatives, exclude, .. } = *self.pairs.settings();
        let positives = batch_size.min(self.len()) as u64;
        let pairs = 8 * positives * (1 + u64::from(negatives)) + 4 * self.max_seeds(batch_size);
        let rows = self.degrees.num_nodes().min(if exclude { 2 * positives } else { 0 });
        let edges = self.degrees.edges(rows, Fanout::All);
        let topology = &self.dataset.topology;
        let per_edge = 4 * u64::from(topology.weights().is_some()) + kind.extra(topology).per_edge;
        pairs + Without::bytes_of(rows, edges, per_edge) + Without::end_bytes(kind.typed.as_deref(), rows)
    }
}

/// Buffers of a worker.
#[derive(Debug, Default)]
pub(crate) struct PairDraws {
    batch: PairBatch,
    order: Option<Order>,
    /// Has the pairs and their targets alone.
    host: HostBatch,
}

/// The pairs of a mini-batch in device memory, with their labels and targets, where they have any, and the number of their ends.
#[derive(Debug)]
pub(crate) struct DrawnPairs {
    pub(crate) pairs: CudaPairs,
    pub(crate) labels: Buffer<i32>,
    pub(crate) targets: CudaTargets,
    pub(crate) num_seeds: u32,
}

/// What a mini-batch of pairs has in the memory of its stream.
#[derive(Debug)]
pub(crate) struct PairScratch {
    /// The seeds: the ends of its pairs.
    pub(crate) seeds: Buffer<u32>,
    /// The rows that lose edges.
    pub(crate) without: Without,
}

impl PairScratch {
    pub(crate) fn empty(graph: &Graph, stream: &Stream) -> Result<Self> {
        let has = [graph.weights.is_some(), graph.sub_row_ends.is_some(), graph.edge_times.is_some()];
        Ok(Self { seeds: Buffer::new(stream, 0)?, without: Without::empty(has, stream)? })
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        self.seeds.num_bytes() + self.without.num_bytes()
    }
}

impl PairDraws {
    /// Draws the pairs of a share of a mini-batch, and uploads them; and to `scratch` their ends and the rows that lose edges.
    pub(crate) fn draw(
        &mut self,
        (source, graph, typed): (&PairSource, &Graph, Option<&Typed>),
        (stream, scratch): (&Stream, &mut PairScratch),
        id: BatchId,
        share: Range<usize>,
    ) -> Result<DrawnPairs> {
        let Self { batch, order, host } = self;
        host.id = id;
        let mut rows = HostRows::new(&source.dataset.topology, source.sorted);
        batch.draw(&source.pairs, &source.epochs, share, order, &mut rows, host)?;
        let drawn = host.pairs.as_ref().expect("they were drawn");
        let ends = Buffer::of(stream, drawn.ends.as_flattened())?;
        let pairs = CudaPairs { num_positives: drawn.num_positives, ends, edge_types: drawn.edge_types.clone() };
        let HostBatch { labels, targets, .. } = &*host;
        let labels = Buffer::of(stream, labels)?;
        let targets = CudaTargets { width: targets.width, values: Buffer::of(stream, &targets.values)? };
        scratch.seeds.replace(stream, batch.seeds())?;
        scratch.without.set((&source.dataset, typed), graph.num_parts(), batch.excluded(), stream)?;
        Ok(DrawnPairs { pairs, num_seeds: scratch.seeds.len() as u32, labels, targets })
    }
}
