//! The traits of the three phases, and the contexts operators are built from.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use morphgl_graph_store::Dataset;
use serde::{Deserialize, Serialize};

use crate::{BatchId, CacheCurve, Handle, HostBatch, MiniBatch, Place, Result, SamplerSettings, SeedSet};

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

    /// The operator's cache in host memory, whose size the planner then chooses; `None` without one. It is asked after workers
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

/// Sums over seeds, so that unequal shares combine exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Sum of the seeds' losses: cross-entropies, or what a model of the operator's own minimizes.
    pub loss_sum: f64,
    /// Seeds whose class was predicted.
    pub correct: u64,
    /// Seeds with a label.
    pub count: u64,
}

impl Score {
    /// Mean loss per seed; NaN without seeds.
    pub fn loss(&self) -> f64 {
        self.loss_sum / self.count as f64
    }

    /// Fraction of the seeds whose class was predicted; NaN without seeds.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.count as f64
    }

    /// Scores the rows of `logits` (`[nodes, num_classes]`) against `labels`; a label of -1 does not count.
    ///
    /// # Panics
    ///
    /// When there are not `num_classes` logits per label.
    pub fn of(logits: &[f32], labels: &[i32], num_classes: usize) -> Self {
        assert_eq!(logits.len(), labels.len() * num_classes, "logits and labels x classes");
        let mut score = Self::default();
        for (row, &label) in logits.chunks_exact(num_classes.max(1)).zip(labels).filter(|(_, l)| **l >= 0) {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let log_sum = row.iter().map(|&x| f64::from(x - max).exp()).sum::<f64>().ln() + f64::from(max);
            // The first of equal logits is the prediction, as in numpy and torch.
            let best = row.iter().position(|&x| x == max);
            score.loss_sum += log_sum - f64::from(row[label as usize]);
            score.correct += u64::from(best == Some(label as usize));
            score.count += 1;
        }
        score
    }
}

impl std::ops::AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.loss_sum += other.loss_sum;
        self.correct += other.correct;
        self.count += other.count;
    }
}

/// A named tensor in host memory.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedTensor {
    /// Its name in `morphgl-model-core`.
    pub name: String,
    /// Lengths of its dimensions, slowest first.
    pub shape: Vec<usize>,
    /// Its elements, row after row.
    pub values: Vec<f32>,
}

/// Gradients accumulated since the last step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gradients {
    /// Sum of the seeds' gradients, one tensor per parameter.
    pub tensors: Vec<NamedTensor>,
    /// Seeds summed over.
    pub count: u64,
}

impl Gradients {
    /// Calls the gradient-ready hook with all elements, tensor by tensor, in the order of
    /// [`Training::accumulate_last`].
    pub fn hand_over(&self, complete: GradientReady<'_>) {
        let mut first = self.tensors.iter().map(|tensor| tensor.values.len()).sum();
        for tensor in self.tensors.iter().rev() {
            first -= tensor.values.len();
            complete(first, &tensor.values);
        }
    }
}

/// Gradient-ready hook: called with gradients that are final until the next step. `(first, values)` are the elements
/// `first..first + values.len()` of all gradients, tensor after tensor in the order of [`Training::gradients`].
pub type GradientReady<'a> = &'a mut (dyn FnMut(usize, &[f32]) + Send + 'a);

/// The processes that infer together ([`Training::infer_together`]).
pub trait GatherRows: fmt::Debug + Send {
    /// This process's number, from 0.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn size(&self) -> usize;

    /// Fills in the parts of `rows` that other processes have computed. Part `i`, the elements `parts[i]`, is that of process `i`;
    /// each process has computed its own. All make the call, with the same parts.
    ///
    /// # Errors
    ///
    /// A process has left, does not come, or has other parts.
    fn gather(&mut self, rows: &mut [f32], parts: &[Range<usize>]) -> Result<()>;
}

/// Rows of a single process: nothing is gathered.
#[derive(Debug, Clone, Copy)]
pub struct SingleProcess;

impl GatherRows for SingleProcess {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn gather(&mut self, _rows: &mut [f32], _parts: &[Range<usize>]) -> Result<()> {
        Ok(())
    }
}

/// Phase Training: owns model and optimizer at its place.
///
/// Accumulate and step are separate so that several trainers can share one step (unified-cpu-gpu-protocol §4).
pub trait Training: fmt::Debug + Send {
    /// Sets the host threads the operator may use from now on.
    fn set_threads(&mut self, threads: usize) -> Result<()>;

    /// Adds the gradients of a mini-batch, summed over its seeds, to those accumulated; returns its score in training mode.
    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>>;

    /// As [`Training::accumulate`], for the last mini-batch before a step. The gradient-ready hook `complete` is called
    /// with every gradient as soon as it is final, so that a group all-reduces those of the last layers while backward
    /// goes on: once each, from the last element to the first, every call up to where the one before began. After an
    /// error it may have been called with some.
    ///
    /// An operator whose backward ends with all gradients at once needs no implementation of its own.
    fn accumulate_last(&mut self, batch: &MiniBatch, complete: GradientReady<'_>) -> Result<Handle<Score>> {
        let (score, measured) = self.accumulate(batch)?.measured()?;
        self.gradients()?.hand_over(complete);
        Ok(Handle::ready(score, measured.busy).counting(measured.counters))
    }

    /// Copies out the accumulated gradients.
    fn gradients(&mut self) -> Result<Gradients>;

    /// Replaces the accumulated gradients.
    fn set_gradients(&mut self, gradients: &Gradients) -> Result<()>;

    /// Updates the parameters with the accumulated gradients divided by their count, and clears them.
    ///
    /// # Errors
    ///
    /// Nothing was accumulated, or a parameter is no longer a number.
    ///
    /// It may be called while a mini-batch is pending; one that fails later does not contribute to the step.
    fn step(&mut self) -> Result<Handle<()>>;

    /// Trains on one mini-batch: accumulates and steps. Both are submitted to the device before either is waited for, so that it
    /// is never idle between them. The handle has the score, and the duration of both on the operator's resource.
    ///
    /// The caller keeps the mini-batch until the handle was waited for. Up to [`Training::queue_depth`] mini-batches may be
    /// pending; they are trained on in order.
    ///
    /// # Errors
    ///
    /// As [`Training::accumulate`] and [`Training::step`]; of two the first.
    fn train(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let accumulating = self.accumulate(batch)?;
        let stepping = self.step();
        Ok(accumulating.then(stepping))
    }

    /// Maximum number of pending mini-batches of [`Training::train`]. With two, a device has the next step in its stream when a
    /// step ends; with one it idles until the host submits the next. One is right where the host itself computes.
    fn queue_depth(&self) -> usize {
        1
    }

    /// Copies out the parameters, in the order of `morphgl-model-core`.
    fn parameters(&self) -> Result<Vec<NamedTensor>>;

    /// Replaces the parameters by name.
    ///
    /// # Errors
    ///
    /// A name or shape that is not the model's, or one that is missing.
    fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()>;

    /// Copies out the optimizer's state.
    fn optimizer_state(&self) -> Result<Vec<NamedTensor>>;

    /// Replaces the optimizer's state.
    fn set_optimizer_state(&mut self, state: &[NamedTensor]) -> Result<()>;

    /// Appends the first layer's output in evaluation mode, before dropout: a row for each destination node of the mini-batch's only
    /// block, as [`GivenRows`](crate::GivenRows) have it. Features are read from the dataset. `None` where the operator does not
    /// compute a layer alone.
    fn first_layer(&mut self, batch: &HostBatch, rows: &mut Vec<f32>) -> Option<Result<()>> {
        let _ = (batch, rows);
        None
    }

    /// Scores a mini-batch in evaluation mode (no dropout): sampled evaluation.
    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>>;

    /// Scores rows of logits (`[nodes, num_classes]`, of [`Training::infer`]) against `labels`, by the loss that is trained; a label of
    /// -1 does not count.
    ///
    /// # Errors
    ///
    /// The loss cannot be computed.
    fn score_logits(&mut self, logits: &[f32], labels: &[i32], num_classes: usize) -> Result<Score> {
        Ok(Score::of(logits, labels, num_classes))
    }

    /// Logits of `nodes` with all their neighbours, `[nodes, num_classes]`: layer by layer over all nodes, never by recursion.
    ///
    /// # Complexity
    ///
    /// O(layers · (nodes · width² + edges · width)) time, two node-by-width matrices of memory.
    fn infer(&mut self, nodes: &[u32]) -> Result<Vec<f32>>;

    /// As [`Training::infer`], together with the same operator of other processes, which all make the call with the same model,
    /// dataset and nodes: each computes a part of the rows of every layer, and all gather the others'. All have the logits of the
    /// process that computed them, which differ from those of one process in rounding at most.
    ///
    /// An operator without an implementation of its own computes all rows itself, in each process, and gathers nothing.
    ///
    /// # Errors
    ///
    /// As [`Training::infer`] and [`GatherRows::gather`].
    fn infer_together(&mut self, nodes: &[u32], peers: &mut dyn GatherRows) -> Result<Vec<f32>> {
        let _ = peers;
        self.infer(nodes)
    }

    /// Peak bytes of host memory of [`Training::infer`], besides the operator's own; `None` where not known.
    fn infer_bytes(&self) -> Option<u64> {
        None
    }
}
