//! Streams that work as late as a device may: nothing is done before somebody waits for it, and then only what that
//! waits for. Whoever forgot to wait reads what was there before.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::failure;
use super::work::Work;
use crate::driver::{Id, Outcome};

/// One recording of an event.
#[derive(Debug)]
pub(super) struct Ticket {
    stream: Id,
    state: Mutex<TicketState>,
}

#[derive(Debug, Default)]
struct TicketState {
    happened: Option<Instant>,
    polls: u32,
}

impl Ticket {
    /// One of a stream that has not happened, or has, now.
    pub(super) fn new(stream: Id, happened: bool) -> Arc<Self> {
        let state = TicketState { happened: happened.then(Instant::now), polls: 0 };
        Arc::new(Self { stream, state: Mutex::new(state) })
    }

    pub(super) fn happened(&self) -> Option<Instant> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).happened
    }

    fn happen(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).happened = Some(Instant::now());
    }

    /// Whether it was asked for often enough that it should happen by itself.
    pub(super) fn poll(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.polls += 1;
        state.polls >= 3
    }
}

#[derive(Debug)]
pub(super) enum Item {
    Work(Work),
    Record(Arc<Ticket>),
    Wait(Arc<Ticket>),
}

/// What streams still have to do.
#[derive(Debug, Default)]
pub(super) struct Queues {
    items: HashMap<Id, VecDeque<Item>>,
    /// The failure of work that was done late: every later call fails with it, as on a device.
    broken: Option<String>,
}

impl Queues {
    pub(super) fn push(&mut self, stream: Id, item: Item) -> Outcome<()> {
        self.check()?;
        self.items.entry(stream).or_default().push_back(item);
        Ok(())
    }

    /// Whether work that was done late has failed.
    pub(super) fn check(&self) -> Outcome<()> {
        self.broken
            .as_ref()
            .map_or(Ok(()), |why| Err(failure("cuCtxSynchronize", format!("earlier work failed: {why}"))))
    }

    /// Does what has to be done before a ticket happens.
    ///
    /// # Safety
    ///
    /// What work was given with is valid until it is done.
    pub(super) unsafe fn reach(&mut self, ticket: &Ticket) -> Outcome<()> {
        while ticket.happened().is_none() {
            // SAFETY: the caller's promise.
            let Some(()) = unsafe { self.step(ticket.stream) }? else {
                return Err(failure("cuEventSynchronize", "the event's stream has no such record"));
            };
        }
        Ok(())
    }

    /// Does all that a stream has been given.
    ///
    /// # Safety
    ///
    /// As [`Queues::reach`].
    pub(super) unsafe fn drain(&mut self, stream: Id) -> Outcome<()> {
        // SAFETY: the caller's promise.
        while unsafe { self.step(stream) }?.is_some() {}
        Ok(())
    }

    /// Does a stream's next piece of work, if there is one.
    ///
    /// # Safety
    ///
    /// As [`Queues::reach`].
    unsafe fn step(&mut self, stream: Id) -> Outcome<Option<()>> {
        self.check()?;
        let Some(item) = self.items.get_mut(&stream).and_then(VecDeque::pop_front) else { return Ok(None) };
        match item {
            Item::Work(work) => {
                // SAFETY: the caller's promise.
                if let Err(why) = unsafe { work.run() } {
                    self.broken = Some(why.to_string());
                    return Err(why);
                }
            }
            Item::Record(ticket) => ticket.happen(),
            // SAFETY: the caller's promise. What is waited for was recorded before, so this comes to an end.
            Item::Wait(ticket) => unsafe { self.reach(&ticket) }?,
        }
        Ok(Some(()))
    }
}
