//! Operator and worker of a sampler of a graph in host memory, generic over the sampling itself.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use morphgl_graph_store::{Dataset, Topology};
use morphgl_platform::PagePool;
use morphgl_registry::{
    BatchId, BatchingContext, BatchingWorker, Error, Handle, HostBatch, MiniBatch, Result, SamplerSettings, SeedSet,
};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{
    Epochs, Excluded, HostRows, Order, PairBatch, Pairs, SeedBatch, Seeds, check_host, check_settings, check_threads,
    gather_features, host_batch, set_targets, weight_sum,
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
    /// The pairs, where the seeds are pairs.
    pairs: Option<Pairs>,
    /// Whether the rows of the graph are in ascending order; not determined unless the seeds are pairs.
    sorted: bool,
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
    /// A place other than the host, and what [`check_settings`] and [`Pairs::new`] refuse.
    ///
    /// # Complexity
    ///
    /// O(nodes), with edge weights or pairs O(nodes + edges); with edge weights four bytes per node, and what [`Pairs::new`] takes.
    pub fn new(context: &BatchingContext) -> Result<Self> {
        let BatchingContext { dataset, seeds, settings, gather, place, .. } = context;
        check_host(place)?;
        check_settings(&dataset.topology, seeds, settings)?;
        let pairs = seeds.pairs().map(|pairs| Pairs::new(&dataset.topology, pairs, settings.seed)).transpose()?;
        Ok(Self {
            dataset: Arc::clone(dataset),
            settings: settings.clone(),
            epochs: Epochs::new(seeds, settings),
            sorted: pairs.is_some() && HostRows::check_sorted(&dataset.topology),
            pairs,
            gather: *gather && dataset.features.is_some(),
            weight_sums: weight_sums(&dataset.topology),
            pages: PagePool::new(),
        })
    }
}

impl HostBatching {
    /// Checks that nodes may be given to mini-batches.
    ///
    /// # Errors
    ///
    /// The seeds are pairs: rows that are given were computed with the edges that mini-batches of pairs leave out.
    pub fn check_given(&self) -> Result<()> {
        check_given(self.epochs.seed_set())
    }

    /// Replaces the degrees of nodes by the sums of their edges' weights, where the graph has weights.
    pub fn weigh(&self, degrees: &mut [f32], nodes: &[u32]) {
        if let Some(sums) = &self.weight_sums {
            degrees.iter_mut().zip(nodes).for_each(|(degree, &v)| *degree = sums[v as usize]);
        }
    }
}

/// Checks that nodes may be given to mini-batches of such seeds.
///
/// # Errors
///
/// Pairs: rows that are given were computed with the edges that mini-batches of pairs leave out.
pub fn check_given(seeds: &SeedSet) -> Result<()> {
    if seeds.pairs().is_none() {
        return Ok(());
    }
    let cure = "train without a layer split";
    Err(Error::setting("pairs", format!("rows that are given have read the edges that pairs leave out; {cure}")))
}

/// Sum of each node's edge weights.
fn weight_sums(topology: &Topology) -> Option<Vec<f32>> {
    let weights: &[f32] = topology.weights()?;
    let sum = |row: &[u64]| weight_sum(&weights[row[0] as usize..row[1] as usize]);
    Some(topology.indptr().par_windows(2).map(sum).collect())
}

/// The sampling of one worker.
pub trait SampleSeeds: fmt::Debug + Send {
    /// Samples the mini-batch `batch.id` of `seeds` from the graph without the edges `excluded`, of which there are some for pairs
    /// alone: sets all but pairs, labels, targets and features. Degrees may be those of the whole graph, without weights. The memory of
    /// `batch` is reused, its content is not. Seeds have times if [`check_settings`] allows rows of a task by the sampler's kind. Called on a thread of the worker's pool, where it has one.
    ///
    /// # Errors
    ///
    /// A mini-batch with more edges than 32-bit offsets can address.
    fn sample(
        &mut self,
        host: &HostBatching,
        seeds: Seeds<'_>,
        excluded: &Excluded,
        batch: &mut HostBatch,
    ) -> Result<()>;
}

/// One worker, with buffers of its own.
#[derive(Debug)]
pub struct HostWorker<S> {
    host: Arc<HostBatching>,
    /// The threads of a mini-batch, if there are several.
    pool: Option<ThreadPool>,
    order: Option<Order>,
    seeds: SeedBatch,
    pairs: PairBatch,
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
        let (seeds, pairs) = Default::default();
        Ok(Self { host, pool: pool.transpose()?, order: None, seeds, pairs, sampler })
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
        let Self { host, pool, order, seeds, pairs, sampler } = self;
        let mut batch = HostBatch { id, ..host_batch(recycled) };
        let seeds = match &host.pairs {
            None => {
                batch.pairs = None;
                seeds.of(host.epochs.seed_set(), host.epochs.seeds(id, share, order)?)
            }
            Some(shared) => {
                let mut rows = HostRows::new(&host.dataset.topology, host.sorted);
                pairs.draw(shared, &host.epochs, share, order, &mut rows, &mut batch)?;
                Seeds::of_nodes(pairs.seeds())
            }
        };
        let excluded = pairs.excluded();
        match pool {
            Some(pool) => pool.install(|| prepare(host, sampler, true, seeds, excluded, &mut batch)),
            None => prepare(host, sampler, false, seeds, excluded, &mut batch),
        }?;
        Ok(Handle::ready(MiniBatch::Host(batch), start.elapsed()))
    }
}

fn prepare(
    host: &HostBatching,
    sampler: &mut impl SampleSeeds,
    parallel: bool,
    seeds: Seeds<'_>,
    excluded: &Excluded,
    batch: &mut HostBatch,
) -> Result<()> {
    sampler.sample(host, seeds, excluded, batch)?;
    host.weigh(&mut batch.degrees, &batch.input_nodes);
    let weights = host.dataset.topology.weights().map(|weights| &**weights);
    excluded.set_degrees(weights, &batch.input_nodes, batch.trees.is_some(), &mut batch.degrees);
    if let Some(given) = &mut batch.given {
        host.weigh(&mut given.degrees, &given.nodes);
    }
    let are_rows = host.epochs.seed_set().rows().is_some();
    set_targets(&host.dataset, (seeds.examples, are_rows), batch);
    let matrix = host.dataset.features.as_ref().filter(|_| host.gather);
    gather_features(matrix, &host.pages, parallel, batch);
    Ok(())
}
