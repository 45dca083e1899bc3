//! Late mode: streams run nothing until a wait, and then only the work that the wait depends on. Work that lacks a wait or
//! an event reads stale memory.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use super::work::Work;
use crate::driver::{Failure, Id, Outcome};
use crate::lock::lock;

/// A stream, with the number of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StreamId {
    pub(super) device: u64,
    pub(super) stream: Id,
}

/// One recording of an event.
#[derive(Debug)]
pub(super) struct Recording {
    stream: StreamId,
    happened: OnceLock<Instant>,
    polls: AtomicU32,
}

impl Recording {
    pub(super) fn new(stream: StreamId, happened: bool) -> Arc<Self> {
        let recording = Self { stream, happened: OnceLock::new(), polls: AtomicU32::new(0) };
        if happened {
            recording.happen();
        }
        Arc::new(recording)
    }

    pub(super) fn happened(&self) -> Option<Instant> {
        self.happened.get().copied()
    }

    fn happen(&self) {
        self.happened.get_or_init(Instant::now);
    }

    /// Counts a query; true once queried often enough that the event should happen by itself.
    pub(super) fn poll(&self) -> bool {
        self.polls.fetch_add(1, Ordering::Relaxed) >= 2
    }
}

#[derive(Debug)]
pub(super) enum QueueItem {
    Work(Work),
    Record(Arc<Recording>),
    Wait(Arc<Recording>),
}

/// The streams of all devices: work of one may wait for work of another.
#[derive(Debug, Default)]
pub(super) struct Queues {
    items: HashMap<StreamId, VecDeque<QueueItem>>,
    /// By device, failure of queued work, sticky as on a device: every later call fails with it.
    broken: HashMap<u64, String>,
}

/// The streams of the process.
pub(super) fn queues() -> MutexGuard<'static, Queues> {
    static QUEUES: LazyLock<Mutex<Queues>> = LazyLock::new(Mutex::default);
    lock(&QUEUES)
}

impl Queues {
    pub(super) fn push(&mut self, stream: StreamId, item: QueueItem) -> Outcome<()> {
        self.check(stream.device)?;
        self.items.entry(stream).or_default().push_back(item);
        Ok(())
    }

    /// Forgets a device that is closed.
    pub(super) fn remove(&mut self, device: u64) {
        self.items.retain(|stream, _| stream.device != device);
        self.broken.remove(&device);
    }

    pub(super) fn check(&self, device: u64) -> Outcome<()> {
        match self.broken.get(&device) {
            None => Ok(()),
            Some(why) => Err(Failure::new("cuCtxSynchronize", format!("earlier work failed: {why}"))),
        }
    }

    /// Runs all work that a recording depends on.
    ///
    /// # Safety
    ///
    /// The memory of all queued work is still valid.
    pub(super) unsafe fn reach(&mut self, recording: &Recording) -> Outcome<()> {
        while recording.happened().is_none() {
            // SAFETY: the caller's promise.
            let Some(()) = unsafe { self.step(recording.stream) }? else {
                return Err(Failure::new("cuEventSynchronize", "the event's stream has no such record"));
            };
        }
        Ok(())
    }

    /// Runs all work of a stream.
    ///
    /// # Safety
    ///
    /// As [`Queues::reach`].
    pub(super) unsafe fn drain(&mut self, stream: StreamId) -> Outcome<()> {
        // SAFETY: the caller's promise.
        while unsafe { self.step(stream) }?.is_some() {}
        Ok(())
    }

    /// Runs a stream's next item, if there is one.
    ///
    /// # Safety
    ///
    /// As [`Queues::reach`].
    unsafe fn step(&mut self, stream: StreamId) -> Outcome<Option<()>> {
        self.check(stream.device)?;
        let Some(item) = self.items.get_mut(&stream).and_then(VecDeque::pop_front) else { return Ok(None) };
        match item {
            QueueItem::Work(work) => {
                // SAFETY: the caller's promise.
                if let Err(why) = unsafe { work.run() } {
                    self.broken.insert(stream.device, why.to_string());
                    return Err(why);
                }
            }
            QueueItem::Record(recording) => recording.happen(),
            // SAFETY: the caller's promise. Recordings precede their waits, so the recursion ends.
            QueueItem::Wait(recording) => unsafe { self.reach(&recording) }?,
        }
        Ok(Some(()))
    }
}
