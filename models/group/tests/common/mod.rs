//! Groups of CPU trainers for the tests, driven by hand.
#![allow(dead_code, reason = "each test uses a part")]

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_graph_store::Dataset;
use morphgl_group::{BUCKET_BYTES, Division, Exchange, GroupMember, HostExchange, join};
use morphgl_registry::{
    BatchId, BatchingContext, Gradients, Handle, MiniBatch, ModelState, NamedTensor, Operators, PairSettings, Place,
    Result, Route, SamplerSettings, Score, SeedSet, Training, TrainingContext, TrainingWrapper, TransferringContext,
};
use morphgl_training_cpu_native::CpuNative;
use morphgl_transferring_cpu_host::CpuHost;
use serde_json::Value;

/// A longer time than any exchange of these tests takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// What is trained.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) settings: SamplerSettings,
    pub(crate) spec: Value,
    /// How pairs are made of the graph's edges; `None` where nodes are learned.
    pub(crate) pairs: Option<PairSettings>,
}

/// Shares that end at these positions; of a mini-batch with fewer seeds, at its last one.
#[derive(Debug, Clone)]
pub(crate) struct Ends(pub(crate) Vec<usize>);

impl Division for Ends {
    fn share(&self, _id: BatchId, num_seeds: usize, rank: usize) -> Result<Range<usize>> {
        let end = |rank: usize| if rank + 1 == self.0.len() { num_seeds } else { self.0[rank].min(num_seeds) };
        Ok(rank.checked_sub(1).map_or(0, end)..end(rank))
    }
}

/// The gradients that a trainer steps with.
pub(crate) type Seen = Arc<Mutex<Vec<Gradients>>>;

/// A training operator whose gradients can be read at every step.
#[derive(Debug)]
struct Observed {
    inner: CpuNative,
    seen: Seen,
}

impl TrainingWrapper for Observed {
    fn inner(&self) -> &dyn Training {
        &self.inner
    }
    fn inner_mut(&mut self) -> &mut dyn Training {
        &mut self.inner
    }
    fn step(&mut self) -> Result<Handle<()>> {
        let gradients = self.inner.gradients()?;
        self.seen.lock().expect("no test panics with it").push(gradients);
        self.inner.step()
    }
    fn train(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let accumulating = self.inner.accumulate(batch)?;
        Ok(accumulating.then(TrainingWrapper::step(self)))
    }
}

impl Task {
    /// What mini-batches are made of.
    pub(crate) fn seeds(&self) -> SeedSet {
        let (dataset, num_nodes) = (&self.dataset, self.dataset.num_nodes());
        let seeds = match self.pairs {
            None => SeedSet::new("train split", &dataset.splits.train, num_nodes),
            Some(settings) => SeedSet::of_pairs("train edges", &dataset.train_pairs(), num_nodes, settings),
        };
        seeds.expect("nodes of the graph")
    }

    /// The operators of one trainer, alone.
    pub(crate) fn operators(&self, seen: &Seen) -> Operators {
        let (dataset, seeds) = (Arc::clone(&self.dataset), self.seeds());
        let batching = CpuNeighbor::new(&BatchingContext::new(Arc::clone(&dataset), seeds, self.settings.clone()));
        let transferring = CpuHost::new(&TransferringContext::new(Arc::clone(&dataset), Place::Host, Place::Host));
        let training = CpuNative::new(&TrainingContext { seed: 1, ..TrainingContext::new(dataset, self.spec.clone()) });
        let keys = [
            morphgl_batching_cpu::NEIGHBOR.key,
            morphgl_transferring_cpu_host::DESCRIPTION.key,
            morphgl_training_cpu_native::KEY,
        ];
        let inner = training.expect("a model for this dataset");
        let operator = Box::new(Observed { inner, seen: Arc::clone(seen) });
        let batching = Arc::new(batching.expect("settings for this dataset"));
        let transferring = Box::new(transferring.expect("it has no options"));
        Operators::of(Route::new(keys, Place::Host, Place::Host), batching, transferring, operator)
    }

    /// Trains epochs with one trainer, outside any group.
    pub(crate) fn alone(&self, epochs: u32) -> Trained {
        let seen = Seen::default();
        train(self.operators(&seen), epochs, &seen)
    }

    /// Trains epochs with a group; returns what each trainer has, by rank.
    pub(crate) fn group(&self, size: usize, division: &Arc<dyn Division>, epochs: u32) -> Vec<Trained> {
        self.group_by_buckets(size, division, epochs, BUCKET_BYTES)
    }

    /// As [`Task::group`], with buckets of gradients of so many bytes.
    pub(crate) fn group_by_buckets(
        &self,
        size: usize,
        division: &Arc<dyn Division>,
        epochs: u32,
        bucket_bytes: usize,
    ) -> Vec<Trained> {
        let ends = HostExchange::group(size, LIMIT);
        thread::scope(|scope| {
            let trainer = |end: HostExchange| {
                let member = GroupMember {
                    exchange: Box::new(end) as Box<dyn Exchange>,
                    division: Arc::clone(division),
                    num_seeds: self.seeds().num_examples(),
                    batch_size: self.settings.batch_size,
                    stop: None,
                    observe: None,
                    bucket_bytes,
                    virtual_steps: None,
                };
                scope.spawn(move || {
                    let seen = Seen::default();
                    train(join(self.operators(&seen), member).expect("one training operator"), epochs, &seen)
                })
            };
            let running: Vec<_> = ends.into_iter().map(trainer).collect();
            running.into_iter().map(|thread| thread.join().expect("the trainer ends well")).collect()
        })
    }
}

/// What a trainer has at the end.
#[derive(Debug, PartialEq)]
pub(crate) struct Trained {
    /// Scores by epoch.
    pub(crate) scores: Vec<Score>,
    pub(crate) parameters: Vec<NamedTensor>,
    /// Gradients by step.
    pub(crate) gradients: Vec<Gradients>,
}

fn train(mut operators: Operators, epochs: u32, seen: &Seen) -> Trained {
    let route = &mut operators.routes[0];
    let training = &mut operators.trainers[0].operator;
    let mut worker = route.batching.worker(1).expect("a worker");
    let mut scores = Vec::new();
    for epoch in 0..epochs {
        let mut score = Score::default();
        for index in 0..route.batching.num_batches() as u32 {
            let (batch, _) = worker.prepare(BatchId { epoch, index }, None).and_then(Handle::wait).expect("batching");
            let (batch, _) = route.transferring.transfer(batch).and_then(Handle::wait).expect("transferring");
            score += training.train(&batch).and_then(Handle::wait).expect("training").0;
        }
        scores.push(score);
    }
    let gradients = std::mem::take(&mut *seen.lock().expect("no test panics with it"));
    Trained { scores, parameters: training.parameters().expect("parameters"), gradients }
}

/// The length of `a - b` divided by the length of `b`, all tensors taken as one vector.
pub(crate) fn distance(a: &[NamedTensor], b: &[NamedTensor]) -> f64 {
    let pairs = || a.iter().zip(b).flat_map(|(a, b)| a.values.iter().zip(&b.values));
    let difference: f64 = pairs().map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    let length: f64 = pairs().map(|(_, b)| f64::from(*b).powi(2)).sum();
    (difference / length.max(f64::MIN_POSITIVE)).sqrt()
}
