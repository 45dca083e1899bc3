//! Pairs of nodes as seeds: the host draws them.

use std::ops::Range;
use std::sync::Arc;

use morphgl_cuda::{Buffer, CudaPairs, Stream};
use morphgl_graph_store::Dataset;
use morphgl_registry::{BatchId, BatchingContext, HostBatch, PairSeeds, Result};
use morphgl_sampler_core::{Epochs, HostRows, Order, PairBatch, Pairs};

use crate::graph::Graph;
use crate::without::Without;

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
        let without = (excluded.num_rows() > 0)
            .then(|| Without::new(&source.dataset, graph.num_parts(), excluded, stream))
            .transpose()?;
        Ok((DrawnPairs { pairs, seeds: Buffer::of(stream, batch.seeds())? }, without))
    }
}
