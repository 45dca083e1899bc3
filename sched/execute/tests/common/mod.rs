//! Fake operators that check the exclusive use of resources and the ownership of buffers, and schedules for them.
#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

mod schedules;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

pub(crate) use morphgl_conformance::fake::Fault;
pub(crate) use schedules::{
    any_schedule, cpu, device, dual, executor, expected_order, hardware, interleaved, operators, schedule,
};

use morphgl_conformance::fake::{Call, Fake, Gauge, Log, Record, State, content};
use morphgl_registry::{BatchId, HostBatch, MiniBatch, Phase, Resource, Result, Score, Training};

/// The behaviour of the fake operators of a test, and what they have done.
#[derive(Debug, Default)]
pub(crate) struct Fakes {
    pub(crate) num_batches: usize,
    /// Microseconds of batching, transferring, training of a mini-batch; 0 beyond the end.
    pub(crate) delays: Vec<[u64; 3]>,
    pub(crate) fault: Option<(Phase, u32, Fault)>,
    /// Queue depth of training; with 0 and 1, it computes when it is called.
    pub(crate) depth: usize,
    pub(crate) log: Arc<Log>,
    pub(crate) training: Arc<Mutex<State>>,
    pub(crate) checks: Arc<Mutex<Checks>>,
}

#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// Number of buffers made: each has its number as its only label.
    pub(crate) buffers: i32,
    /// Buffers between batching and the end of training, those dropped there included.
    pub(crate) live: HashSet<i32>,
    pub(crate) peak_live: usize,
    /// Mini-batches from the beginning of their batching to the end of their transfer.
    pub(crate) batched: Gauge,
    /// Mini-batches from the beginning of their transfer, or of their batching in place, to the end of their training.
    pub(crate) ready: Gauge,
    /// Mini-batch of the phase that uses each exclusive resource: never more than one.
    in_use: HashMap<Resource, BatchId>,
}

/// The nodes of a mini-batch, which depend on its id alone.
pub(crate) fn nodes(id: BatchId) -> Vec<u32> {
    let mut batch = HostBatch { id, ..HostBatch::default() };
    content(&mut batch);
    batch.input_nodes
}

impl Checks {
    fn begin(&mut self, call: &Call<'_>, in_place: bool) {
        let (id, batch) = (call.batch.id, call.batch);
        for resource in call.key.hardware.resources().iter().filter(|r| **r != Resource::CPU) {
            let other = self.in_use.insert(*resource, id);
            assert_eq!(other, None, "{resource} is used by {id} and by another mini-batch");
        }
        match call.key.phase {
            Phase::Batching => {
                assert!(self.live.insert(batch.labels[0]), "the buffer of {id} has another owner");
                self.peak_live = self.peak_live.max(self.live.len());
                if in_place { self.ready.add(1) } else { self.batched.add(1) }
            }
            Phase::Transferring if in_place => {}
            Phase::Transferring => self.ready.add(1),
            Phase::Training => assert_eq!(batch.input_nodes, nodes(id), "content of {id}"),
        }
    }

    fn end(&mut self, call: &Call<'_>, in_place: bool) {
        self.in_use.retain(|resource, _| !call.key.hardware.resources().contains(resource));
        match call.key.phase {
            Phase::Transferring if !in_place => self.batched.subtract(1),
            Phase::Training => {
                assert!(self.live.remove(&call.batch.labels[0]), "{} was not live", call.batch.id);
                self.ready.subtract(1);
            }
            _ => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fakes {
    pub(crate) fn new(num_batches: usize) -> Self {
        Self { num_batches, ..Self::default() }
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.log.record()
    }

    pub(crate) fn checks(&self) -> MutexGuard<'_, Checks> {
        lock(&self.checks)
    }

    pub(crate) fn training(&self) -> MutexGuard<'_, State> {
        lock(&self.training)
    }

    /// An operator of mini-batches that are trained where they are batched (`in_place`) or moved.
    pub(crate) fn operator(&self, key: &str, in_place: bool) -> Fake {
        let mut fake = Fake { num_batches: self.num_batches, depth: self.depth, ..Fake::new(key, &self.log) };
        if fake.key.phase == Phase::Training {
            fake.state = Arc::clone(&self.training);
        }
        let checks = Arc::clone(&self.checks);
        fake.content = Arc::new(move |batch| {
            content(batch);
            if batch.labels.is_empty() {
                let mut checks = lock(&checks);
                batch.labels.push(checks.buffers);
                checks.buffers += 1;
            }
        });
        let delays = self.delays.clone();
        fake.takes(move |call| {
            let micros = delays.get(call.batch.id.index as usize).map_or(0, |d| d[call.key.phase as usize]);
            micros as f64 / 1e3 * call.threads as f64
        });
        if let Some((_, index, fault)) = self.fault.filter(|(phase, ..)| *phase == fake.key.phase) {
            fake.fails(move |call| (call.batch.id.index == index).then_some(fault));
        }
        let (act, checks) = (Arc::clone(&fake.act), Arc::clone(&self.checks));
        fake.act = Arc::new(move |call| {
            lock(&checks).begin(call, in_place);
            let outcome = act(call);
            lock(&checks).end(call, in_place);
            outcome
        });
        fake
    }

    /// Trains on a mini-batch, as the caller of a pool does.
    pub(crate) fn train(&self, batch: &MiniBatch) -> Result<Score> {
        self.operator("Training_CPU_Fake", true).accumulate(batch)?.wait().map(|(score, _)| score)
    }

    /// Checks that the test is the record's only owner: no thread is left that has an operator.
    #[track_caller]
    pub(crate) fn no_thread_is_left(&self) {
        assert_eq!(Arc::strong_count(&self.log), 1, "a thread is left");
    }
}

/// Runs `f` on a thread of its own, and fails after a timeout that is long enough for a machine with much other work: every
/// message between threads may wait for the scheduler.
#[track_caller]
pub(crate) fn with_timeout<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || drop(send.send(f())));
    match receive.recv_timeout(Duration::from_secs(600)) {
        Ok(value) => {
            thread.join().expect("it has returned");
            value
        }
        Err(e) => panic!("timeout: {e}"),
    }
}
