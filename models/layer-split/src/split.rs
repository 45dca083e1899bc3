//! The routes of one trainer or of a group, and the thread that computes the first layer beside them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use morphgl_embedding_cache::EmbeddingCache;
use morphgl_graph_store::Dataset;
use morphgl_registry::{
    BatchId, Error, Operators, Result, SamplerSettings, SeedSet, Training, TrainingOperator, panic_message,
};
use morphgl_row_cache::NodeMap;

use crate::compute::FirstLayer;
use crate::hot_ratio::HotRatio;
use crate::wrap::{self, GivenRowSource, Hot, Message, Snapshot, SplitTraining};
use crate::{Follow, HotQueue, SplitStatistics, SuperBatchStatistics, SuperBatches};

/// How training is split.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The super-batches.
    pub super_batches: SuperBatches,
    /// Fraction of a super-batch's nodes of the first layer that are computed beside training, the hottest first: 0 to
    /// 1.
    pub hot_ratio: f64,
    /// How `hot_ratio` is adjusted to measured times while training; `None` keeps it.
    pub follow: Option<Follow>,
    /// Width of the first layer's output.
    pub width: usize,
    /// Widths of what its weights multiply, where given rows have their part in its gradient.
    pub input_widths: Vec<usize>,
    /// Threads that choose hot nodes and compute their rows.
    pub threads: usize,
    /// Whether the training operator learns: its parameters are the model's. Else, as on a simulated device, rows are computed
    /// with the first layer's initial ones.
    pub learns: bool,
    /// The mini-batch that training begins with. Its super-batch has no given rows, unless training is resumed.
    pub start: BatchId,
    /// Whether training goes on from a checkpoint: the optimizer's state is set before the first mini-batch.
    pub resumed: bool,
}

impl Settings {
    /// Widths of the matrices of hot nodes: of the first layer's output, then of what its weights multiply.
    pub fn widths(&self) -> Vec<usize> {
        [&[self.width], &self.input_widths[..]].concat()
    }

    /// Empty matrices.
    pub(crate) fn matrices(&self) -> Vec<Vec<f32>> {
        vec![Vec::new(); 1 + self.input_widths.len()]
    }
}

/// Layer-split training of one trainer, or of the trainers of a group.
#[derive(Debug)]
pub struct LayerSplit {
    /// The wrapped operators.
    pub operators: Operators,
    /// What the first layer's thread has done.
    pub statistics: SplitStatistics,
    /// The thread; it ends when the first training operator is dropped.
    pub thread: JoinHandle<()>,
}

impl LayerSplit {
    /// Splits the training of `operators`. `first_layer` computes hot rows, on threads of its own.
    ///
    /// Several training operators are trainers of a group, which take every step together (`morphgl_group::join`): rows are computed
    /// once for all, by the parameters of the first, whose optimizer's state alone has the snapshots.
    ///
    /// # Errors
    ///
    /// No training operator; sampling other than by neighbours of two hops or more; a hot ratio that is none.
    pub fn new(
        operators: Operators,
        first_layer: Box<dyn Training>,
        (dataset, seeds, sampler): (&Arc<Dataset>, &SeedSet, &SamplerSettings),
        settings: Settings,
    ) -> Result<Self> {
        let Operators { routes, trainers } = operators;
        if trainers.is_empty() {
            return Err(Error::setting("layer split", "no training operator; give one"));
        }
        let Settings { super_batches, hot_ratio, .. } = settings;
        let most = settings.follow.map_or(1.0, |follow| follow.most.min(1.0));
        if !(0.0..=most).contains(&hot_ratio) {
            return Err(Error::setting("hot ratio", format!("it is {hot_ratio}; give a number from 0 to {most}")));
        }
        let steps = super_batches.position(settings.start);
        let fixed = (!settings.learns).then(|| first_layer.parameters()).transpose()?;
        let cache = Arc::new(EmbeddingCache::new(settings.widths(), super_batches.bound()));
        let (messages, received) = channel();
        let statistics = SplitStatistics::default();
        let own = FirstLayerThread {
            cache: Arc::clone(&cache),
            queue: HotQueue::new(dataset, seeds, sampler, super_batches, settings.threads)?,
            first_layer: FirstLayer::new((dataset, seeds, sampler), first_layer, settings.threads)?,
            num_nodes: dataset.num_nodes(),
            matrices: Vec::new(),
            statistics: statistics.clone(),
            hot_ratio: HotRatio::new(hot_ratio, settings.follow, super_batches),
            settings,
        };
        let named = thread::Builder::new().name("first-layer".to_string());
        let thread = named.spawn(move || own.run(received)).map_err(|e| Error::failed("layer split", e))?;
        let rows: Arc<dyn GivenRowSource> =
            Arc::new(Hot { cache: Arc::clone(&cache), super_batches, statistics: statistics.clone() });
        let routes = routes.into_iter().map(|operators| wrap::route(operators, &rows)).collect();
        let mut messages = Some(messages);
        let split = |TrainingOperator { key, place, operator: inner }| {
            let (cache, messages, fixed) = (Arc::clone(&cache), messages.take(), fixed.clone());
            let (snapshots, super_batch) = (Vec::new(), None);
            let operator =
                SplitTraining { inner, cache, super_batches, messages, fixed, snapshots, steps, super_batch };
            TrainingOperator { key, place, operator: Box::new(operator) }
        };
        let trainers = trainers.into_iter().map(split).collect();
        Ok(Self { operators: Operators { routes, trainers }, statistics, thread })
    }
}

/// What the first layer's thread has: it chooses hot nodes and computes their rows.
struct FirstLayerThread {
    cache: Arc<EmbeddingCache>,
    queue: HotQueue,
    first_layer: FirstLayer,
    num_nodes: usize,
    /// The memory of what is computed next.
    matrices: Vec<Vec<f32>>,
    statistics: SplitStatistics,
    hot_ratio: HotRatio,
    settings: Settings,
}

impl FirstLayerThread {
    /// Serves snapshots until training has ended; a failure or a panic closes the cache with its message.
    fn run(mut self, received: Receiver<Message>) {
        let cache = Arc::clone(&self.cache);
        let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.serve(received)));
        match served {
            Ok(Ok(())) => {}
            Ok(Err(e)) => cache.close(&e.to_string()),
            Err(panic) => cache.close(&format!("computing the first layer panicked: {}", panic_message(&*panic))),
        }
    }

    fn serve(&mut self, received: Receiver<Message>) -> Result<()> {
        let mut received = received.into_iter();
        let restored = match self.settings.resumed.then(|| received.next()).flatten() {
            Some(Message::Restored(snapshots)) => snapshots,
            _ => Vec::new(),
        };
        let of = |super_batch: u64| restored.iter().find(move |snapshot| snapshot.super_batch == super_batch);
        let first = self.settings.super_batches.of(self.settings.start);
        match first.checked_sub(1).and_then(of) {
            Some(snapshot) => {
                let chosen = self.choose(first)?;
                self.publish(chosen, snapshot)?;
            }
            None => {
                let failed = |e| Error::failed("layer split", e);
                self.cache.choose(first, map(self.num_nodes, &[])).map_err(failed)?;
                self.cache.publish(first, 0, self.settings.matrices()).map_err(failed)?;
            }
        }
        let mut next = self.choose(first + 1)?;
        if let Some(snapshot) = of(first) {
            self.publish(next, snapshot)?;
            next = self.choose(first + 2)?;
        }
        for message in received {
            let Message::Begins(snapshot) = message else { continue };
            if snapshot.super_batch + 1 != next.super_batch {
                let what =
                    format!("super-batch {} begins, {} was to begin", snapshot.super_batch, next.super_batch - 1);
                return Err(Error::setting("layer split", what));
            }
            self.hot_ratio.begins(snapshot.super_batch, snapshot.began, self.statistics.waited());
            let (start, ratio) = (Instant::now(), next.ratio);
            self.publish(next, &snapshot)?;
            next = self.choose(next.super_batch + 1)?;
            self.hot_ratio.computed(ratio, start.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// Computes and publishes the rows of the nodes that were chosen last, by the parameters of the super-batch before.
    fn publish(&mut self, mut chosen: SuperBatchStatistics, snapshot: &Snapshot) -> Result<()> {
        let (start, super_batch) = (Instant::now(), chosen.super_batch);
        let failed = |e| Error::failed("layer split", e);
        let nodes: Vec<u32> = self.cache.nodes(super_batch).map_err(failed)?.nodes().collect();
        let id = self.settings.super_batches.ids(super_batch).next().unwrap_or_default();
        let mut matrices = std::mem::take(&mut self.matrices);
        matrices.resize_with(self.cache.widths().len(), Vec::new);
        self.first_layer.compute(id, &nodes, &snapshot.parameters, &mut matrices)?;
        chosen.computing = start.elapsed().as_secs_f64();
        // Before the rows are published: who reads them may compare what was read with these statistics.
        self.statistics.push(chosen);
        self.matrices = self.cache.publish(super_batch, snapshot.step, matrices).map_err(failed)?;
        Ok(())
    }

    /// Chooses the hottest nodes of a super-batch.
    fn choose(&mut self, super_batch: u64) -> Result<SuperBatchStatistics> {
        let (nodes, statistics) = hottest(&mut self.queue, super_batch, self.hot_ratio.get())?;
        let chosen = self.cache.choose(super_batch, map(self.num_nodes, &nodes));
        chosen.map_err(|e| Error::failed("layer split", e))?;
        Ok(statistics)
    }
}

/// The hottest nodes of a super-batch, in ascending order.
pub(crate) fn hottest(
    queue: &mut HotQueue,
    super_batch: u64,
    hot_ratio: f64,
) -> Result<(Vec<u32>, SuperBatchStatistics)> {
    let start = Instant::now();
    let queue = if hot_ratio > 0.0 { queue.of(super_batch)? } else { Vec::new() };
    let num_hot = (hot_ratio * queue.len() as f64).ceil() as usize;
    let hot = &queue[..num_hot];
    let mut nodes: Vec<u32> = hot.iter().map(|&(node, _)| node).collect();
    nodes.sort_unstable();
    let occurrences = |nodes: &[(u32, u32)]| nodes.iter().map(|&(_, count)| u64::from(count)).sum();
    let statistics = SuperBatchStatistics {
        super_batch,
        ratio: hot_ratio,
        nodes: queue.len() as u64,
        hot: num_hot as u64,
        occurrences: occurrences(&queue),
        given: occurrences(hot),
        choosing: start.elapsed().as_secs_f64(),
        computing: 0.0,
    };
    Ok((nodes, statistics))
}

/// The map of nodes in ascending order.
pub(crate) fn map(num_nodes: usize, nodes: &[u32]) -> NodeMap {
    let mut left = nodes.iter().copied().peekable();
    NodeMap::new(num_nodes, |node| left.next_if_eq(&node).is_some())
}
