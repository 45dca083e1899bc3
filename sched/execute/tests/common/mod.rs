//! Operators that record what happens to them, hold their resources, take as long as told and fail as told.
#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

mod operators;
mod schedules;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

pub(crate) use operators::{FakeBatching, FakeTraining, FakeTransferring};
pub(crate) use schedules::{cpu, device, dual, executor, expected_order, hardware, interleaved, operators, schedule};

use morphgl_registry::{BatchId, Error, Handle, Phase, Result, Wait};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    Error,
    /// As an operator words it that cannot allocate.
    Memory,
    Panic,
    /// Fails when its handle is waited on.
    LateError,
    LatePanic,
    /// Delivers another mini-batch than was asked for.
    Mixup,
    /// Waits until it is released.
    Hang,
}

/// What the operators do, and what was seen of them.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) num_batches: usize,
    /// Microseconds of batching, transferring, training of a mini-batch; 0 beyond the end.
    pub(crate) delays: Vec<[u64; 3]>,
    pub(crate) fault: Option<(Phase, u32, Fault)>,
    /// Mini-batches that training takes before the first is waited for; of 0 and 1, it computes when it is called.
    pub(crate) depth: usize,
    pub(crate) seen: Mutex<Seen>,
    /// Device mini-batches alive.
    pub(crate) alive: AtomicUsize,
    pub(crate) peak_alive: AtomicUsize,
    /// Whether those that hang may go.
    pub(crate) released: Mutex<bool>,
    pub(crate) release: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Mini-batches by the order in which they were trained, or a step was made.
    pub(crate) trained: Vec<BatchId>,
    pub(crate) steps: usize,
    /// Mini-batches that training was given and that were not waited for.
    pub(crate) queued: usize,
    pub(crate) peak_queued: usize,
    pub(crate) prepared: Vec<BatchId>,
    /// Buffers that are somewhere between batching and the end of training, or were dropped there.
    pub(crate) live: HashSet<i32>,
    pub(crate) peak_live: usize,
    /// Buffers ever made: each carries its number as its only label.
    pub(crate) buffers: i32,
    pub(crate) training_threads: usize,
    pub(crate) worker_threads: Vec<usize>,
    /// Phases at work on each exclusive resource: never more than one.
    held: HashMap<&'static str, BatchId>,
    /// Phases at work.
    pub(crate) at_work: usize,
    pub(crate) peak_at_work: usize,
    /// Mini-batches from the beginning of their batching to the end of their transfer, and from there to that of training.
    pub(crate) batched: usize,
    pub(crate) peak_batched: usize,
    pub(crate) ready: usize,
    pub(crate) peak_ready: usize,
}

/// The content of a mini-batch, which depends on its id alone.
pub(crate) fn content(id: BatchId) -> Vec<u32> {
    (0..16).map(|i| id.epoch * 1_000_003 + id.index * 101 + i).collect()
}

/// An operator at work: holds its exclusive resources, until it is dropped.
pub(crate) struct AtWork<'a> {
    world: &'a World,
    resources: Vec<&'static str>,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut seen = self.world.seen();
        seen.at_work -= 1;
        for resource in &self.resources {
            seen.held.remove(resource);
        }
    }
}

impl World {
    pub(crate) fn new(num_batches: usize) -> Self {
        Self { num_batches, ..Self::default() }
    }

    pub(crate) fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Lets those that hang go.
    pub(crate) fn let_go(&self) {
        *self.released.lock().expect("not poisoned") = true;
        self.release.notify_all();
    }

    /// Holds the exclusive ones of `resources`.
    pub(crate) fn hold(&self, resources: &[&'static str], id: BatchId) -> AtWork<'_> {
        let resources: Vec<&str> = resources.iter().copied().filter(|r| *r != "CPU").collect();
        let mut seen = self.seen();
        seen.at_work += 1;
        seen.peak_at_work = seen.peak_at_work.max(seen.at_work);
        for resource in &resources {
            let other = seen.held.insert(resource, id);
            assert_eq!(other, None, "{resource} is held by {id} and by another");
        }
        drop(seen);
        AtWork { world: self, resources }
    }

    pub(crate) fn act(&self, phase: Phase, id: BatchId) -> Result<()> {
        let delay = self.delays.get(id.index as usize).map_or(0, |d| d[phase as usize]);
        if delay > 0 {
            thread::sleep(Duration::from_micros(delay));
        }
        match self.fault_of(phase, id) {
            Some(Fault::Error) => Err(Error::failed("fake", "out of luck")),
            Some(Fault::Memory) => {
                Err(Error::failed("fake", "4096 bytes cannot be allocated; make mini-batches smaller"))
            }
            Some(Fault::Panic) => panic!("lost my head"),
            Some(Fault::Hang) => {
                let mut released = self.released.lock().expect("not poisoned");
                while !*released {
                    released = self.release.wait(released).expect("not poisoned");
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn fault_of(&self, phase: Phase, id: BatchId) -> Option<Fault> {
        self.fault.filter(|(p, i, _)| (*p, *i) == (phase, id.index)).map(|f| f.2)
    }

    /// The id to deliver when `id` was asked for.
    pub(crate) fn deliver(&self, phase: Phase, id: BatchId) -> BatchId {
        match self.fault_of(phase, id) {
            Some(Fault::Mixup) => BatchId { index: id.index + 1, ..id },
            _ => id,
        }
    }

    /// The handle of work that is done, or fails late.
    pub(crate) fn handle<T: Send + 'static>(&self, phase: Phase, id: BatchId, value: T, took: Duration) -> Handle<T> {
        match self.fault_of(phase, id) {
            Some(fault @ (Fault::LateError | Fault::LatePanic)) => Handle::pending(Late(fault)),
            _ => Handle::ready(value, took),
        }
    }

    pub(crate) fn born(&self) {
        let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak_alive.fetch_max(alive, Ordering::SeqCst);
    }
}

struct Late(Fault);

impl<T> Wait<T> for Late {
    fn is_ready(&self) -> bool {
        false
    }

    fn wait(self: Box<Self>) -> Result<(T, Duration)> {
        assert!(self.0 != Fault::LatePanic, "lost my head");
        Err(Error::failed("fake", "out of luck"))
    }
}

/// Runs `f` on a thread of its own, and fails if it has not ended after a time in which nothing here is still at work,
/// on a machine with far more to do, too: every handover between threads may wait for a turn of the scheduler's.
#[track_caller]
pub(crate) fn ends<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || drop(send.send(f())));
    match receive.recv_timeout(Duration::from_secs(600)) {
        Ok(value) => {
            thread.join().expect("it has returned");
            value
        }
        Err(e) => panic!("no end: {e}"),
    }
}

/// The test is the world's only owner: no thread is left that has an operator.
#[track_caller]
pub(crate) fn no_thread_is_left(world: &Arc<World>) {
    assert_eq!(Arc::strong_count(world), 1, "a thread is left");
}
