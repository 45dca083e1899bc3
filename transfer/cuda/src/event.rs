//! Events, which order streams and time their work.

use std::sync::atomic::Ordering;
use std::time::Duration;

use morphgl_registry::{Counters, Handle, Measured, Result, Wait};

use crate::driver::Id;
use crate::{Device, Stream};

/// A point in a stream's work.
#[derive(Debug)]
pub struct Event {
    device: Device,
    id: Id,
}

impl Event {
    /// Records an event after all work of a stream so far.
    pub(crate) fn of(device: &Device, stream: Id, timed: bool) -> Result<Self> {
        let id = device.check(device.driver().new_event(timed))?;
        let event = Self { device: device.clone(), id };
        device.check(device.driver().record(id, stream))?;
        Ok(event)
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }

    /// Whether it has happened. A failure counts as happened, and is reported by waiting.
    pub fn is_done(&self) -> bool {
        self.device.driver().is_done(self.id).unwrap_or(true)
    }

    /// Whether it has happened; a failure counts as not happened.
    pub(crate) fn has_happened(&self) -> bool {
        self.device.driver().is_done(self.id).unwrap_or(false)
    }

    /// Blocks until it has happened.
    pub fn synchronize(&self) -> Result<()> {
        if !self.is_done() {
            self.device.inner().waits.fetch_add(1, Ordering::Relaxed);
        }
        self.device.check(self.device.driver().wait_for(self.id))
    }

    /// Time from `start` to this event; both are timed and have happened.
    ///
    /// # Errors
    ///
    /// Either is untimed or has not happened.
    pub fn elapsed(&self, start: &Event) -> Result<Duration> {
        self.device.check(self.device.driver().elapsed(start.id, self.id))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.device.driver().free_event(self.id);
    }
}

impl Stream {
    /// Records an event after all work queued so far; [`Event::elapsed`] needs it `timed`.
    pub fn record(&self, timed: bool) -> Result<Event> {
        Event::of(self.device(), self.id(), timed)
    }

    /// Orders later work of this stream after the event, which may be another device's.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let (driver, other) = (self.device().driver(), &event.device);
        self.check(match self.device().is(other) {
            true => driver.wait(self.id(), event.id),
            false => driver.wait_across(self.id(), other.driver(), event.id),
        })
    }
}

/// Handle for the work between two timed events; `finish` computes its result once it is done.
pub fn pending<T: 'static>(start: Event, end: Event, finish: impl FnOnce() -> Result<T> + Send + 'static) -> Handle<T> {
    pending_counting(start, end, move |_| Ok((finish()?, Counters::NONE)))
}

/// As [`pending`], where `finish` receives the duration of the work, and returns counters too.
pub fn pending_counting<T: 'static>(
    start: Event,
    end: Event,
    finish: impl FnOnce(Duration) -> Result<(T, Counters)> + Send + 'static,
) -> Handle<T> {
    Handle::pending(Pending { start, end, finish })
}

struct Pending<F> {
    start: Event,
    end: Event,
    finish: F,
}

impl<T, F: FnOnce(Duration) -> Result<(T, Counters)> + Send> Wait<T> for Pending<F> {
    fn is_ready(&self) -> bool {
        self.end.is_done()
    }

    fn wait(self: Box<Self>) -> Result<(T, Measured)> {
        self.end.synchronize()?;
        let busy = self.end.elapsed(&self.start)?;
        let (value, counters) = (self.finish)(busy)?;
        Ok((value, Measured { busy, counters, ..Measured::default() }))
    }
}
