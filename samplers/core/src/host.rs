//! Operator and worker of a sampler of a graph in host memory, generic over the sampling itself.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use morphgl_graph_store::{Dataset, Topology};
use morphgl_platform::PagePool;
use morphgl_registry::{
    BatchId, BatchingContext, BatchingWorker, Error, Handle, HostBatch, MiniBatch, Result, SamplerSettings,
};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{
    Epochs, Order, check_host, check_settings, check_threads, gather_features, host_batch, set_targets, weight_sum,
};

/// State of an operator that all its workers read.
#[derive(Debug)]
pub struct HostBatching {
    /// The graph.
    pub dataset: Arc<Dataset>,
    /// Sampler settings.
    pub settings: SamplerSettings,
    /// The seeds of every epoch.
    pub epochs: Epochs,
    gather: bool,
    /// Sum of each node's edge weights, where the graph has weights.
    weight_sums: Option<Vec<f32>>,
    /// Memory of the features of mini-batches that were dropped after their transfer to a device.
    pages: PagePool,
}

impl HostBatching {
    /// State of an operator for this context, after the checks that all samplers of a graph in host memory share. The
    /// operator checks its own options.
    ///
    /// # Errors
    ///
    /// A place other than the host, and what [`check_settings`] refuses.
    ///
    /// # Complexity
    ///
    /// O(nodes), with edge weights O(nodes + edges) and four bytes per node.
    pub fn new(context: &BatchingContext) -> Result<Self> {
        let BatchingContext { dataset, seeds, settings, gather, place, .. } = context;
        check_host(place)?;
        check_settings(&dataset.topology, seeds, settings)?;
        Ok(Self {
            dataset: Arc::clone(dataset),
            settings: settings.clone(),
            epochs: Epochs::new(seeds, settings),
            gather: *gather && dataset.features.is_some(),
            weight_sums: weight_sums(&dataset.topology),
            pages: PagePool::new(),
        })
    }
}

impl HostBatching {
    /// Replaces the degrees of nodes by the sums of their edges' weights, where the graph has weights.
    pub fn weigh(&self, degrees: &mut [f32], nodes: &[u32]) {
        if let Some(sums) = &self.weight_sums {
            degrees.iter_mut().zip(nodes).for_each(|(degree, &v)| *degree = sums[v as usize]);
        }
    }
}

/// Sum of each node's edge weights.
fn weight_sums(topology: &Topology) -> Option<Vec<f32>> {
    let weights: &[f32] = topology.weights()?;
    let sum = |row: &[u64]| weight_sum(&weights[row[0] as usize..row[1] as usize]);
    Some(topology.indptr().par_windows(2).map(sum).collect())
}

/// The sampling of one worker.
pub trait SampleSeeds: fmt::Debug + Send {
    /// Samples the mini-batch `batch.id` of `seeds`: sets all but labels, targets and features, and weighted degrees. The memory of
    /// `batch` is reused, its content is not. Called on a thread of the worker's pool, where it has one.
    ///
    /// # Errors
    ///
    /// A mini-batch with more edges than 32-bit offsets can address.
    fn sample(&mut self, host: &HostBatching, seeds: &[u32], batch: &mut HostBatch) -> Result<()>;
}

/// One worker, with buffers of its own.
#[derive(Debug)]
pub struct HostWorker<S> {
    host: Arc<HostBatching>,
    /// The threads of a mini-batch, if there are several.
    pool: Option<ThreadPool>,
    order: Option<Order>,
    sampler: S,
}

impl<S: SampleSeeds> HostWorker<S> {
    /// A worker that spreads each mini-batch over so many threads.
    ///
    /// # Errors
    ///
    /// No thread, or threads that cannot be started.
    pub fn new(host: Arc<HostBatching>, threads: usize, sampler: S) -> Result<Self> {
        check_threads(threads)?;
        let pool = (threads > 1).then(|| {
            let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("batching-{i}"));
            builder.build().map_err(|e| Error::failed("threads of a batching worker", e))
        });
        Ok(Self { host, pool: pool.transpose()?, order: None, sampler })
    }
}

impl<S: SampleSeeds> BatchingWorker for HostWorker<S> {
    fn prepare_share(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let Self { host, pool, order, sampler } = self;
        let seeds = host.epochs.seeds(id, share, order)?;
        let mut batch = HostBatch { id, ..host_batch(recycled) };
        match pool {
            Some(pool) => pool.install(|| prepare(host, sampler, true, seeds, &mut batch)),
            None => prepare(host, sampler, false, seeds, &mut batch),
        }?;
        Ok(Handle::ready(MiniBatch::Host(batch), start.elapsed()))
    }
}

fn prepare(
    host: &HostBatching,
    sampler: &mut impl SampleSeeds,
    parallel: bool,
    seeds: &[u32],
    batch: &mut HostBatch,
) -> Result<()> {
    sampler.sample(host, seeds, batch)?;
    host.weigh(&mut batch.degrees, &batch.input_nodes);
    if let Some(given) = &mut batch.given {
        host.weigh(&mut given.degrees, &given.nodes);
    }
    set_targets(&host.dataset, batch);
    let matrix = host.dataset.features.as_ref().filter(|_| host.gather);
    gather_features(matrix, &host.pages, parallel, batch);
    Ok(())
}
