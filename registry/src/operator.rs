//! The traits of batching and transferring, and the contexts operators are built from.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use morphgl_graph_store::Dataset;

use crate::{BatchId, CacheCurve, GivenTable, Handle, HostBatch, MiniBatch, Place, Result, SamplerSettings, SeedSet};

/// Context of a batching operator.
#[derive(Debug, Clone)]
pub struct BatchingContext {
    /// The graph.
    pub dataset: Arc<Dataset>,
    /// The nodes to make mini-batches of.
    pub seeds: SeedSet,
    /// Sampler settings.
    pub settings: SamplerSettings,
    /// Whether batching gathers the features, or leaves them to transferring.
    pub gather: bool,
    /// Place of the operator and of its mini-batches.
    pub place: Place,
    /// Options of this operator alone, `null` without any.
    pub options: serde_json::Value,
}

impl BatchingContext {
    /// Mini-batches with features in host memory, without options of the operator. A struct expression changes what differs:
    /// `BatchingContext { gather: false, ..BatchingContext::new(dataset, seeds, settings) }`.
    pub fn new(dataset: Arc<Dataset>, seeds: SeedSet, settings: SamplerSettings) -> Self {
        Self { dataset, seeds, settings, gather: true, place: Place::Host, options: serde_json::Value::Null }
    }
}

/// Context of a transferring operator.
#[derive(Debug, Clone)]
pub struct TransferringContext {
    /// The graph, for features that mini-batches lack.
    pub dataset: Arc<Dataset>,
    /// Where mini-batches come from.
    pub from: Place,
    /// Where they go.
    pub to: Place,
    /// Whether the features a mini-batch lacks are filled in.
    pub gather: bool,
    /// Seeds and sampler settings of the mini-batches, by which caches rank rows; `None` where they are not known.
    pub sampled: Option<(SeedSet, SamplerSettings)>,
    /// Options of this operator alone, `null` without any.
    pub options: serde_json::Value,
}

impl TransferringContext {
    /// Fills in missing features, without options of the operator and without settings that a cache could rank rows by.
    pub fn new(dataset: Arc<Dataset>, from: Place, to: Place) -> Self {
        Self { dataset, from, to, gather: true, sampled: None, options: serde_json::Value::Null }
    }
}

/// Context of a training operator.
#[derive(Debug, Clone)]
pub struct TrainingContext {
    /// The graph, for full-neighbour inference.
    pub dataset: Arc<Dataset>,
    /// Model and optimizer, as `morphgl-model-core` reads them.
    pub spec: serde_json::Value,
    /// Seed of initial parameters and of dropout.
    pub seed: u64,
    /// Host threads the operator may use.
    pub threads: usize,
    /// Where it trains.
    pub place: Place,
    /// Options of this operator alone, `null` without any.
    pub options: serde_json::Value,
}

impl TrainingContext {
    /// Trains on one thread of the host with seed 0, without options of the operator.
    pub fn new(dataset: Arc<Dataset>, spec: serde_json::Value) -> Self {
        Self { dataset, spec, seed: 0, threads: 1, place: Place::Host, options: serde_json::Value::Null }
    }
}

/// Phase Batching: turns (epoch, batch index) into a mini-batch at its place.
///
/// A mini-batch is a function of the context and the [`BatchId`]: the same on every thread and in every run, and from every
/// operator whose description claims to be interchangeable.
pub trait Batching: fmt::Debug + Send + Sync {
    /// Mini-batches of one epoch.
    fn num_batches(&self) -> usize;

    /// The last epoch that it makes mini-batches of. Default `u32::MAX`.
    fn last_epoch(&self) -> u32 {
        u32::MAX
    }

    /// Makes a worker with its own buffers, which spreads each mini-batch over `threads` threads.
    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>>;

    /// A worker whose mini-batches leave `given` nodes unexpanded; `None` where the operator makes none. Only nodes that the last
    /// hop but one finds are given: those of the hops before are computed.
    fn worker_with_given(
        &self,
        threads: usize,
        given: &Arc<dyn GivenNodes>,
    ) -> Option<Result<Box<dyn BatchingWorker>>> {
        let _ = (threads, given);
        None
    }

    /// The operator's cache in the memory where it samples, whose size the planner then chooses; `None` without one. It is asked after workers
    /// have made some mini-batches, which may tell what sizes save.
    fn cache(&self) -> Option<CacheCurve> {
        None
    }
}

/// Which nodes' rows of the first layer's output are given, so that samplers do not expand them ([`GivenRows`](crate::GivenRows)).
pub trait GivenNodes: fmt::Debug + Send + Sync {
    /// Marks those of `nodes` whose rows a mini-batch is given: `marks` gets one entry per node. May wait until they are chosen.
    ///
    /// # Errors
    ///
    /// They cannot be chosen.
    fn mark(&self, id: BatchId, nodes: &[u32], marks: &mut Vec<bool>) -> Result<()>;

    /// All nodes whose rows a mini-batch may be given, in ascending order, for samplers that look them up where they are: mini-batches that
    /// have the same share one list, which is uploaded once. Waits as [`Self::mark`] does.
    ///
    /// # Errors
    ///
    /// They cannot be chosen.
    fn list(&self, id: BatchId) -> Result<Arc<[u32]>>;
}

/// One worker of a batching operator.
pub trait BatchingWorker: Send {
    /// Prepares one trainer's share of a mini-batch: the seeds at positions `seeds` of it, with the draws they have in the
    /// whole; positions past its last seed are left out. Uses the buffers of `recycled` where possible.
    ///
    /// # Errors
    ///
    /// `id.index` is not below `num_batches`, the share has no seed, or the operator's own failures.
    fn prepare_share(
        &mut self,
        id: BatchId,
        seeds: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>>;

    /// Prepares a whole mini-batch, as [`Self::prepare_share`] does.
    fn prepare(&mut self, id: BatchId, recycled: Option<MiniBatch>) -> Result<Handle<MiniBatch>> {
        self.prepare_share(id, 0..usize::MAX, recycled)
    }

    /// Peak bytes at the operator's place besides mini-batches: scratch, and resident data that it reads. The memory governor
    /// plans with it; for `None` it estimates buffers in host memory, and nothing on a device.
    fn num_bytes(&self) -> Option<u64> {
        None
    }
}

/// Phase Transferring: moves a mini-batch to a place and fills in missing features.
pub trait Transferring: fmt::Debug + Send {
    /// Moves one mini-batch.
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>>;

    /// Moves one mini-batch, and fills in the rows of its given nodes, of which `table` has all. Unless an operator keeps tables where it
    /// moves mini-batches to, rows are filled in where a mini-batch is in host memory, and moved with it.
    ///
    /// # Errors
    ///
    /// A mini-batch elsewhere; a node without a row; and as [`Self::transfer`].
    fn transfer_with_given(&mut self, mut batch: MiniBatch, table: &dyn GivenTable) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        if let MiniBatch::Host(HostBatch { given: Some(given), .. }) = &mut batch {
            table.fill(given)?;
        } else {
            batch.host()?;
        }
        let filling = start.elapsed();
        Ok(self.transfer(batch)?.then(Ok(Handle::ready((), filling))))
    }

    /// The operator's cache in the memory of the device that it moves mini-batches to, whose size the planner then chooses;
    /// `None` without one, or where its size cannot be chosen. It is asked after some mini-batches, which may tell what sizes save.
    fn cache(&self) -> Option<CacheCurve> {
        None
    }

    /// From now on that cache takes at most `bytes`, all that it needs included. Operators that share it resize the same one.
    ///
    /// # Errors
    ///
    /// It cannot be filled.
    fn resize_cache(&mut self, bytes: u64) -> Result<()> {
        let _ = bytes;
        Ok(())
    }
}
