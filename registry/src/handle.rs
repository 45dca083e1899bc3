//! Work that may still be under way.

use std::fmt;
use std::time::Duration;

use crate::Result;

/// Asynchronous work of a device, to be waited on once.
pub trait Wait<T>: Send {
    /// Whether waiting would return at once.
    fn is_ready(&self) -> bool;
    /// Waits; returns the result and the time the work took on its resource.
    fn wait(self: Box<Self>) -> Result<(T, Duration)>;
}

/// The outcome of an operator's call, ready or under way, with the duration measured on its resource.
pub struct Handle<T>(State<T>);

enum State<T> {
    Ready(T, Duration),
    Pending(Box<dyn Wait<T>>),
}

impl<T> Handle<T> {
    /// Work that is done.
    pub fn ready(value: T, took: Duration) -> Self {
        Self(State::Ready(value, took))
    }

    /// Work that is under way.
    pub fn pending(work: impl Wait<T> + 'static) -> Self {
        Self(State::Pending(Box::new(work)))
    }

    /// Whether [`Handle::wait`] would return at once.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            State::Ready(..) => true,
            State::Pending(work) => work.is_ready(),
        }
    }

    /// Waits for the work; returns its result and the time it took on its resource.
    pub fn wait(self) -> Result<(T, Duration)> {
        match self.0 {
            State::Ready(value, took) => Ok((value, took)),
            State::Pending(work) => work.wait(),
        }
    }

    /// This work and `next`, which the same resource was given after it: the result is this one's, the time that of both, and
    /// of two errors the first one's. Waits for the later work first, so that the host sleeps once.
    pub fn then(self, next: Result<Handle<()>>) -> Handle<T>
    where
        T: Send + 'static,
    {
        match (self.0, next) {
            (State::Ready(value, took), Ok(Handle(State::Ready((), then)))) => Handle::ready(value, took + then),
            (first, next) => Handle::pending(InOrder { first: Handle(first), next }),
        }
    }
}

/// Two works that were given one after the other.
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
        match &self.0 {
            State::Ready(_, took) => write!(f, "Handle(ready, {took:?})"),
            State::Pending(_) => write!(f, "Handle(under way)"),
        }
    }
}
