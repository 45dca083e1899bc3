//! Operators that record what happens to them, sleep as told and fail as told.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use morphgl_execute::{Executor, Operators};
use morphgl_plan::Schedule;
use morphgl_registry::{
    BatchId, Batching, BatchingWorker, Error, Gradients, Handle, MiniBatch, NamedTensor, Phase, Place, Result, Route,
    Score, Training, Transferring,
};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    Error,
    Panic,
    /// Delivers another mini-batch than was asked for.
    Mixup,
}

/// What the operators do, and what was seen of them.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) num_batches: usize,
    /// Microseconds of batching, transferring, training of a mini-batch; 0 beyond the end.
    pub(crate) delays: Vec<[u64; 3]>,
    pub(crate) fault: Option<(Phase, u32, Fault)>,
    pub(crate) seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Mini-batches by the order in which they were trained, or a step was made.
    pub(crate) trained: Vec<BatchId>,
    pub(crate) steps: usize,
    pub(crate) prepared: Vec<BatchId>,
    /// Buffers that are somewhere between batching and the end of training, or were dropped there.
    pub(crate) live: HashSet<i32>,
    pub(crate) peak_live: usize,
    /// Buffers ever made: each carries its number as its only label.
    pub(crate) buffers: i32,
    pub(crate) training_threads: usize,
    pub(crate) worker_threads: Vec<usize>,
}

/// The content of a mini-batch, which depends on its id alone.
pub(crate) fn content(id: BatchId) -> Vec<u32> {
    (0..16).map(|i| id.epoch * 1_000_003 + id.index * 101 + i).collect()
}

impl World {
    pub(crate) fn new(num_batches: usize) -> Self {
        Self { num_batches, ..Self::default() }
    }

    fn act(&self, phase: Phase, id: BatchId) -> Result<()> {
        let delay = self.delays.get(id.index as usize).map_or(0, |d| d[phase as usize]);
        if delay > 0 {
            thread::sleep(Duration::from_micros(delay));
        }
        match self.fault {
            Some((p, i, Fault::Error)) if (p, i) == (phase, id.index) => Err(Error::failed("fake", "out of luck")),
            Some((p, i, Fault::Panic)) if (p, i) == (phase, id.index) => panic!("lost my head"),
            _ => Ok(()),
        }
    }

    /// The id to deliver when `id` was asked for.
    fn deliver(&self, phase: Phase, id: BatchId) -> BatchId {
        match self.fault {
            Some((p, i, Fault::Mixup)) if (p, i) == (phase, id.index) => BatchId { index: id.index + 1, ..id },
            _ => id,
        }
    }
}

pub(crate) fn route() -> Route {
    let key = |s: &str| s.parse().expect("a valid key");
    Route {
        batching: key("Batching_CPU_Fake"),
        transferring: key("Transferring_CPU_Fake"),
        training: key("Training_CPU_Fake"),
        batched_at: Place::Host,
        trained_at: Place::Host,
    }
}

pub(crate) fn operators(world: &Arc<World>) -> Operators {
    Operators {
        route: route(),
        batching: Box::new(FakeBatching(Arc::clone(world))),
        transferring: Box::new(FakeTransferring(Arc::clone(world))),
        training: Box::new(FakeTraining(Arc::clone(world))),
    }
}

pub(crate) fn executor(world: &Arc<World>, schedule: &Schedule) -> Executor {
    Executor::new(operators(world), schedule).expect("fakes can be built")
}

/// Runs `f` on a thread of its own, and fails if it has not ended after a time in which nothing here is still at work.
#[track_caller]
pub(crate) fn ends<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || drop(send.send(f())));
    match receive.recv_timeout(Duration::from_secs(30)) {
        Ok(value) => {
            thread.join().expect("it has returned");
            value
        }
        Err(e) => panic!("no end: {e}"),
    }
}

#[derive(Debug)]
pub(crate) struct FakeBatching(pub(crate) Arc<World>);

struct Worker(Arc<World>);

impl Batching for FakeBatching {
    fn num_batches(&self) -> usize {
        self.0.num_batches
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        self.0.seen.lock().expect("not poisoned").worker_threads.push(threads);
        Ok(Box::new(Worker(Arc::clone(&self.0))))
    }
}

impl BatchingWorker for Worker {
    fn prepare(&mut self, id: BatchId, recycled: Option<MiniBatch>) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let mut batch = recycled.map(MiniBatch::into_host).transpose()?.unwrap_or_default();
        {
            let mut seen = self.0.seen.lock().expect("not poisoned");
            if batch.labels.is_empty() {
                batch.labels.push(seen.buffers);
                seen.buffers += 1;
            }
            assert!(seen.live.insert(batch.labels[0]), "the buffer of {id} has another owner");
            seen.peak_live = seen.peak_live.max(seen.live.len());
            seen.prepared.push(id);
        }
        batch.input_nodes.clear();
        batch.input_nodes.extend(content(id));
        (batch.id, batch.num_seeds) = (self.0.deliver(Phase::Batching, id), 4);
        self.0.act(Phase::Batching, id)?;
        Ok(Handle::ready(MiniBatch::Host(batch), start.elapsed()))
    }
}

#[derive(Debug)]
pub(crate) struct FakeTransferring(pub(crate) Arc<World>);

impl Transferring for FakeTransferring {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let mut batch = batch.into_host()?;
        self.0.act(Phase::Transferring, batch.id)?;
        batch.id = self.0.deliver(Phase::Transferring, batch.id);
        Ok(Handle::ready(MiniBatch::Host(batch), start.elapsed()))
    }
}

#[derive(Debug)]
pub(crate) struct FakeTraining(pub(crate) Arc<World>);

impl FakeTraining {
    /// What training does with a mini-batch; checks that it arrived whole.
    pub(crate) fn look(world: &World, batch: &MiniBatch) -> Result<Score> {
        let batch = batch.host()?;
        assert_eq!(batch.input_nodes, content(batch.id), "content of {}", batch.id);
        world.act(Phase::Training, batch.id)?;
        let mut seen = world.seen.lock().expect("not poisoned");
        seen.trained.push(batch.id);
        assert!(seen.live.remove(&batch.labels[0]), "{} was not live", batch.id);
        Ok(Score { loss_sum: f64::from(batch.id.index), correct: 1, count: 4 })
    }
}

impl Training for FakeTraining {
    fn set_threads(&mut self, threads: usize) -> Result<()> {
        self.0.seen.lock().expect("not poisoned").training_threads = threads;
        Ok(())
    }

    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let start = Instant::now();
        let score = FakeTraining::look(&self.0, batch)?;
        Ok(Handle::ready(score, start.elapsed()))
    }

    fn step(&mut self) -> Result<Handle<()>> {
        self.0.seen.lock().expect("not poisoned").steps += 1;
        Ok(Handle::ready((), Duration::ZERO))
    }

    fn gradients(&mut self) -> Result<Gradients> {
        Ok(Gradients::default())
    }

    fn set_gradients(&mut self, _: &Gradients) -> Result<()> {
        Ok(())
    }

    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        Ok(Vec::new())
    }

    fn set_parameters(&mut self, _: &[NamedTensor]) -> Result<()> {
        Ok(())
    }

    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        Ok(Vec::new())
    }

    fn set_optimizer_state(&mut self, _: &[NamedTensor]) -> Result<()> {
        Ok(())
    }

    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        self.accumulate(batch)
    }

    fn infer(&mut self, _: &[u32]) -> Result<Vec<f32>> {
        Ok(Vec::new())
    }
}
