//! Work that may still be running, and its measured duration.

use std::fmt;
use std::time::Duration;

use crate::{Counters, Result};

/// Measurements of one call of an operator: the only ones that profile, plan and report read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// Duration on the resource.
    pub busy: Duration,
    /// Counters.
    pub counters: Counters,
}

/// Asynchronous work of a device, to be waited on once.
pub trait Wait<T>: Send {
    /// Whether waiting would return at once.
    fn is_ready(&self) -> bool;
    /// Waits; returns the result and the time the work took on its resource.
    fn wait(self: Box<Self>) -> Result<(T, Duration)>;
}

/// The result of an operator's call, ready or pending, with the duration measured on its resource and its counters.
pub struct Handle<T> {
    state: State<T>,
    counters: Counters,
}

enum State<T> {
    Ready(T, Duration),
    Pending(Box<dyn Wait<T>>),
}

impl<T> Handle<T> {
    /// Completed work.
    pub fn ready(value: T, took: Duration) -> Self {
        Self { state: State::Ready(value, took), counters: Counters::NONE }
    }

    /// Work that is still running.
    pub fn pending(work: impl Wait<T> + 'static) -> Self {
        Self { state: State::Pending(Box::new(work)), counters: Counters::NONE }
    }

    /// The same work with these counters added.
    #[must_use]
    pub fn counting(mut self, counters: Counters) -> Self {
        self.counters += counters;
        self
    }

    /// Whether [`Handle::wait`] would return at once.
    pub fn is_ready(&self) -> bool {
        match &self.state {
            State::Ready(..) => true,
            State::Pending(work) => work.is_ready(),
        }
    }

    /// Waits for the work; returns its result and the time it took on its resource.
    pub fn wait(self) -> Result<(T, Duration)> {
        match self.state {
            State::Ready(value, took) => Ok((value, took)),
            State::Pending(work) => work.wait(),
        }
    }

    /// Waits for the work; returns its result, duration and counters.
    pub fn measured(self) -> Result<(T, Measured)> {
        let counters = self.counters;
        self.wait().map(|(value, busy)| (value, Measured { busy, counters }))
    }

    /// This work and `next`, submitted to the same resource after it: the result is this one's, duration and counters are sums,
    /// and of two errors this one's is returned. Waits for the later work first, so that the host sleeps once.
    pub fn then(self, next: Result<Handle<()>>) -> Handle<T>
    where
        T: Send + 'static,
    {
        let mut counters = self.counters;
        counters += next.as_ref().map_or(Counters::NONE, |next| next.counters);
        let state = match (self.state, next) {
            (State::Ready(value, took), Ok(Handle { state: State::Ready((), then), .. })) => {
                State::Ready(value, took + then)
            }
            (state, next) => {
                State::Pending(Box::new(InOrder { first: Handle { state, counters: Counters::NONE }, next }))
            }
        };
        Handle { state, counters }
    }
}

/// Two pieces of work submitted one after the other.
struct InOrder<T> {
    first: Handle<T>,
    next: Result<Handle<()>>,
}

impl<T: Send> Wait<T> for InOrder<T> {
    fn is_ready(&self) -> bool {
        self.first.is_ready() && self.next.as_ref().map_or(true, Handle::is_ready)
    }

    fn wait(self: Box<Self>) -> Result<(T, Duration)> {
        let next = self.next.and_then(Handle::wait);
        let (value, took) = self.first.wait()?;
        let ((), then) = next?;
        Ok((value, took + then))
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::Ready(_, took) => write!(f, "Handle(ready, {took:?})"),
            State::Pending(_) => write!(f, "Handle(pending)"),
        }
    }
}
