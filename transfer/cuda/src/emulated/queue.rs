//! Late mode: streams run nothing until a wait, and then only the work that the wait depends on. Work that lacks a wait or
//! an event reads stale memory.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::work::Work;
use crate::driver::{Failure, Id, Outcome};

/// One recording of an event.
#[derive(Debug)]
pub(super) struct Recording {
    stream: Id,
    happened: OnceLock<Instant>,
    polls: AtomicU32,
}

impl Recording {
    pub(super) fn new(stream: Id, happened: bool) -> Arc<Self> {
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

#[derive(Debug, Default)]
pub(super) struct Queues {
    items: HashMap<Id, VecDeque<QueueItem>>,
    /// Failure of queued work, sticky as on a device: every later call fails with it.
    broken: Option<String>,
}

impl Queues {
    pub(super) fn push(&mut self, stream: Id, item: QueueItem) -> Outcome<()> {
        self.check()?;
        self.items.entry(stream).or_default().push_back(item);
        Ok(())
    }

    pub(super) fn check(&self) -> Outcome<()> {
        match &self.broken {
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
    pub(super) unsafe fn drain(&mut self, stream: Id) -> Outcome<()> {
        // SAFETY: the caller's promise.
        while unsafe { self.step(stream) }?.is_some() {}
        Ok(())
    }

    /// Runs a stream's next item, if there is one.
    ///
    /// # Safety
    ///
    /// As [`Queues::reach`].
    unsafe fn step(&mut self, stream: Id) -> Outcome<Option<()>> {
        self.check()?;
        let Some(item) = self.items.get_mut(&stream).and_then(VecDeque::pop_front) else { return Ok(None) };
        match item {
            QueueItem::Work(work) => {
                // SAFETY: the caller's promise.
                if let Err(why) = unsafe { work.run() } {
                    self.broken = Some(why.to_string());
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
