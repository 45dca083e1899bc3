//! A worker: samples one mini-batch after another in the same buffers.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use morphgl_graph_store::Topology;
use morphgl_registry::{BatchId, BatchingWorker, Block, Error, Handle, HostBatch, MiniBatch, Result};
use morphgl_sampler_core::{
    Hop, HopSampler, Order, check_threads, gather_features, host_batch, sample_hops, set_labels,
};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::Shared;
use crate::expand::RowPicker;
use crate::frontier::Frontier;
use crate::stages::{Buffers, Stages};

/// One worker, with buffers of its own.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    /// The threads of a mini-batch, if there are several.
    pool: Option<ThreadPool>,
    order: Option<Order>,
    frontier: Frontier,
    /// One a thread.
    buffers: Vec<Buffers>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, threads: usize) -> Result<Self> {
        check_threads(threads)?;
        let pool = (threads > 1).then(|| {
            let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("batching-{i}"));
            builder.build().map_err(|e| Error::failed("threads of a batching worker", e))
        });
        let frontier = Frontier::new(&shared.dataset.topology, Arc::clone(&shared.expected));
        let buffers = (0..threads).map(|_| Buffers::default()).collect();
        Ok(Self { shared, pool: pool.transpose()?, order: None, frontier, buffers })
    }
}

impl BatchingWorker for Worker {
    fn prepare_share(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let Self { shared, pool, order, frontier, buffers } = self;
        let seeds = shared.epochs.seeds(id, share, order)?;
        let mut batch = HostBatch { id, ..host_batch(recycled) };
        match pool {
            Some(pool) => pool.install(|| prepare(shared, frontier, buffers, seeds, &mut batch)),
            None => prepare(shared, frontier, buffers, seeds, &mut batch),
        }?;
        Ok(Handle::ready(MiniBatch::Host(batch), start.elapsed()))
    }
}

/// Samples the mini-batch `batch.id` of `seeds`; reuses the memory of `batch`, not its content.
fn prepare(
    shared: &Shared,
    frontier: &mut Frontier,
    buffers: &mut [Buffers],
    seeds: &[u32],
    batch: &mut HostBatch,
) -> Result<()> {
    let dataset = &*shared.dataset;
    let parallel = buffers.len() > 1;
    let mut sampler = Sampler { topology: &dataset.topology, frontier, buffers };
    sample_hops(&mut sampler, &shared.settings, dataset.topology.weights().map(|w| &**w), seeds, batch)?;
    if let Some(sums) = &shared.weight_sums {
        batch.degrees.iter_mut().zip(&batch.input_nodes).for_each(|(degree, &v)| *degree = sums[v as usize]);
    }
    set_labels(dataset.labels.as_deref(), batch);
    gather_features(dataset.features.as_ref().filter(|_| shared.gather), parallel, batch);
    Ok(())
}

/// Hops of one mini-batch, by the software pipeline of [`Stages`].
struct Sampler<'w> {
    topology: &'w Topology,
    frontier: &'w mut Frontier,
    buffers: &'w mut [Buffers],
}

impl HopSampler for Sampler<'_> {
    fn start(&mut self, seeds: &[u32], nodes: Vec<u32>, degrees: Vec<f32>) -> Result<()> {
        self.frontier.start(nodes, degrees, seeds, self.topology);
        Ok(())
    }

    fn num_nodes(&self) -> usize {
        self.frontier.len()
    }

    fn expand(&mut self, hop: Hop<'_>, block: &mut Block) -> Result<()> {
        let Self { topology, frontier, buffers } = self;
        let Hop { picks, first, num_dst, is_last } = hop;
        picks.begin(block, num_dst, frontier.rows()[first..].iter().map(|row| row.range()))?;
        // Nodes found by the last hop are not expanded.
        let locate = !is_last || !frontier.knows_degrees();
        let rows = RowPicker { indices: topology.indices(), picks };
        Stages { rows, topology, first, locate }.run(frontier, buffers, block);
        Ok(())
    }

    fn finish(&mut self) -> Result<(Vec<u32>, Vec<f32>)> {
        Ok(self.frontier.finish())
    }
}
