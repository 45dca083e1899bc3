//! Fake operators with given durations and faults, which record their calls and check the exclusive use of resources.
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

use morphgl_registry::{BatchId, Error, Handle, Measured, Phase, Result, Wait};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    Error,
    /// The error of an operator that cannot allocate.
    Memory,
    Panic,
    /// Fails when its handle is waited on.
    LateError,
    LatePanic,
    /// Delivers another mini-batch than the requested one.
    OtherBatch,
    /// Waits until it is released.
    Hang,
}

/// The behaviour of the fake operators, and a record of their calls.
#[derive(Debug, Default)]
pub(crate) struct FakeMachine {
    pub(crate) num_batches: usize,
    /// Microseconds of batching, transferring, training of a mini-batch; 0 beyond the end.
    pub(crate) delays: Vec<[u64; 3]>,
    pub(crate) fault: Option<(Phase, u32, Fault)>,
    /// Queue depth of training; with 0 and 1, it computes when it is called.
    pub(crate) depth: usize,
    pub(crate) observed: Mutex<Observed>,
    /// Number of device mini-batches in memory.
    pub(crate) alive: AtomicUsize,
    pub(crate) peak_alive: AtomicUsize,
    /// Whether hanging operators may continue.
    pub(crate) released: Mutex<bool>,
    pub(crate) release: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Mini-batches in the order of training.
    pub(crate) trained: Vec<BatchId>,
    pub(crate) steps: usize,
    /// Number of mini-batches queued at training.
    pub(crate) queued: usize,
    pub(crate) peak_queued: usize,
    pub(crate) prepared: Vec<BatchId>,
    /// Buffers between batching and the end of training, those dropped there included.
    pub(crate) live: HashSet<i32>,
    pub(crate) peak_live: usize,
    /// Number of buffers made: each has its number as its only label.
    pub(crate) buffers: i32,
    pub(crate) training_threads: usize,
    pub(crate) worker_threads: Vec<usize>,
    /// Mini-batch of the phase that uses each exclusive resource: never more than one.
    in_use: HashMap<&'static str, BatchId>,
    /// Number of running phases.
    pub(crate) active: usize,
    pub(crate) peak_active: usize,
    /// Mini-batches from the beginning of their batching to the end of their transfer (`batched`), and from there to the end of
    /// their training (`ready`).
    pub(crate) batched: usize,
    pub(crate) peak_batched: usize,
    pub(crate) ready: usize,
    pub(crate) peak_ready: usize,
}

/// The content of a mini-batch, which depends on its id alone.
pub(crate) fn content(id: BatchId) -> Vec<u32> {
    (0..16).map(|i| id.epoch * 1_000_003 + id.index * 101 + i).collect()
}

/// The use of exclusive resources by a running phase, until it is dropped.
pub(crate) struct ResourceGuard<'a> {
    machine: &'a FakeMachine,
    resources: Vec<&'static str>,
}

impl Drop for ResourceGuard<'_> {
    fn drop(&mut self) {
        let mut observed = self.machine.observed();
        observed.active -= 1;
        for resource in &self.resources {
            observed.in_use.remove(resource);
        }
    }
}

impl FakeMachine {
    pub(crate) fn new(num_batches: usize) -> Self {
        Self { num_batches, ..Self::default() }
    }

    pub(crate) fn observed(&self) -> std::sync::MutexGuard<'_, Observed> {
        self.observed.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Lets hanging operators continue.
    pub(crate) fn release_hung(&self) {
        *self.released.lock().expect("not poisoned") = true;
        self.release.notify_all();
    }

    /// Begins the use of the exclusive ones of `resources`.
    pub(crate) fn acquire(&self, resources: &[&'static str], id: BatchId) -> ResourceGuard<'_> {
        let resources: Vec<&str> = resources.iter().copied().filter(|r| *r != "CPU").collect();
        let mut observed = self.observed();
        observed.active += 1;
        observed.peak_active = observed.peak_active.max(observed.active);
        for resource in &resources {
            let other = observed.in_use.insert(resource, id);
            assert_eq!(other, None, "{resource} is used by {id} and by another mini-batch");
        }
        drop(observed);
        ResourceGuard { machine: self, resources }
    }

    pub(crate) fn act(&self, phase: Phase, id: BatchId) -> Result<()> {
        let delay = self.delays.get(id.index as usize).map_or(0, |d| d[phase as usize]);
        if delay > 0 {
            thread::sleep(Duration::from_micros(delay));
        }
        match self.fault_of(phase, id) {
            Some(Fault::Error) => Err(Error::failed("fake", "injected error")),
            Some(Fault::Memory) => {
                Err(Error::failed("fake", "4096 bytes cannot be allocated; make mini-batches smaller"))
            }
            Some(Fault::Panic) => panic!("injected panic"),
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

    /// The id that is delivered when `id` is requested.
    pub(crate) fn delivered_id(&self, phase: Phase, id: BatchId) -> BatchId {
        match self.fault_of(phase, id) {
            Some(Fault::OtherBatch) => BatchId { index: id.index + 1, ..id },
            _ => id,
        }
    }

    /// The handle of finished work, or one that fails when it is waited for.
    pub(crate) fn handle<T: Send + 'static>(&self, phase: Phase, id: BatchId, value: T, took: Duration) -> Handle<T> {
        match self.fault_of(phase, id) {
            Some(fault @ (Fault::LateError | Fault::LatePanic)) => Handle::pending(FailingHandle(fault)),
            _ => Handle::ready(value, took),
        }
    }

    pub(crate) fn count_device_batch(&self) {
        let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak_alive.fetch_max(alive, Ordering::SeqCst);
    }
}

struct FailingHandle(Fault);

impl<T> Wait<T> for FailingHandle {
    fn is_ready(&self) -> bool {
        false
    }

    fn wait(self: Box<Self>) -> Result<(T, Measured)> {
        assert!(self.0 != Fault::LatePanic, "injected panic");
        Err(Error::failed("fake", "injected error"))
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

/// Checks that the test is the machine's only owner: no thread is left that has an operator.
#[track_caller]
pub(crate) fn no_thread_is_left(machine: &Arc<FakeMachine>) {
    assert_eq!(Arc::strong_count(machine), 1, "a thread is left");
}
