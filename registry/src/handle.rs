//! Work that may still be running, and its measured duration.

use std::fmt;
use std::time::Duration;

use crate::{Counters, Result};

/// Measurements of one call of an operator: the only ones that profile, plan and report read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// Duration on the resource.
    pub busy: Duration,
    /// In virtual time, the wait for others before the work was done, besides `busy`; zero in real time, which clocks measure.
    pub waited: Duration,
    /// Counters.
    pub counters: Counters,
}

/// Asynchronous work of a device, to be waited on once.
pub trait Wait<T>: Send {
    /// Whether waiting would return at once.
    fn is_ready(&self) -> bool;
    /// Waits; returns the result, the time the work took on its resource, and what was counted meanwhile.
    fn wait(self: Box<Self>) -> Result<(T, Measured)>;
}

/// The result of an operator's call, ready or pending, with the duration measured on its resource and its counters.
pub struct Handle<T> {
    state: State<T>,
    counters: Counters,
}

enum State<T> {
    Ready(T, [Duration; 2]),
    Pending(Box<dyn Wait<T>>),
}

impl<T> Handle<T> {
    /// Completed work.
    pub fn ready(value: T, took: Duration) -> Self {
        Self { state: State::Ready(value, [took, Duration::ZERO]), counters: Counters::NONE }
    }

    /// Completed work that waited for others in virtual time ([`Measured::waited`]).
    pub fn ready_after(value: T, took: Duration, waited: Duration) -> Self {
        Self { state: State::Ready(value, [took, waited]), counters: Counters::NONE }
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
        self.measured().map(|(value, measured)| (value, measured.busy))
    }

    /// Waits for the work; returns its result, duration and counters.
    pub fn measured(self) -> Result<(T, Measured)> {
        match self.state {
            State::Ready(value, [busy, waited]) => Ok((value, Measured { busy, waited, counters: self.counters })),
            State::Pending(work) => {
                let (value, mut measured) = work.wait()?;
                measured.counters += self.counters;
                Ok((value, measured))
            }
        }
    }

    /// This work and `next`, submitted to the same resource after it: the result is this one's, duration and counters are sums,
    /// and of two errors this one's is returned. Waits for the later work first, so that the host sleeps once.
    pub fn then(self, next: Result<Handle<()>>) -> Handle<T>
    where
        T: Send + 'static,
    {
        match (self, next) {
            (
                Handle { state: State::Ready(value, first), mut counters },
                Ok(Handle { state: State::Ready((), then), counters: more }),
            ) => {
                counters += more;
                Handle { state: State::Ready(value, [first[0] + then[0], first[1] + then[1]]), counters }
            }
            (first, next) => Handle::pending(InOrder { first, next }),
        }
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

    fn wait(self: Box<Self>) -> Result<(T, Measured)> {
        let next = self.next.and_then(Handle::measured);
        let (value, mut measured) = self.first.measured()?;
        let ((), then) = next?;
        measured.busy += then.busy;
        measured.waited += then.waited;
        measured.counters += then.counters;
        Ok((value, measured))
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::Ready(_, [took, _]) => write!(f, "Handle(ready, {took:?})"),
            State::Pending(_) => write!(f, "Handle(pending)"),
        }
    }
}
